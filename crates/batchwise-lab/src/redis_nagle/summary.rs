//! What the points say: how far each arm keeps the SLO, and how batchwise compares with the
//! default and with the better static arm, point by point.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Point;
use crate::arm::Arm;
use crate::engine::{Ratio, Verdict};
use crate::ladder::{self, Repeats, middle, per_workload};
use crate::stats::Spread;
use crate::tuner::SLO;

const SLO_NS: f64 = SLO.as_nanos() as f64;

/// The two figures of the paper's abstract.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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

impl Default for Ratios {
    fn default() -> Self {
        PAPER
    }
}

/// How much worse than the better static arm batchwise may be.
const BAR: f64 = 1.05;

/// A load step at which something was worst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    pub ratio: f64,
    pub interval: Option<Ratio>,
    pub step_rps: u64,
    /// The arm that batchwise was compared with.
    pub against: Arm,
}

/// One workload. Latencies are means from the intended send time; where repeats are combined, the
/// median counts, and ratios are medians of the repeats' own ratios. Intervals are of 95 %.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkloadSummary {
    /// Highest load under the SLO with batchwise over that with TCP_NODELAY.
    pub range_ratio: Option<f64>,
    pub range_interval: Option<Ratio>,
    /// Whether that load is at least as high.
    pub range_verdict: Verdict,
    /// Batchwise was under the SLO at the highest load that was offered: the ratio is a lower
    /// bound.
    pub range_is_lower_bound: bool,
    /// At the highest load at which TCP_NODELAY is under the SLO: its latency over batchwise's.
    pub latency_ratio: Option<f64>,
    pub latency_interval: Option<Ratio>,
    /// Whether batchwise's latency is at most TCP_NODELAY's.
    pub latency_verdict: Verdict,
    /// Highest ratio of batchwise's latency to the better static arm's, over the loads at which
    /// that one is under the SLO.
    pub worst_vs_best_arm: Option<f64>,
    /// Whether the ratio is at most 1.05 at every one of these loads.
    pub worst_verdict: Verdict,
    /// The same ratio over the repeats of all these loads, with its 95 % interval.
    pub vs_best_arm: Option<Ratio>,
    /// Whether it is at most 1.05.
    pub vs_best_arm_verdict: Verdict,
    /// Where the ratio is worst.
    pub worst_point: Option<Worst>,
    /// The same over the loads at which no static arm is under the SLO but one has not collapsed.
    pub worst_beyond_slo: Option<Worst>,
    /// Lowest ratio of batchwise's throughput to the better static arm's.
    pub worst_throughput: Option<Worst>,
    /// Highest ratio of the latency of batchwise's learning phase to TCP_NODELAY's, over the loads
    /// at which TCP_NODELAY is under the SLO.
    pub worst_learning: Option<Worst>,
    /// Highest load under the SLO.
    pub highest_under_slo_rps: BTreeMap<Arm, u64>,
    /// Medians and spread by load.
    pub steps: Vec<StepSummary>,
}

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    pub step_rps: u64,
    /// Latency, ns, by arm; infinite (null in JSON) where it collapsed.
    pub latency_ns: BTreeMap<Arm, Spread>,
    /// The static arm with the lower latency.
    pub better: Option<Arm>,
    /// Batchwise's latency over that arm's.
    pub ratio: Option<f64>,
}

/// All workloads, by name.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub per_workload: BTreeMap<String, WorkloadSummary>,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        Self {
            per_workload: per_workload(points, workload),
        }
    }
}

fn workload(points: &[&Point]) -> WorkloadSummary {
    let mut summary = WorkloadSummary::default();
    let (mut under_slo, mut all_pairs) = (Vec::new(), Vec::new());
    for step_rps in ladder::steps(points) {
        let latency = Arm::ALL.map(|arm| (arm, latency(points, arm, step_rps)));
        let latency = BTreeMap::from(latency);
        let medians = latency.iter();
        let medians = medians.filter_map(|(&arm, of)| Some((arm, middle(of)?)));
        let medians: BTreeMap<Arm, f64> = medians.collect();
        let holds = |arm| medians.get(&arm).is_some_and(|&ns| ns < SLO_NS);
        for arm in Arm::ALL.into_iter().filter(|&arm| holds(arm)) {
            summary.highest_under_slo_rps.insert(arm, step_rps);
        }
        let at = |against, (ratio, interval)| Worst {
            ratio,
            interval,
            step_rps,
            against,
        };
        let tuned = &latency[&Arm::Batchwise];
        let better = better(&medians);
        let compared = better.and_then(|arm| ladder::compare(tuned, &latency[&arm]));
        if let Some((arm, found)) = better.zip(compared) {
            let worst = match holds(arm) {
                true => {
                    under_slo.push(Verdict::at_most(found.1.as_ref(), BAR));
                    all_pairs.extend(ladder::pairs(tuned, &latency[&arm]));
                    &mut summary.worst_point
                }
                false => &mut summary.worst_beyond_slo,
            };
            keep(worst, at(arm, found), |new, old| new > old);
            let carried =
                |arm| by_repeat(points, arm, step_rps, |p| Some(p.window.achieved_rps), 0.0);
            if let Some(found) = ladder::compare(&carried(Arm::Batchwise), &carried(arm)) {
                let worst = &mut summary.worst_throughput;
                keep(worst, at(arm, found), |new, old| new < old);
            }
        }
        let learning = |p: &Point| Some(p.learning.as_ref()?.latency_ns.mean);
        let learning = by_repeat(points, Arm::Batchwise, step_rps, learning, f64::INFINITY);
        let found = ladder::compare(&learning, &latency[&Arm::Nodelay]);
        if let Some(found) = found.filter(|_| holds(Arm::Nodelay)) {
            let worst = &mut summary.worst_learning;
            keep(worst, at(Arm::Nodelay, found), |new, old| new > old);
        }
        let values = |of: &Repeats| of.values().copied().collect::<Vec<_>>();
        let spread = |(&arm, of): (&Arm, &Repeats)| Some((arm, Spread::of(&values(of))?));
        summary.steps.push(StepSummary {
            step_rps,
            latency_ns: latency.iter().filter_map(spread).collect(),
            better,
            ratio: compared.map(|(ratio, _)| ratio),
        });
    }
    summary.worst_vs_best_arm = summary.worst_point.map(|worst| worst.ratio);
    summary.worst_verdict = Verdict::of_all(under_slo);
    summary.vs_best_arm = Ratio::of(&all_pairs);
    summary.vs_best_arm_verdict = Verdict::at_most(summary.vs_best_arm.as_ref(), BAR);
    summary.compare_with_default(points);
    summary
}

impl WorkloadSummary {
    fn compare_with_default(&mut self, points: &[&Point]) {
        let highest = |arm| self.highest_under_slo_rps.get(&arm).copied();
        let Some(default) = highest(Arm::Nodelay) else {
            return;
        };
        let tuned = highest(Arm::Batchwise);
        let [range, of_default] = [Arm::Batchwise, Arm::Nodelay].map(|arm| range(points, arm));
        self.range_ratio = tuned.map(|tuned| tuned as f64 / default as f64);
        self.range_interval = Ratio::of(&ladder::pairs(&range, &of_default));
        self.range_verdict = Verdict::at_least(self.range_interval.as_ref(), 1.0);
        self.range_is_lower_bound = tuned == ladder::steps(points).last().copied();
        let [nodelay, tuned] =
            [Arm::Nodelay, Arm::Batchwise].map(|arm| latency(points, arm, default));
        if let Some((ratio, interval)) = ladder::compare(&nodelay, &tuned) {
            (self.latency_ratio, self.latency_interval) = (Some(ratio), interval);
        }
        self.latency_verdict = Verdict::at_least(self.latency_interval.as_ref(), 1.0);
    }
}

/// The highest load under the SLO in each repeat.
fn range(points: &[&Point], arm: Arm) -> Repeats {
    let mut highest = Repeats::new();
    for step in ladder::steps(points) {
        for (repeat, ns) in latency(points, arm, step) {
            if ns < SLO_NS {
                highest.insert(repeat, step as f64);
            }
        }
    }
    highest
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

fn latency(points: &[&Point], arm: Arm, step: u64) -> Repeats {
    by_repeat(points, arm, step, |p| Some(p.latency()), f64::INFINITY)
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

fn keep(worst: &mut Option<Worst>, new: Worst, is_worse: impl Fn(f64, f64) -> bool) {
    if worst.is_none_or(|old| is_worse(new.ratio, old.ratio)) {
        *worst = Some(new);
    }
}
