//! Whether the arrivals that were really scheduled have the distribution that was asked for: a
//! Kolmogorov-Smirnov test over all gaps of the measured window, in constant memory.

use serde::Serialize;

use crate::rate::Arrivals;

const BINS: usize = 1024;

/// What the check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrivalCheck {
    /// Gaps looked at.
    pub gaps: u64,
    /// Mean gap between intended send times, ns.
    pub mean_gap_ns: Option<f64>,
    /// What it should be, ns.
    pub expected_mean_gap_ns: Option<f64>,
    /// Coefficient of variation of the intended gaps (each relative to its expectation).
    pub cv: Option<f64>,
    /// What it should be: 1 for Poisson, 0 for constant arrivals.
    pub expected_cv: f64,
    /// Kolmogorov-Smirnov distance of the intended gaps from the exponential distribution.
    pub ks: Option<f64>,
    /// The distance above which the arrivals are called wrong: the critical value at a
    /// significance of 0.1 % plus 0.005, so that rounding to whole ns never matters.
    pub ks_limit: Option<f64>,
    /// Coefficient of variation of the gaps between *actual* sends; for information.
    pub sent_gap_cv: Option<f64>,
    /// Whether the arrivals may be called what was asked for.
    pub ok: bool,
}

/// Count, mean and variance of numbers near 1.
#[derive(Default)]
struct Moments {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, x: f64) {
        self.count += 1;
        self.sum += x;
        self.squares += x * x;
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    fn cv(&self) -> Option<f64> {
        let mean = self.mean().filter(|&m| m > 0.0)?;
        let variance = (self.squares / self.count as f64 - mean * mean).max(0.0);
        Some(variance.sqrt() / mean)
    }
}

/// Collects the gaps.
pub(crate) struct GapCollector {
    arrivals: Arrivals,
    bins: Box<[u64; BINS]>,
    intended: Moments,
    gap_sum: f64,
    expected_sum: f64,
    sent: Moments,
    last_sent: Option<u64>,
}

impl GapCollector {
    pub fn new(arrivals: Arrivals) -> Self {
        Self {
            arrivals,
            bins: Box::new([0; BINS]),
            intended: Moments::default(),
            gap_sum: 0.0,
            expected_sum: 0.0,
            sent: Moments::default(),
            last_sent: None,
        }
    }

    /// A gap between intended send times, where `per_ns` requests per ns were expected.
    pub fn intended_gap(&mut self, gap_ns: u64, per_ns: f64) {
        let relative = gap_ns as f64 * per_ns;
        self.intended.add(relative);
        self.gap_sum += gap_ns as f64;
        self.expected_sum += 1.0 / per_ns;
        if self.arrivals == Arrivals::Poisson {
            // The probability integral transform: uniform if the gaps are exponential.
            let uniform = 1.0 - (-relative).exp();
            self.bins[((uniform * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
    }

    /// A request was handed to the kernel at `ns`.
    pub fn sent_at(&mut self, ns: u64) {
        if let Some(last) = self.last_sent.replace(ns) {
            self.sent.add(ns.saturating_sub(last) as f64);
        }
    }

    fn ks(&self) -> Option<f64> {
        let total: u64 = self.bins.iter().sum();
        let mut below = 0;
        let distances = self.bins.iter().enumerate().map(|(index, count)| {
            below += count;
            (below as f64 / total as f64 - (index + 1) as f64 / BINS as f64).abs()
        });
        (total > 0).then(|| distances.fold(0.0, f64::max))
    }

    pub fn finish(&self) -> ArrivalCheck {
        let count = self.intended.count;
        let per_gap = |sum: f64| (count > 0).then(|| sum / count as f64);
        let cv = self.intended.cv();
        let (expected_cv, ks, ks_limit, ok);
        match self.arrivals {
            Arrivals::Poisson => {
                expected_cv = 1.0;
                ks = self.ks();
                ks_limit = ks.map(|_| 1.95 / (count as f64).sqrt() + 0.005);
                ok = ks <= ks_limit;
            }
            Arrivals::Constant => {
                expected_cv = 0.0;
                (ks, ks_limit) = (None, None);
                let mean_right = self.intended.mean().is_none_or(|m| (m - 1.0).abs() < 0.01);
                ok = mean_right && cv.is_none_or(|cv| cv < 0.01);
            }
        }
        ArrivalCheck {
            gaps: count,
            mean_gap_ns: per_gap(self.gap_sum),
            expected_mean_gap_ns: per_gap(self.expected_sum),
            cv,
            expected_cv,
            ks,
            ks_limit,
            sent_gap_cv: self.sent.cv(),
            ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::SmallRng};
    use rand_distr::Exp1;

    fn check(arrivals: Arrivals, gaps: impl Iterator<Item = u64>, per_ns: f64) -> ArrivalCheck {
        let mut collector = GapCollector::new(arrivals);
        gaps.for_each(|gap| collector.intended_gap(gap, per_ns));
        collector.finish()
    }

    #[test]
    fn exponential_gaps_pass_also_when_they_are_many_and_short() {
        let mut rng = SmallRng::seed_from_u64(3);
        let gaps = (0..2_000_000).map(|_| (rng.sample::<f64, _>(Exp1) * 1000.0) as u64);
        let found = check(Arrivals::Poisson, gaps, 1e-3);
        assert!(found.ok, "{found:?}");
        assert!((found.cv.unwrap() - 1.0).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn uniform_gaps_are_not_poisson() {
        let mut rng = SmallRng::seed_from_u64(3);
        let gaps = (0..10_000).map(|_| rng.random_range(0..20_000));
        assert!(!check(Arrivals::Poisson, gaps, 1e-4).ok);
    }

    #[test]
    fn exponential_gaps_of_a_wrong_rate_are_noticed() {
        let mut rng = SmallRng::seed_from_u64(3);
        let gaps = (0..100_000).map(|_| (rng.sample::<f64, _>(Exp1) * 10_400.0) as u64);
        assert!(!check(Arrivals::Poisson, gaps, 1e-4).ok);
    }

    #[test]
    fn constant_arrivals_must_be_equal() {
        for (gaps, equal) in [([3333, 3334], true), ([3000, 3666], false)] {
            let gaps = gaps.into_iter().cycle().take(99);
            assert_eq!(check(Arrivals::Constant, gaps, 3e-4).ok, equal);
        }
    }

    #[test]
    fn no_gaps_are_no_evidence_against_the_arrivals() {
        for arrivals in [Arrivals::Poisson, Arrivals::Constant] {
            let found = check(arrivals, [].into_iter(), 1.0);
            assert!(found.ok && found.mean_gap_ns.is_none(), "{found:?}");
        }
    }
}
