//! What the points say.

use std::collections::BTreeMap;

use serde::Serialize;

use super::compared::{Compared, highest};
use super::published::{Beside, beside};
use super::{Arm, Pattern, Point};
use crate::engine::{Ratio, Verdict};
use crate::stats::median;

/// The share of which nothing is known, at most, …
const UNCLASSIFIED: f64 = 0.05;
/// … what profiling may cost, …
const OVERHEAD: f64 = 0.01;
/// … how far shares may be from their median, …
const SPREAD: f64 = 0.02;
/// … and from those of perf.
const PERF: f64 = 0.015;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The share of which nothing is known, in the worst pattern; whether that is at most 5 %.
    pub unclassified: Option<f64>,
    pub unclassified_verdict: Verdict,
    /// What profiling costs: 1 less the bytes carried with a profiler over those without.
    pub overhead: Option<f64>,
    /// Bytes carried with a profiler over those without.
    pub overhead_interval: Option<Ratio>,
    /// Whether the overhead is at most 1 %.
    pub overhead_verdict: Verdict,
    /// How far a share is from its pattern's median, at most; whether that is at most 2 points.
    pub spread: Option<f64>,
    pub spread_verdict: Verdict,
    /// How far the share of one of the hottest functions is from that of `perf`, at most; whether that is at most
    /// 1.5 points.
    pub perf_difference: Option<f64>,
    pub perf_verdict: Verdict,
    /// Samples that were lost.
    pub lost: u64,
    pub patterns: Vec<Compared>,
    /// Beside what was published.
    pub published: Vec<Beside>,
    /// Name, our share, that of `perf`: medians over rounds.
    pub functions: Vec<(String, f64, f64)>,
}

/// A bar for what has no interval.
fn at_most(value: Option<f64>, bar: f64) -> Verdict {
    match value {
        None => Verdict::Undecided,
        Some(value) if value <= bar => Verdict::Met,
        Some(_) => Verdict::Missed,
    }
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let there = |pattern: &Pattern| points.iter().any(|p| p.arm == Arm::Pattern(*pattern));
        let patterns = Pattern::ALL.into_iter().filter(there);
        let patterns: Vec<_> = patterns
            .map(|pattern| Compared::of(points, pattern))
            .collect();
        let slices: Vec<_> = points.iter().flat_map(|p| &p.slices).copied().collect();
        let overhead = Ratio::of(&slices);
        let functions = functions(points);
        let unclassified = highest(patterns.iter().map(|c| c.unclassified));
        let spread = highest(patterns.iter().map(|c| c.spread));
        let perf = highest(
            functions
                .iter()
                .map(|(_, ours, theirs)| (ours - theirs).abs()),
        );
        let ends = points
            .iter()
            .flat_map(|p| p.sender.iter().chain(&p.receiver));
        Self {
            unclassified_verdict: at_most(unclassified, UNCLASSIFIED),
            unclassified,
            overhead: overhead.as_ref().map(|ratio| 1.0 - ratio.median),
            overhead_verdict: Verdict::at_least(overhead.as_ref(), 1.0 - OVERHEAD),
            overhead_interval: overhead,
            spread_verdict: at_most(spread, SPREAD),
            spread,
            perf_verdict: at_most(perf, PERF),
            perf_difference: perf,
            lost: ends.map(|end| end.lost).sum(),
            published: beside(&patterns),
            patterns,
            functions,
        }
    }
}

fn functions(points: &[Point]) -> Vec<(String, f64, f64)> {
    let mut all: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (name, ours, theirs) in points.iter().flat_map(|p| &p.functions) {
        let (all_ours, all_theirs) = all.entry(name).or_default();
        all_ours.push(*ours);
        all_theirs.push(*theirs);
    }
    let middle = |(name, (ours, theirs)): (&str, (Vec<f64>, Vec<f64>))| {
        Some((name.to_owned(), median(&ours)?, median(&theirs)?))
    };
    let mut functions: Vec<_> = all.into_iter().filter_map(middle).collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    functions
}
