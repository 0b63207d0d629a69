//! What the points say.

use std::collections::BTreeMap;

use batchwise_core::profile::Component;
use serde::Serialize;

use super::published::{Beside, beside};
use super::{Arm, End, Pattern, Point};
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

/// By component: the median over rounds, the lowest and the highest.
pub type Shares = BTreeMap<Component, [f64; 3]>;

/// A pattern. Shares: the median over rounds, the lowest and the highest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub pattern: Pattern,
    pub bytes_per_s: f64,
    /// Gbit/s over the CPUs' worth of time at the busier end: the median over rounds, the lowest and the highest.
    pub gbit_per_core: [f64; 3],
    pub sender: Shares,
    pub receiver: Shares,
    /// The worse end's.
    pub unclassified: f64,
    /// How far a share is from its median, at most.
    pub spread: f64,
}

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

fn highest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
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

impl Compared {
    fn of(points: &[Point], pattern: Pattern) -> Self {
        let points: Vec<_> = points
            .iter()
            .filter(|p| p.arm == Arm::Pattern(pattern))
            .collect();
        let senders: Vec<_> = points.iter().filter_map(|p| p.sender.as_ref()).collect();
        let receivers: Vec<_> = points.iter().filter_map(|p| p.receiver.as_ref()).collect();
        let (sender, receiver) = (shares(&senders), shares(&receivers));
        let middle = |of: &dyn Fn(&Point) -> f64| {
            median(&points.iter().map(|p| of(p)).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let busiest = |p: &Point| {
            let ends = p.sender.iter().chain(&p.receiver);
            highest(ends.map(|end| end.busy)).unwrap_or(f64::NAN)
        };
        let both = || sender.iter().chain(&receiver);
        let unknown = both().filter(|(c, _)| **c == Component::Unclassified);
        let far = |[share, low, high]: &[f64; 3]| (share - low).max(high - share);
        Self {
            pattern,
            bytes_per_s: middle(&|p| p.bytes_per_s),
            gbit_per_core: spread_of(points.iter().map(|p| p.bytes_per_s * 8e-9 / busiest(p)))
                .unwrap_or([f64::NAN; 3]),
            unclassified: highest(unknown.map(|(_, [.., high])| *high)).unwrap_or(f64::NAN),
            spread: highest(both().map(|(_, share)| far(share))).unwrap_or(f64::NAN),
            sender,
            receiver,
        }
    }
}

fn shares(ends: &[&End]) -> Shares {
    let share = |component: Component| {
        let of_ends = ends
            .iter()
            .filter_map(|end| end.shares.get(&component).copied());
        Some((component, spread_of(of_ends)?))
    };
    Component::ALL.into_iter().filter_map(share).collect()
}

/// The median, the lowest and the highest.
fn spread_of(values: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let all: Vec<_> = values.collect();
    let low = all.iter().copied().reduce(f64::min)?;
    let high = all.iter().copied().reduce(f64::max)?;
    Some([median(&all)?, low, high])
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
