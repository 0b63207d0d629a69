//! How far estimates are from the truth: errors of epochs, each counting as often as it has
//! responses.

use serde::{Deserialize, Serialize};

use super::Paired;
use crate::stats::weighted_quantile;

/// Within how much of the truth an estimate is close: a share of it.
const CLOSE: f64 = 0.15;

/// How far estimates are from the truth; errors are `(truth - estimate) / truth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Responses in epochs with a truth.
    pub responses: usize,
    /// Share of them whose epoch has an estimate.
    pub covered: f64,
    /// Middle of the signed errors: what the paper reports.
    pub median_rel_error: Option<f64>,
    /// Middle of their absolute values.
    pub median_abs_rel_error: Option<f64>,
    /// 90th percentile of their absolute values.
    pub p90_abs_rel_error: Option<f64>,
    /// Share of the responses with an estimate that are within 15 % of the truth.
    pub within_15_percent: Option<f64>,
    /// Middle of the absolute errors, ns.
    pub median_abs_error_ns: Option<f64>,
    /// Mean of the truth over the responses with an estimate, ns.
    pub truth_ns: Option<f64>,
    /// Mean of the estimates over the same, ns.
    pub estimate_ns: Option<f64>,
}

impl Errors {
    pub fn of(paired: &[Paired]) -> Self {
        let all: usize = paired.iter().map(|epoch| epoch.responses).sum();
        let relative = relative(paired);
        let absolute: Vec<_> = relative.iter().map(|(e, w)| (e.abs(), *w)).collect();
        let covered: f64 = relative.iter().map(|(_, weight)| weight).sum();
        let close = absolute.iter().filter(|(e, _)| *e <= CLOSE);
        let close: f64 = close.map(|(_, w)| w).sum();
        let known = || {
            let one = |e: &Paired| Some((e.response_ns, e.estimate_ns?, e.responses as f64));
            paired.iter().filter_map(one)
        };
        let off: Vec<_> = known()
            .map(|(truth, found, w)| ((truth - found).abs(), w))
            .collect();
        let per_response = |sum: f64| (covered > 0.0).then(|| (sum + 0.0) / covered);
        Self {
            responses: all,
            covered: if all > 0 { covered / all as f64 } else { 0.0 },
            median_rel_error: weighted_quantile(&relative, 0.5),
            median_abs_rel_error: weighted_quantile(&absolute, 0.5),
            p90_abs_rel_error: weighted_quantile(&absolute, 0.9),
            within_15_percent: per_response(close),
            median_abs_error_ns: weighted_quantile(&off, 0.5),
            truth_ns: per_response(known().map(|(truth, _, w)| truth * w).sum()),
            estimate_ns: per_response(known().map(|(_, found, w)| found * w).sum()),
        }
    }

    /// How much further off another way of estimating is: its median absolute relative error over
    /// this one's. More than 1: this one is closer.
    pub fn closer_than(&self, other: &Self) -> Option<f64> {
        Some(other.median_abs_rel_error? / self.median_abs_rel_error?.max(f64::EPSILON))
    }
}

/// Relative errors with the responses that they are of.
pub fn relative(paired: &[Paired]) -> Vec<(f64, f64)> {
    let error = |epoch: &Paired| {
        let off = epoch.response_ns - epoch.estimate_ns?;
        (epoch.response_ns > 0.0).then(|| (off / epoch.response_ns, epoch.responses as f64))
    };
    paired.iter().filter_map(error).collect()
}

/// For each of these moments (ns since 1970) at which the server's speed changed: how many slots of
/// `series` ended after it until one whose estimate is close to its truth, itself included. `None`
/// where the series, or the time until the next change, ends before.
pub fn slots_to_follow(series: &[Paired], changes: &[u64]) -> Vec<Option<usize>> {
    let until = |index: usize| changes.get(index + 1).copied().unwrap_or(u64::MAX);
    let follow = |(index, &change): (usize, &u64)| {
        let after = series
            .iter()
            .filter(|slot| slot.end_ns > change && slot.start_ns < until(index));
        let close = |slot: &Paired| {
            let off = slot.estimate_ns.map(|e| (slot.response_ns - e).abs());
            off.is_some_and(|off| off <= CLOSE * slot.response_ns)
        };
        let found = after.enumerate().find(|(_, slot)| close(slot));
        found.map(|(index, _)| index + 1)
    };
    changes.iter().enumerate().map(follow).collect()
}
