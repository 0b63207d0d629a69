//! When flows are counted, and what the counts allow.

use std::time::{Duration, Instant};

use super::{Agent, LastCensus};

/// Counting looks at each flow that is kept: more than so many are counted
const MANY_FLOWS: u32 = 1 << 16;
/// once in this time at most;
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// and however many there are, counting takes no more than a part in this of the agent's time.
const PART: u32 = 20;

/// Counts of busy flows hold for so many intervals,
const CHOICES: u32 = 4;
/// and for this at least.
const LEAST_CHOICES: Duration = Duration::from_secs(5);

impl LastCensus {
    /// Whether flows are to be counted again; `hurry`: few are kept, or a backend waits for it.
    fn is_old(&self, now: Instant, hurry: bool) -> bool {
        let rested = now.saturating_duration_since(self.ended) >= (self.ended - self.began) * PART;
        rested && (hurry || now.saturating_duration_since(self.began) >= COUNT_EVERY)
    }

    /// Whether it counted what was there at a moment.
    pub(super) fn is_after(&self, moment: Instant) -> bool {
        self.began > moment
    }
}

impl Agent {
    /// Counts the flows, if it is time to.
    pub(super) fn count(&mut self) -> anyhow::Result<()> {
        let kept = self.balancer.flow_counts();
        let few = kept.settled.saturating_add(kept.young) <= MANY_FLOWS;
        let hurry = few || !self.leaving.is_empty(); // they go by what is counted
        let began = Instant::now();
        let due = |last: LastCensus| last.is_old(began, hurry);
        if self.last_census.is_none_or(due) {
            self.census = self.balancer.census()?;
            let ended = Instant::now();
            self.last_census = Some(LastCensus { began, ended });
        }
        self.let_choose()
    }

    /// Says for how long new flows may go by what was counted.
    pub(super) fn let_choose(&mut self) -> anyhow::Result<()> {
        let (young, room) = (
            self.balancer.flow_counts().young,
            self.balancer.young_room(),
        );
        let within = choosing(young, room, self.config.interval);
        Ok(self.balancer.let_choose(within)?)
    }
}

/// For how long new flows may choose. A table of young flows that is half full may be a flood's.
fn choosing(young: u32, room: u32, interval: Duration) -> Option<Duration> {
    (young < room / 2).then(|| LEAST_CHOICES.max(interval * CHOICES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(took: Duration) -> (LastCensus, Instant) {
        let began = Instant::now();
        let ended = began + took;
        (LastCensus { began, ended }, ended)
    }

    #[test]
    fn counting_takes_a_twentieth_of_the_time_at_most_also_in_a_hurry() {
        for took in [Duration::from_millis(2), Duration::from_millis(300)] {
            let (last, ended) = counted(took);
            for hurry in [false, true] {
                assert!(!last.is_old(ended + took * 19, hurry), "{took:?}");
            }
            assert!(last.is_old(ended + took * 20, true), "{took:?}");
        }
    }

    #[test]
    fn many_flows_are_counted_once_a_second_however_quick_it_is_unless_there_is_a_hurry() {
        let (last, ended) = counted(Duration::from_millis(1));
        let soon = ended + Duration::from_millis(500);
        assert!(!last.is_old(soon, false));
        assert!(last.is_old(soon, true));
        assert!(last.is_old(soon + Duration::from_millis(500), false));
    }

    #[test]
    fn what_was_counted_before_a_backend_left_says_nothing_of_it() {
        let (last, ended) = counted(Duration::from_millis(10));
        assert!(last.is_after(last.began - Duration::from_millis(1)));
        assert!(!last.is_after(last.began + Duration::from_millis(1)));
        assert!(!last.is_after(ended));
    }

    #[test]
    fn new_flows_choose_for_some_intervals_unless_half_of_the_young_table_is_full() {
        let seconds = Duration::from_secs;
        assert_eq!(choosing(511, 1024, seconds(1) / 2), Some(seconds(5)));
        assert_eq!(choosing(0, 1024, seconds(60)), Some(seconds(240)));
        assert_eq!(choosing(512, 1024, seconds(60)), None);
    }
}
