//! Hints (§3.3 of the paper): a queue state that the application keeps, turned from its sums into
//! [`QueueState`] without trusting it, and the estimate that it gives.

use crate::sense::confidence::{Evidence, confidence};
use crate::sense::estimate::Estimate;
use crate::sense::queue::{QueueState, Window};
use crate::sense::report::{Estimator, Latency, Stages};

/// What an application has counted; times are in ticks of its clock, everything wraps. Sums need no
/// order between the threads that add to them: at time t the integral of the queue is
/// `completed_at − created_at + (created − completed) · t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintSums {
    /// Requests that were created.
    pub created: u64,
    /// The sum of the times at which they were.
    pub created_at: u64,
    /// Requests that were completed.
    pub completed: u64,
    /// The sum of the times at which they were.
    pub completed_at: u64,
    /// Requests that were created when nobody listened, and no clock was read.
    pub untimed_created: u64,
    /// Requests that were completed so.
    pub untimed_completed: u64,
}

impl HintSums {
    /// The timed part's integral at `ticks`, ticks × items, wrapping.
    fn integral(&self, ticks: u64) -> u64 {
        let size = self.created.wrapping_sub(self.completed);
        self.completed_at
            .wrapping_sub(self.created_at)
            .wrapping_add(size.wrapping_mul(ticks))
    }

    /// Untimed requests that are outstanding, if the timed ones are even.
    fn untimed_size(&self) -> i64 {
        self.untimed_created.wrapping_sub(self.untimed_completed) as i64
    }

    fn size(&self) -> i64 {
        let timed = self.created.wrapping_sub(self.completed) as i64;
        timed.wrapping_add(self.untimed_size())
    }
}

/// A moment at which sums are read.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// By the clock of the sums.
    pub ticks: u64,
    /// By CLOCK_MONOTONIC, ns.
    pub at: u64,
    /// Length of a tick, ns.
    pub ns_per_tick: f64,
}

/// The sums say what cannot be: more waiting than there were requests and time for, or less than
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implausible;

/// How long an event may take from its time to its publication: its thread is preempted between.
/// Few are, …
const LATE_NS: f64 = 1e9;
const LATE_EVENTS: f64 = 64.0;
/// … and what is read while others count is out of step by much less than this.
const SKEW_NS: f64 = 1e6;
/// Nobody issues more requests than this, but all at once.
const MOST_PER_NS: f64 = 1.0;

/// A hint's queue, kept up from one reading to the next.
#[derive(Clone, Copy, Debug)]
pub struct HintQueue {
    state: QueueState,
    sums: HintSums,
    ticks: u64,
    /// Requests that were completed without having been created, as far as could be seen.
    excess: i64,
    /// What the integral was ahead of itself: readings that were out of step.
    ahead: f64,
}

impl HintQueue {
    /// Counts from `now` on: what is outstanding then is taken over as it is.
    ///
    /// # Errors
    /// More is outstanding than there can be.
    pub fn new(sums: HintSums, now: Moment) -> Result<Self, Implausible> {
        let mut queue = Self {
            sums,
            ..Self::fresh(now.ticks, now)
        };
        queue.resize()?;
        Ok(queue)
    }

    /// Counts from the hint's beginning, `ticks`: sums that were all timed.
    pub fn fresh(ticks: u64, now: Moment) -> Self {
        Self {
            state: QueueState::new(now.at),
            sums: HintSums::default(),
            ticks,
            excess: 0,
            ahead: 0.0,
        }
    }

    /// The queue as it was at the last reading.
    pub fn state(&self) -> QueueState {
        self.state
    }

    /// A new reading.
    ///
    /// # Errors
    /// It cannot be; the queue is then of no more use.
    pub fn advance(&mut self, sums: HintSums, now: Moment) -> Result<QueueState, Implausible> {
        let before = &self.sums;
        let passed = now.ticks.wrapping_sub(self.ticks) as i64;
        if passed < 0 {
            return Err(Implausible);
        }
        let came =
            new(sums.created, before.created) + new(sums.untimed_created, before.untimed_created);
        let left = new(sums.completed, before.completed)
            + new(sums.untimed_completed, before.untimed_completed);

        let timed = sums
            .integral(now.ticks)
            .wrapping_sub(before.integral(self.ticks)) as i64;
        let untimed = before.untimed_size().saturating_add(self.excess);
        let area = (timed as f64 + untimed as f64 * passed as f64) * now.ns_per_tick;
        let span = passed as f64 * now.ns_per_tick;
        if came.max(left) > span * MOST_PER_NS + f64::from(u32::MAX) {
            return Err(Implausible);
        }
        let slack = (came + left) * SKEW_NS + (came + left + 1.0).min(LATE_EVENTS) * LATE_NS;
        let most = (f64::from(self.state.size) + came) * span + slack;
        if !(-slack..=most).contains(&area) {
            return Err(Implausible);
        }

        let area = area - self.ahead;
        self.ahead = (-area).max(0.0);
        let state = &mut self.state;
        state.time = now.at;
        state.integral = state.integral.wrapping_add(area.max(0.0) as u64);
        state.total = state.total.wrapping_add(left as u64);
        self.sums = sums;
        self.ticks = now.ticks;
        self.resize()?;
        Ok(self.state)
    }

    /// A queue has no fewer than 0 items: what left in excess had been created before anyone
    /// counted, or was never created.
    fn resize(&mut self) -> Result<(), Implausible> {
        let size = self.sums.size().saturating_add(self.excess);
        if size < 0 {
            self.excess = self.excess.saturating_sub(size);
        }
        self.state.size = u32::try_from(size.max(0)).map_err(|_| Implausible)?;
        Ok(())
    }
}

fn new(now: u64, before: u64) -> f64 {
    now.wrapping_sub(before) as f64
}

/// The estimate of hints' windows, summed, for an interval of `interval` ns; `None` when no request
/// was completed in it.
pub fn estimate(window: &Window, interval: u64) -> Option<Estimate> {
    let total = window.delay()? + 0.5;
    Some(Estimate {
        estimator: Estimator::Hint,
        view: None,
        latency: Latency {
            total: Some(total as u64),
            ..Latency::default()
        },
        stages: Stages::default(),
        confidence: confidence(&Evidence {
            estimator: Estimator::Hint,
            messages: window.total,
            overlaps: 0,
            late_send: false,
        }),
        throughput: window.total as f64 * 1e9 / interval.max(1) as f64,
        why: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Half a nanosecond a tick, and another zero.
    fn at(ticks: u64) -> Moment {
        Moment {
            ticks,
            at: 1_000 + ticks / 2,
            ns_per_tick: 0.5,
        }
    }

    impl HintSums {
        fn create(&mut self, n: u64, ticks: u64) {
            self.created = self.created.wrapping_add(n);
            self.created_at = self.created_at.wrapping_add(n.wrapping_mul(ticks));
        }

        fn complete(&mut self, n: u64, ticks: u64) {
            self.completed = self.completed.wrapping_add(n);
            self.completed_at = self.completed_at.wrapping_add(n.wrapping_mul(ticks));
        }
    }

    #[test]
    fn requests_that_nobody_timed_count_from_the_first_reading() {
        let mut sums = HintSums {
            untimed_created: 20,
            untimed_completed: 18,
            ..HintSums::default()
        };
        let mut queue = HintQueue::new(sums, at(1_000)).unwrap();
        let start = queue.state();
        assert_eq!(start.size, 2);
        sums.complete(1, 1_400);
        sums.complete(1, 1_600);
        let end = queue.advance(sums, at(2_000)).unwrap();
        assert_eq!((end.size, end.total), (0, 2));
        assert_eq!(end.since(&start).delay(), Some(250.0));
        // and later ones as they are
        sums.create(1, 3_000);
        sums.complete(1, 3_100);
        let later = queue.advance(sums, at(4_000)).unwrap();
        assert_eq!(later.since(&end).delay(), Some(50.0));
    }

    #[test]
    fn a_fresh_hint_counts_from_its_beginning() {
        let mut sums = HintSums::default();
        sums.create(3, 500);
        sums.complete(3, 700);
        let mut queue = HintQueue::fresh(400, at(1_000));
        let start = queue.state();
        let end = queue.advance(sums, at(1_000)).unwrap();
        let window = end.since(&start);
        assert_eq!((window.total, window.delay()), (3, Some(100.0)));
    }

    #[test]
    fn completing_more_than_was_created_is_forgiven_once_seen() {
        let mut sums = HintSums::default();
        let mut queue = HintQueue::new(sums, at(0)).unwrap();
        sums.complete(5, 100);
        let seen = queue.advance(sums, at(200)).unwrap();
        assert_eq!((seen.size, seen.total), (0, 5));
        for round in 1..10 {
            let t = round * 1_000_000_000;
            sums.create(1, t);
            sums.complete(1, t + 2_000_000);
            queue.advance(sums, at(t + 3_000_000)).unwrap();
        }
        let end = queue.state();
        assert_eq!(end.total - seen.total, 9);
        let delay = end.since(&seen).delay().unwrap();
        assert!((delay - 1_000_000.0).abs() < 1_000.0, "{delay}");
    }

    #[test]
    fn a_liar_is_found_out() {
        let good = HintSums {
            created: 10,
            created_at: 10_000,
            completed: 10,
            completed_at: 11_000,
            ..HintSums::default()
        };
        let start = HintQueue::new(good, at(20_000)).unwrap();
        let future = HintSums {
            created: 11,
            created_at: good.created_at + (1 << 50),
            ..good
        };
        let past = HintSums {
            created: 11,
            created_at: good.created_at.wrapping_sub(1 << 50),
            ..good
        };
        let crowd = HintSums {
            created: 1 << 40,
            created_at: good.created_at.wrapping_add(30_000 << 40),
            ..good
        };
        let rush = HintSums {
            untimed_created: 1 << 60,
            untimed_completed: 1 << 60,
            ..good
        };
        for lie in [future, past, crowd, rush] {
            let mut queue = start;
            assert_eq!(queue.advance(lie, at(40_000)), Err(Implausible), "{lie:?}");
        }
        let mut queue = start;
        assert_eq!(queue.advance(good, at(10_000)), Err(Implausible));
    }

    #[test]
    fn an_estimate_is_the_total_and_nothing_else() {
        let window = Window {
            time: 1_000_000_000,
            integral: 991 * 250_000,
            total: 991,
        };
        let e = estimate(&window, 1_000_000_000).unwrap();
        assert_eq!(e.estimator, Estimator::Hint);
        assert_eq!(e.latency.total, Some(250_000));
        assert_eq!((e.latency.network, e.latency.turnaround), (None, None));
        assert_eq!(e.throughput, 991.0);
        assert!((0.95..1.0).contains(&e.confidence));
        assert_eq!(estimate(&Window::default(), 1), None);
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_queue_state_of_the_paper(
            events in proptest::collection::vec((1u64..1_000, 1u64..5, any::<bool>(), any::<bool>()), 1..200),
            epoch in any::<u32>(),
        ) {
            let begin = u64::MAX - u64::from(epoch);
            let moment = |ticks: u64| Moment { ticks: begin.wrapping_add(ticks), at: ticks, ns_per_tick: 1.0 };
            let mut paper = QueueState::new(0);
            let mut sums = HintSums::default();
            let mut queue = HintQueue::new(sums, moment(0)).unwrap();
            let mut now = 0;
            for (dt, n, create, read) in events {
                now += dt;
                let n = if create { n } else { n.min(u64::from(paper.size)) };
                if create {
                    sums.create(n, begin.wrapping_add(now));
                    paper.track(now, n as i64);
                } else {
                    sums.complete(n, begin.wrapping_add(now));
                    paper.track(now, -(n as i64));
                }
                if read {
                    prop_assert_eq!(queue.advance(sums, moment(now)).unwrap(), paper);
                }
            }
            prop_assert_eq!(queue.advance(sums, moment(now)).unwrap(), paper.at(now));
        }
    }
}
