//! What the points say: how far each arm keeps the SLO, and how batchwise compares with the
//! default and with the better static arm, point by point.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Point;
use crate::arm::Arm;
use crate::ladder::{self, Repeats, middle, per_workload};
use crate::stats::{Spread, median};
use crate::tuner::SLO;

/// The two figures of the paper's abstract.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratios {
    /// Highest load under the SLO over that of Redis's default.
    pub range_ratio: f64,
    /// Latency of Redis's default, at its highest load under the SLO, over this one's.
    pub latency_ratio: f64,
}

/// What the paper computed from two static runs (its §4, 16 KiB SETs; nothing was toggled live).
pub const PAPER: Ratios = Ratios {
    range_ratio: 1.93,
    latency_ratio: 2.80,
};

/// A load step at which something was worst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The ratio there.
    pub ratio: f64,
    /// Requests a second.
    pub step_rps: u64,
    /// The arm that batchwise was compared with.
    pub against: Arm,
}

/// One workload. Latencies are means from the intended send time; where repeats are combined, the
/// median counts, and ratios are medians of the repeats' own ratios.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkloadSummary {
    /// Highest load under the SLO with batchwise over that with TCP_NODELAY.
    pub range_ratio: Option<f64>,
    /// Batchwise was under the SLO at the highest load that was offered: the ratio is a lower
    /// bound.
    pub range_is_lower_bound: bool,
    /// At the highest load at which TCP_NODELAY is under the SLO: its latency over batchwise's.
    pub latency_ratio: Option<f64>,
    /// Highest ratio of batchwise's latency to the better static arm's, over the loads at which
    /// that one is under the SLO.
    pub worst_vs_best_arm: Option<f64>,
    /// Where that is.
    pub worst_point: Option<Worst>,
    /// The same over the loads at which no static arm is under the SLO but one has not collapsed.
    pub worst_beyond_slo: Option<Worst>,
    /// Lowest ratio of batchwise's throughput to the better static arm's.
    pub worst_throughput: Option<Worst>,
    /// Highest ratio of the latency of batchwise's learning phase to TCP_NODELAY's, over the loads
    /// at which TCP_NODELAY is under the SLO.
    pub worst_learning: Option<Worst>,
    /// Highest load under the SLO, by arm, requests a second.
    pub highest_under_slo_rps: BTreeMap<Arm, u64>,
    /// Medians and spread by load.
    pub steps: Vec<StepSummary>,
}

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// Requests a second.
    pub step_rps: u64,
    /// Latency, ns, by arm; infinite (null in JSON) where it collapsed.
    pub latency_ns: BTreeMap<Arm, Spread>,
    /// The static arm with the lower latency.
    pub better: Option<Arm>,
    /// Batchwise's latency over that arm's.
    pub ratio: Option<f64>,
}

/// All workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// By name.
    pub per_workload: BTreeMap<&'static str, WorkloadSummary>,
}

impl Summary {
    /// Of these points.
    pub fn of(points: &[Point]) -> Self {
        Self {
            per_workload: per_workload(points, workload),
        }
    }
}

fn workload(points: &[&Point]) -> WorkloadSummary {
    let steps = ladder::steps(points);
    let mut summary = WorkloadSummary::default();
    for &step in &steps {
        let latency = |arm| by_repeat(points, arm, step, |p| Some(p.latency()), f64::INFINITY);
        let by_arm = Arm::ALL.map(|arm| (arm, latency(arm)));
        let medians = by_arm
            .iter()
            .filter_map(|(arm, of)| Some((*arm, middle(of)?)));
        let medians: BTreeMap<Arm, f64> = medians.collect();
        for (&arm, &latency) in &medians {
            if latency < SLO.as_nanos() as f64 {
                summary.highest_under_slo_rps.insert(arm, step);
            }
        }
        let better = better(&medians);
        let tuned = latency(Arm::Batchwise);
        let ratio = better.and_then(|arm| paired(&tuned, &latency(arm)));
        if let Some((against, ratio)) = better.zip(ratio) {
            let at = Worst {
                ratio,
                step_rps: step,
                against,
            };
            let under_slo = medians[&against] < SLO.as_nanos() as f64;
            let worst = match under_slo {
                true => &mut summary.worst_point,
                false => &mut summary.worst_beyond_slo,
            };
            keep(worst, at, |new, old| new > old);
            let carried = |arm| by_repeat(points, arm, step, |p| Some(p.window.achieved_rps), 0.0);
            if let Some(ratio) = paired(&carried(Arm::Batchwise), &carried(against)) {
                let at = Worst { ratio, ..at };
                keep(&mut summary.worst_throughput, at, |new, old| new < old);
            }
        }
        let default_holds = medians
            .get(&Arm::Nodelay)
            .is_some_and(|&ns| ns < SLO.as_nanos() as f64);
        let learning = |p: &Point| Some(p.learning.as_ref()?.latency_ns.mean);
        let learning = by_repeat(points, Arm::Batchwise, step, learning, f64::INFINITY);
        if let Some(ratio) = paired(&learning, &latency(Arm::Nodelay)).filter(|_| default_holds) {
            let at = Worst {
                ratio,
                step_rps: step,
                against: Arm::Nodelay,
            };
            keep(&mut summary.worst_learning, at, |new, old| new > old);
        }
        let spread = |(arm, of): &(Arm, Repeats)| {
            let values: Vec<f64> = of.values().copied().collect();
            Some((*arm, Spread::of(&values)?))
        };
        summary.steps.push(StepSummary {
            step_rps: step,
            latency_ns: by_arm.iter().filter_map(spread).collect(),
            better,
            ratio,
        });
    }
    summary.worst_vs_best_arm = summary.worst_point.map(|worst| worst.ratio);
    let highest = |arm| summary.highest_under_slo_rps.get(&arm).copied();
    if let Some(default) = highest(Arm::Nodelay) {
        let tuned = highest(Arm::Batchwise);
        summary.range_ratio = tuned.map(|tuned| tuned as f64 / default as f64);
        summary.range_is_lower_bound = tuned == steps.last().copied();
        let latency = |arm| by_repeat(points, arm, default, |p| Some(p.latency()), f64::INFINITY);
        summary.latency_ratio = paired(&latency(Arm::Nodelay), &latency(Arm::Batchwise));
    }
    summary
}

/// The better of the static arms, unless both have collapsed or one is not known.
fn better(medians: &BTreeMap<Arm, f64>) -> Option<Arm> {
    let (nodelay, nagle) = (*medians.get(&Arm::Nodelay)?, *medians.get(&Arm::Nagle)?);
    match nodelay.is_infinite() && nagle.is_infinite() {
        true => None,
        false if nagle < nodelay => Some(Arm::Nagle),
        false => Some(Arm::Nodelay),
    }
}

/// A value of an arm at a step, by repeat; see [`ladder::by_repeat`].
fn by_repeat(
    points: &[&Point],
    arm: Arm,
    step: u64,
    value: impl Fn(&Point) -> Option<f64>,
    collapsed: f64,
) -> Repeats {
    let of_arm = points.iter().copied().filter(|p| p.arm == arm);
    ladder::by_repeat(of_arm, step, value, collapsed)
}

/// The median of the ratios within repeats.
fn paired(above: &Repeats, below: &Repeats) -> Option<f64> {
    let ratio = |(repeat, &above): (&u32, &f64)| {
        let below = below.get(repeat).copied()?;
        // Two collapses cannot be told apart.
        (below > 0.0 && (above.is_finite() || below.is_finite())).then(|| above / below)
    };
    median(&above.iter().filter_map(ratio).collect::<Vec<_>>())
}

fn keep(worst: &mut Option<Worst>, new: Worst, is_worse: impl Fn(f64, f64) -> bool) {
    if worst.is_none_or(|old| is_worse(new.ratio, old.ratio)) {
        *worst = Some(new);
    }
}

#[cfg(test)]
pub(super) mod tests;
