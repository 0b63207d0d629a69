//! What exploration may cost: a share of what messages wait under the arm in force.

/// Credit for probes, in ns of waiting summed over messages, as time passes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    share: f64,
    credit: f64,
}

/// Unused credit is kept for this long, s: what costs more than that is not tried.
const KEPT_S: f64 = 60.0;

impl Budget {
    /// Exploration may add `share` to the mean latency.
    pub fn new(share: f64) -> Self {
        Self { share, credit: 0.0 }
    }

    /// `seconds` passed in which messages waited `rate` ns a second, all together.
    pub fn earn(&mut self, rate: f64, seconds: f64) {
        let most = self.share * rate * KEPT_S;
        // a quieter service than before keeps no more credit than it would have earned itself
        self.credit = (self.credit + self.share * rate * seconds).min(most);
    }

    /// A probe made messages wait `cost` ns longer, all together.
    pub fn spend(&mut self, cost: f64) {
        self.credit -= cost.max(0.0);
    }

    /// Whether a probe of this cost fits.
    pub fn allows(&self, cost: f64) -> bool {
        cost <= self.credit
    }

    /// What is left, ns.
    pub fn left(&self) -> f64 {
        self.credit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exploration_never_spends_more_than_its_share() {
        let mut budget = Budget::new(0.02);
        assert!(!budget.allows(1.0), "nothing is earned yet");
        budget.earn(1e9, 1.0);
        assert!(budget.allows(0.02e9));
        assert!(!budget.allows(0.021e9));
        budget.spend(0.02e9);
        assert!(!budget.allows(1.0));
    }

    #[test]
    fn credit_of_a_slow_hour_does_not_pay_for_a_quick_one() {
        let mut budget = Budget::new(0.02);
        budget.earn(1e12, 3600.0);
        budget.earn(1e9, 0.1);
        assert!(budget.left() <= 0.02 * 1e9 * KEPT_S);
    }
}
