//! Summaries of samples: quantiles that accept infinity (an arm that has collapsed), and a
//! bootstrap interval for a median.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// The `q`-quantile (0 to 1) of samples without NaN, linear between neighbours; `None` of none.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    let mut samples = samples.to_vec();
    let at = q.clamp(0.0, 1.0) * samples.len().checked_sub(1)? as f64;
    let (_, &mut low, above) = samples.select_nth_unstable_by(at as usize, f64::total_cmp);
    let above = above.iter().copied().min_by(f64::total_cmp);
    Some(match above.filter(|_| at.fract() > 0.0) {
        Some(high) if high.is_finite() => low + (high - low) * at.fract(),
        Some(infinite) => infinite,
        None => low,
    })
}

/// For each of these shares (0 to 1, ascending) the smallest sample that is at least as large as that
/// share of the weight; samples come with their weights. Empty without weight.
pub fn weighted_quantiles(
    samples: &[(f64, f64)],
    shares: impl IntoIterator<Item = f64>,
) -> Vec<f64> {
    let mut sorted: Vec<_> = samples.iter().filter(|(_, w)| *w > 0.0).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let (mut at, mut below) = (0, 0.0);
    let find = |share: f64| {
        while at + 1 < sorted.len() && below + sorted[at].1 < share * all {
            below += sorted[at].1;
            at += 1;
        }
        Some(sorted.get(at)?.0)
    };
    shares.into_iter().filter_map(find).collect()
}

/// One of [`weighted_quantiles`]; `None` without weight.
pub fn weighted_quantile(samples: &[(f64, f64)], q: f64) -> Option<f64> {
    weighted_quantiles(samples, [q]).pop()
}

/// The middle of the samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// A median and how far samples are from it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
}

impl Spread {
    pub fn of(samples: &[f64]) -> Option<Self> {
        Some(Self {
            q1: quantile(samples, 0.25)?,
            median: median(samples)?,
            q3: quantile(samples, 0.75)?,
        })
    }
}

/// A median with the 95 % percentile-bootstrap interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MedianInterval {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl MedianInterval {
    /// Of the first above the second of each pair.
    pub fn of_differences(pairs: &[(f64, f64)]) -> Option<Self> {
        Self::of(&pairs.iter().map(|(a, b)| a - b).collect::<Vec<_>>())
    }

    /// Of these samples; `None` of none. The same samples always give the same interval.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let median = median(samples)?;
        let mut rng = StdRng::seed_from_u64(0);
        let mut resample = vec![0.0; samples.len()];
        let draw = |_| {
            resample.fill_with(|| samples[rng.random_range(0..samples.len())]);
            quantile(&resample, 0.5)
        };
        let medians: Vec<_> = (0..RESAMPLES).filter_map(draw).collect();
        Some(Self {
            median,
            low: quantile(&medians, 0.025)?,
            high: quantile(&medians, 0.975)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_samples_in_any_order() {
        let samples = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&samples), Some(2.5));
        assert_eq!(quantile(&samples, 0.0), Some(1.0));
        assert_eq!(quantile(&samples, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_weighted_quantile_counts_weight_and_not_samples() {
        let samples = [(10.0, 1.0), (1.0, 7.0), (100.0, 2.0), (5.0, 0.0)];
        assert_eq!(weighted_quantile(&samples, 0.5), Some(1.0));
        assert_eq!(weighted_quantile(&samples, 0.75), Some(10.0));
        assert_eq!(weighted_quantile(&samples, 1.0), Some(100.0));
        assert_eq!(weighted_quantile(&[(1.0, 0.0)], 0.5), None);
    }

    #[test]
    fn a_median_is_infinite_when_most_samples_are() {
        let inf = f64::INFINITY;
        assert_eq!(median(&[1.0, inf, 2.0]), Some(2.0));
        assert_eq!(median(&[1.0, inf, inf]), Some(inf));
        assert_eq!(median(&[1.0, inf]), Some(inf));
    }
}
