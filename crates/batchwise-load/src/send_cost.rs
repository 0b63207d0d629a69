//! What the calls of `send` cost, and how late that alone makes a single sender: part of the
//! system that is measured (with TCP_NODELAY each call runs through the whole stack), not a fault
//! of the generator.

/// A call that takes longer than this was interrupted; the rest of it is no cost of sending, ns.
const LONGEST_NS: u64 = 50_000;
/// Beyond this utilization the formula has no meaning.
const HIGHEST_UTILIZATION: f64 = 0.95;

/// The first two moments of the duration of calls.
#[derive(Default)]
pub(crate) struct SendCost {
    count: u64,
    sum: u64,
    squares: f64,
}

impl SendCost {
    pub fn record(&mut self, ns: u64) {
        let ns = ns.min(LONGEST_NS);
        self.count += 1;
        self.sum += ns;
        self.squares += (ns * ns) as f64;
    }

    /// Takes in other calls.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Mean cost of a call, ns.
    pub fn mean(&self) -> Option<u64> {
        (self.count > 0).then(|| self.sum / self.count)
    }

    /// The mean wait of Poisson arrivals for a single sender with these costs, ns, by the
    /// Pollaczek-Khinchine formula, where the calls are spread over `window_ns`.
    pub fn expected_wait(&self, window_ns: u64) -> u64 {
        let per_ns = self.count as f64 / window_ns.max(1) as f64;
        let mean_square = self.squares / self.count.max(1) as f64;
        let utilization = (self.sum as f64 / window_ns.max(1) as f64).min(HIGHEST_UTILIZATION);
        (per_ns * mean_square / (2.0 * (1.0 - utilization))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_busy_sender_of_equal_costs_makes_requests_wait_half_a_cost() {
        let mut cost = SendCost::default();
        (0..1000).for_each(|_| cost.record(2_000));
        assert_eq!(cost.expected_wait(4_000_000), 1_000);
        assert_eq!(cost.mean(), Some(2_000));
    }

    #[test]
    fn an_interrupted_call_does_not_excuse_lateness() {
        let mut cost = SendCost::default();
        (0..1000).for_each(|_| cost.record(1_000));
        cost.record(20_000_000);
        assert!(cost.expected_wait(10_000_000) < 1_000);
    }

    #[test]
    fn no_calls_explain_nothing() {
        let none = SendCost::default();
        assert_eq!((none.expected_wait(0), none.mean()), (0, None));
    }
}
