//! A set of durations: an HdrHistogram for the quantiles, and the exact mean and maximum beside
//! it, since the histogram rounds to three significant digits.

use hdrhistogram::Histogram;

use crate::report::{LatencySummary, LatenessSummary};

/// The longest duration that is told apart: an hour.
const HIGHEST_NS: u64 = 3_600_000_000_000;

pub(crate) struct Samples {
    histogram: Histogram<u64>,
    sum: u128,
    count: u64,
    max: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, HIGHEST_NS, 3).expect("bounds in order"),
            sum: 0,
            count: 0,
            max: 0,
        }
    }
}

impl Samples {
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum += u128::from(ns);
        self.count += 1;
        self.max = self.max.max(ns);
    }

    /// Takes in other samples.
    pub fn add(&mut self, other: &Self) {
        // The bounds are the same: this cannot fail.
        let _ = self.histogram.add(&other.histogram);
        self.sum += other.sum;
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub fn reset(&mut self) {
        self.histogram.reset();
        (self.sum, self.count, self.max) = (0, 0, 0);
    }

    /// What 0 %, 1 %, … 100 % of the samples do not exceed.
    #[cfg(feature = "experiments")]
    pub fn percentiles(&self) -> Vec<u64> {
        let of = |percent: u32| self.quantile(f64::from(percent) / 100.0);
        (0..=100).filter_map(of).collect()
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact mean, rounded to whole ns.
    pub fn mean(&self) -> Option<u64> {
        let count = u128::from(self.count);
        (count > 0).then(|| ((self.sum + count / 2) / count) as u64)
    }

    /// The value at `q` (0 to 1), within 0.1 %.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        (self.count > 0).then(|| self.histogram.value_at_quantile(q).min(self.max))
    }

    pub fn latency(&self) -> LatencySummary {
        LatencySummary {
            mean: self.mean(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: (self.count > 0).then_some(self.max),
        }
    }

    pub fn lateness(&self) -> LatenessSummary {
        let LatencySummary {
            mean,
            p50,
            p99,
            max,
            ..
        } = self.latency();
        LatenessSummary {
            mean,
            p50,
            p99,
            max,
        }
    }

    pub fn into_histogram(self) -> Histogram<u64> {
        self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_exact_where_the_histogram_rounds() {
        let mut samples = Samples::default();
        samples.record(1_000_001);
        samples.record(1_000_003);
        assert_eq!(samples.mean(), Some(1_000_002));
        assert_eq!(samples.latency().max, Some(1_000_003));
    }

    #[test]
    fn samples_of_two_phases_together_are_those_of_the_run() {
        let (mut one, mut other) = (Samples::default(), Samples::default());
        one.record(10);
        other.record(30);
        other.record(50);
        one.add(&other);
        assert_eq!((one.count(), one.mean()), (3, Some(30)));
        assert_eq!((one.quantile(0.5), one.latency().max), (Some(30), Some(50)));
    }

    #[test]
    fn nothing_recorded_is_unknown_not_zero() {
        let samples = Samples::default();
        assert_eq!(samples.latency(), LatencySummary::default());
        assert_eq!(samples.lateness().p99, None);
    }
}
