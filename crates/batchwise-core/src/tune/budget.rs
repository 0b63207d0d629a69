//! What exploration may cost: a share of what messages wait.

/// A token bucket of time, s: so long may messages wait twice as long as without exploration. Time
/// and not waiting, so that what a quiet hour saved is worth no more than that under a high load.
///
/// Half of the share flows in as time passes, the other half is the bucket's depth over
/// [`HORIZON_S`]. So no window of that length holds more than the share, and in the long run half of
/// it is spent.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    share: f64,
    credit: f64,
}

/// The time over which the share is kept, s.
pub const HORIZON_S: f64 = 10.0;

impl Budget {
    /// Exploration may add `share` to the mean latency.
    pub fn new(share: f64) -> Self {
        Self {
            share,
            credit: share / 2.0 * HORIZON_S,
        }
    }

    /// `seconds` passed.
    pub fn earn(&mut self, seconds: f64) {
        self.credit = (self.credit + self.share / 2.0 * seconds).min(self.depth());
    }

    /// A probe cost what messages wait in `seconds`; below zero, it saved that.
    pub fn spend(&mut self, seconds: f64) {
        self.credit = (self.credit - seconds).min(self.depth());
    }

    /// Whether a probe of this cost fits. One that never would begins with all that can be saved, and
    /// ends in debt.
    pub fn allows(&self, seconds: f64) -> bool {
        seconds.min(0.99 * self.depth()) <= self.credit
    }

    fn depth(&self) -> f64 {
        self.share / 2.0 * HORIZON_S
    }

    /// What is left, s.
    pub fn left(&self) -> f64 {
        self.credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ten_seconds_hold_more_than_the_share() {
        let mut budget = Budget::new(0.02);
        let mut spent = 0.0;
        for _ in 0..1000 {
            budget.earn(HORIZON_S / 1000.0);
            if budget.allows(0.01) {
                budget.spend(0.01);
                spent += 0.01;
            }
        }
        assert!((0.18..=0.201).contains(&spent), "{spent}");
    }

    #[test]
    fn a_slow_hour_earns_no_more_than_ten_seconds() {
        let mut budget = Budget::new(0.02);
        budget.earn(3600.0);
        assert!((budget.left() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn what_can_never_be_saved_for_is_paid_for_later() {
        let mut budget = Budget::new(0.02);
        assert!(budget.allows(0.5));
        budget.spend(0.5);
        budget.earn(40.0);
        assert!(!budget.allows(0.01));
        budget.earn(10.0);
        assert!(budget.allows(0.5));
    }
}
