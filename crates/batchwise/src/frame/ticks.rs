//! The loop: intervals, the duration, the signal to stop. Every subcommand that stays goes round here,
//! which is what its supervisor is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollTimeout, poll};

use super::supervisor::Supervisor;

/// A signal between a look at its flag and the wait is noticed after at most this long.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// An interval goes on: what cannot wait for its end is looked at.
    Look,
    /// An interval is over.
    Interval,
    /// The duration is over, and with it the last interval.
    End,
    /// A signal or the user stopped it amid an interval.
    Stopped,
}

impl Turn {
    /// Whether there is no other after it.
    pub fn is_last(self) -> bool {
        matches!(self, Self::End | Self::Stopped)
    }
}

pub struct Ticks {
    stop: Arc<AtomicBool>,
    interval: Duration,
    next: Instant,
    end: Option<Instant>,
    supervisor: Supervisor,
    well: bool,
}

impl Ticks {
    /// The first interval begins now.
    pub fn new(stop: Arc<AtomicBool>, interval: Duration, duration: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            stop,
            interval,
            next: now + interval,
            // one that no clock reaches is none
            end: duration.and_then(|duration| now.checked_add(duration)),
            supervisor: Supervisor::new(),
            well: true,
        }
    }

    /// The interval that goes on, and those after it, have another length.
    pub fn set_interval(&mut self, interval: Duration) {
        if interval != self.interval {
            self.next = self.next - self.interval + interval;
            self.interval = interval;
        }
    }

    /// The next interval ends then, whatever their length.
    pub fn set_next(&mut self, next: Instant) {
        self.next = next;
    }

    /// How long the interval goes on.
    pub fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// While the agent is not, its supervisor hears nothing of it: parts of it may hang although the loop
    /// goes round.
    pub fn set_well(&mut self, well: bool) {
        self.well = well;
    }

    /// The loop goes round, and does something that takes longer than a turn.
    pub fn alive(&mut self) {
        if self.well {
            self.supervisor.alive();
        }
    }

    /// The agent has to end.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.supervisor.stopping();
    }

    /// Whether it has, or a signal came.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for the end of the interval, but at most `look_every`, by `wait`: it is given a time, may
    /// return before it, and says whether to stop.
    pub fn turn(
        &mut self,
        look_every: Duration,
        wait: impl FnOnce(Duration) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Turn> {
        self.alive();
        let due = self.end.map_or(self.next, |end| end.min(self.next));
        let left = due.saturating_duration_since(Instant::now());
        let quit = wait(left.min(look_every).min(LONGEST_WAIT))?;
        if quit || self.is_stopped() {
            self.supervisor.stopping();
            return Ok(Turn::Stopped);
        }
        let now = Instant::now();
        if now < due {
            return Ok(Turn::Look);
        }
        // one that was missed is not made up for
        self.next += self.interval;
        if self.next < now + self.interval / 2 {
            self.next = now + self.interval;
        }
        Ok(match self.end {
            Some(end) if now >= end => {
                self.supervisor.stopping();
                Turn::End
            }
            _ => Turn::Interval,
        })
    }
}

/// Sleeps, but not through a signal.
pub fn sleep(time: Duration) -> anyhow::Result<bool> {
    match poll(&mut [], poll_timeout(time)) {
        Ok(_) | Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Never a busy loop: one millisecond more than the rounded-down value.
pub fn poll_timeout(time: Duration) -> PollTimeout {
    PollTimeout::try_from(time.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn turns(ticks: &mut Ticks, look_every: Duration) -> Vec<Turn> {
        let mut turns = Vec::new();
        while !matches!(turns.last(), Some(Turn::End | Turn::Stopped)) {
            turns.push(ticks.turn(look_every, sleep).expect("a wait"));
        }
        turns
    }

    #[test]
    fn a_duration_of_whole_intervals_has_as_many() {
        let mut ticks = Ticks::new(Arc::default(), 40 * MS, Some(160 * MS));
        let turns = turns(&mut ticks, Duration::MAX);
        assert_eq!(turns.iter().filter(|t| **t != Turn::Look).count(), 4);
    }

    #[test]
    fn the_last_interval_is_as_long_as_the_duration_leaves_it() {
        let begin = Instant::now();
        let mut ticks = Ticks::new(Arc::default(), Duration::from_secs(60), Some(30 * MS));
        let turns = turns(&mut ticks, 10 * MS);
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert!(turns.contains(&Turn::Look), "{turns:?}");
        assert_eq!(turns.last(), Some(&Turn::End));
    }

    #[test]
    fn a_signal_and_the_user_stop_it() {
        let stop = Arc::new(AtomicBool::new(true));
        let mut ticks = Ticks::new(Arc::clone(&stop), 60_000 * MS, None);
        assert_eq!(ticks.turn(MS, sleep).expect("a wait"), Turn::Stopped);
        stop.store(false, Ordering::Relaxed);
        assert_eq!(ticks.turn(MS, |_| Ok(true)).expect("a wait"), Turn::Stopped);
    }

    #[test]
    fn intervals_that_were_missed_are_not_made_up_for() {
        let mut ticks = Ticks::new(Arc::default(), 20 * MS, None);
        std::thread::sleep(110 * MS);
        assert_eq!(ticks.turn(MS, sleep).expect("a wait"), Turn::Interval);
        assert_eq!(ticks.turn(MS, sleep).expect("a wait"), Turn::Look);
    }
}
