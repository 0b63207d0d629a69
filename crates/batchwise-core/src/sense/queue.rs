//! The queue state and its two procedures, TRACK and GETAVGS (Algorithms 1 and 2 of *Batching with
//! End-to-End Performance Estimation*, §3.1).

/// Algorithm 1's 4-tuple. Times are ns of any monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// When the state last changed, ns.
    pub time: u64,
    /// Time-weighted size: items × ns, wrapping.
    pub integral: u64,
    /// Items that have left, wrapping.
    pub total: u64,
    /// Items in the queue.
    pub size: u32,
}

impl QueueState {
    /// An empty queue that starts counting at `now`.
    pub fn new(now: u64) -> Self {
        Self {
            time: now,
            ..Self::default()
        }
    }

    /// TRACK: `items` enter (positive) or leave (negative) at `now`.
    ///
    /// Two guards the paper does not need on paper: time that stands still or steps back adds
    /// nothing to the integral, and no more items leave than there are, since one miscount would
    /// otherwise become 2³² departures.
    pub fn track(&mut self, now: u64, items: i64) {
        self.touch(now);
        if items >= 0 {
            self.size = self.size.wrapping_add(items as u32);
        } else {
            let left = items.unsigned_abs().min(u64::from(self.size)) as u32;
            self.size -= left;
            self.total = self.total.wrapping_add(u64::from(left));
        }
    }

    /// TRACK with no items: brings the integral up to `now`.
    pub fn touch(&mut self, now: u64) {
        if now > self.time {
            let area = (now - self.time).wrapping_mul(u64::from(self.size));
            self.integral = self.integral.wrapping_add(area);
            self.time = now;
        }
    }

    /// The state as it is at `now`, without changing it.
    pub fn at(mut self, now: u64) -> Self {
        self.touch(now);
        self
    }

    /// What happened between `earlier` and this state of the same queue.
    pub fn since(&self, earlier: &Self) -> Window {
        Window {
            time: self.time.wrapping_sub(earlier.time),
            integral: self.integral.wrapping_sub(earlier.integral),
            total: self.total.wrapping_sub(earlier.total),
        }
    }
}

/// The difference of two states of one queue, or the sum of such differences over queues: all that
/// GETAVGS needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Elapsed time, ns.
    pub time: u64,
    /// Items × ns in that time.
    pub integral: u64,
    /// Items that left in that time.
    pub total: u64,
}

impl Window {
    /// GETAVGS' latency (Algorithm 2), Q/λ: the mean time that an item spent in the queue, ns, in which
    /// the elapsed time cancels out. `None` when nothing left the queue: then it is not known.
    pub fn delay(&self) -> Option<f64> {
        // a correction of `ackdelay` may be larger than what it corrects
        let integral = self.integral.cast_signed().max(0);
        (self.total > 0).then(|| integral as f64 / self.total as f64)
    }

    /// Adds another queue's window, so that a service's average weighs every item alike.
    pub fn add(&mut self, other: &Self) {
        self.time = self.time.max(other.time);
        self.integral = self.integral.wrapping_add(other.integral);
        self.total = self.total.saturating_add(other.total);
    }

    /// Adds what happened next in the same queue. It wraps as the counters do: the integral of
    /// `ackdelay` may be corrected downwards by the next reading.
    pub fn append(&mut self, next: &Self) {
        self.time = self.time.wrapping_add(next.time);
        self.integral = self.integral.wrapping_add(next.integral);
        self.total = self.total.wrapping_add(next.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_example_averages_three_items() {
        // §3.1: one item for 10 µs, then four for 20 µs
        let start = QueueState::new(0);
        let mut q = start;
        q.track(0, 1);
        q.track(10_000, 3);
        q.touch(30_000);
        assert_eq!(q.integral, 90_000);
        q.track(30_000, -4);
        let window = q.since(&start);
        assert_eq!(window.integral as f64 / window.time as f64, 3.0);
        assert_eq!(window.delay(), Some(22_500.0));
    }

    #[test]
    fn an_idle_queue_has_no_latency_rather_than_zero() {
        let q = QueueState::new(5);
        assert_eq!(q.at(1_000).since(&q).delay(), None);
    }

    #[test]
    fn time_that_steps_back_adds_nothing() {
        let mut q = QueueState::new(1_000);
        q.track(1_000, 2);
        q.track(500, 1);
        assert_eq!((q.integral, q.size, q.time), (0, 3, 1_000));
    }

    #[test]
    fn counters_that_wrap_between_two_states_do_not_matter() {
        let before = QueueState {
            time: 10,
            integral: u64::MAX - 5,
            total: u64::MAX,
            size: 1,
        };
        let mut after = before;
        after.track(30, -1);
        assert_eq!(
            after.since(&before),
            Window {
                time: 20,
                integral: 20,
                total: 1
            }
        );
    }

    proptest! {
        #[test]
        fn the_delay_is_the_mean_stay_of_the_items(stays in proptest::collection::vec(1u64..10_000, 1..50)) {
            // all enter at 0 and each leaves after its own stay
            let start = QueueState::new(0);
            let mut q = start;
            q.track(0, stays.len() as i64);
            let mut sorted = stays.clone();
            sorted.sort_unstable();
            for s in &sorted {
                q.track(*s, -1);
            }
            let mean = stays.iter().sum::<u64>() as f64 / stays.len() as f64;
            prop_assert!((q.since(&start).delay().unwrap() - mean).abs() < 1e-6);
        }

        #[test]
        fn no_more_items_leave_than_entered(ops in proptest::collection::vec((0u64..100, -20i64..20), 0..200)) {
            let mut q = QueueState::new(0);
            let (mut now, mut entered) = (0, 0u64);
            for (dt, n) in ops {
                now += dt;
                q.track(now, n);
                entered += n.max(0) as u64;
                prop_assert_eq!(q.total + u64::from(q.size), entered);
            }
        }
    }
}
