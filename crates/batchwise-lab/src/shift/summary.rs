//! What the runs say: batchwise against the better static arm over the whole run, and how long it
//! takes to be right after a change.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::Schedule;
use super::{Point, Steady};
use crate::arm::{self, Arm};
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::median;
use batchwise_testbed::load::{LoadInterval, LoadPhase};

/// Settled is who stays below this multiple of what can be reached.
const SETTLED: f64 = 1.25;
/// Intervals of which the median counts, so that one disturbed interval is no relapse.
const SMOOTHED: usize = 3;

/// A change of the load, and how long batchwise needed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Settle {
    /// The phase that begins with the change, from 0.
    pub phase: usize,
    pub better: Arm,
    /// Its mean latency there, alone, ns.
    pub reachable_ns: f64,
    /// Until batchwise stayed within 1.25 times that, seconds since the change: the median over
    /// the rounds. A round that never did counts with the whole phase.
    pub settle_s: f64,
    /// Rounds that never did.
    pub never: usize,
    pub rounds: usize,
}

/// One schedule.
#[derive(Debug, Serialize)]
pub struct ScheduleSummary {
    /// Mean latency of the better static arm over the whole run, over batchwise's: above 1,
    /// batchwise was better than both.
    pub vs_best_static: Option<f64>,
    /// Of 95 %.
    pub interval: Option<Ratio>,
    /// Whether batchwise was at least as good as the better static arm.
    pub verdict: Verdict,
    pub better: Option<Arm>,
    /// Mean latency over the whole run, median over rounds.
    pub mean_ns: BTreeMap<Arm, f64>,
    /// By change; only where the load is constant after it.
    pub settle: Vec<Settle>,
}

#[derive(Debug, Serialize)]
pub struct Summary {
    /// That of the schedule in which it is lower.
    pub vs_best_static: Option<f64>,
    /// Of 95 %.
    pub interval: Option<Ratio>,
    /// Whether batchwise was at least as good as the better static arm in every schedule.
    pub verdict: Verdict,
    /// The longest time from a change of the load until batchwise stayed, in intervals of 50 ms
    /// (the median of three), within 1.25 times the latency that the better static arm reaches
    /// alone at that load.
    pub worst_settle_s: Option<f64>,
    /// The median of these times over the changes.
    pub median_settle_s: Option<f64>,
    pub per_schedule: BTreeMap<&'static str, ScheduleSummary>,
}

impl Summary {
    pub fn of(points: &[Point], steady: &[Steady], schedules: &[Schedule]) -> Self {
        let one = |schedule: &Schedule| {
            let of_it = |p: &&Point| p.schedule == schedule.name;
            let points: Vec<_> = points.iter().filter(of_it).collect();
            let mut summary = whole_run(&points);
            summary.settle = settle(&points, steady, &schedule.phases);
            (schedule.name, summary)
        };
        let per_schedule: BTreeMap<_, _> = schedules.iter().map(one).collect();
        let all = || per_schedule.values();
        let ratios = all().filter_map(|s| s.interval);
        let interval = ratios.min_by(|a, b| a.median.total_cmp(&b.median));
        let settled = all().flat_map(|s| s.settle.iter().map(|c| c.settle_s));
        let settled: Vec<f64> = settled.collect();
        Self {
            median_settle_s: median(&settled),
            worst_settle_s: settled.into_iter().reduce(f64::max),
            vs_best_static: interval.map(|ratio| ratio.median),
            interval,
            verdict: Verdict::of_all(all().map(|s| s.verdict)),
            per_schedule,
        }
    }
}

fn whole_run(points: &[&Point]) -> ScheduleSummary {
    let mean_ns = arm::medians(points, |p| (p.arm, p.report.latency_ns.mean));
    let statics = Arm::STATIC
        .into_iter()
        .filter(|arm| mean_ns.contains_key(arm));
    let better = statics.min_by(|a, b| mean_ns[a].total_cmp(&mean_ns[b]));
    let mean = |p: &&Point| p.report.latency_ns.mean;
    let interval = better.and_then(|better| {
        let pairs = pairs(points, |p| (p.round, p.arm), better, Arm::Batchwise, mean);
        Ratio::of(&pairs)
    });
    ScheduleSummary {
        vs_best_static: interval.map(|ratio| ratio.median),
        verdict: Verdict::at_least(interval.as_ref(), 1.0),
        interval,
        better,
        mean_ns,
        settle: Vec::new(),
    }
}

/// The better static arm alone at the load of a phase, and its latency; `None` where both
/// collapse.
pub fn reachable(steady: &[Steady], phase: &LoadPhase) -> Option<(Arm, f64)> {
    let of = |arm: Arm| {
        let same =
            |s: &&Steady| (s.arm, s.rate, s.value_size) == (arm, phase.rate, phase.value_size);
        let latency = |s: &Steady| match s.saturated {
            true => f64::INFINITY,
            false => s.mean_ns,
        };
        let all: Vec<f64> = steady.iter().filter(same).map(latency).collect();
        Some((arm, median(&all)?))
    };
    let found = Arm::STATIC.into_iter().filter_map(of);
    found
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, latency)| latency.is_finite())
}

fn settle(points: &[&Point], steady: &[Steady], phases: &[LoadPhase]) -> Vec<Settle> {
    let of_phase = |(index, phase): (usize, &LoadPhase)| {
        let (better, reachable_ns) = reachable(steady, phase)?;
        let tuned = points.iter().filter(|p| p.arm == Arm::Batchwise);
        let settled = |p: &&Point| settled_after(&p.intervals, index, SETTLED * reachable_ns);
        let times: Vec<Option<f64>> = tuned.map(settled).collect();
        let whole = phase.duration.as_secs_f64();
        let seconds: Vec<f64> = times.iter().map(|t| t.unwrap_or(whole)).collect();
        Some(Settle {
            phase: index,
            better,
            reachable_ns,
            settle_s: median(&seconds)?,
            never: times.iter().filter(|t| t.is_none()).count(),
            rounds: times.len(),
        })
    };
    let changes = phases.iter().enumerate().skip(1);
    let constant = changes.filter(|(_, phase)| phase.climb_to.is_none());
    constant.filter_map(of_phase).collect()
}

/// Seconds from the begin of a phase until the latency stays at or below `limit` to its end;
/// `None` if it is above at the end.
pub(super) fn settled_after(intervals: &[LoadInterval], phase: usize, limit: f64) -> Option<f64> {
    let of_phase: Vec<_> = intervals.iter().filter(|i| i.phase == phase).collect();
    let first = of_phase.first()?;
    let begin = first.ts_ns.saturating_sub(first.interval_ns);
    let latency = |i: &&LoadInterval| i.mean_from_intended_ns.unwrap_or(f64::INFINITY);
    let latencies: Vec<f64> = of_phase.iter().map(latency).collect();
    let above = |at: &usize| {
        let window = &latencies[at.saturating_sub(SMOOTHED - 1)..=*at];
        // In the first intervals of a phase the median has fewer to choose from.
        median(window).is_some_and(|middle| middle > limit)
    };
    match (0..latencies.len()).rev().find(above) {
        None => Some(0.0),
        Some(last) if last + 1 == latencies.len() => None,
        Some(last) => Some(of_phase[last].ts_ns.saturating_sub(begin) as f64 / 1e9),
    }
}
