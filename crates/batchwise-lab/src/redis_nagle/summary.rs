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

/// How much worse than the better static arm batchwise may be, …
const BAR: f64 = 1.05;
/// … and than the application's own setting, its learning included.
const OWN_BAR: f64 = 1.02;

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
    /// Highest ratio of batchwise's latency to the better static arm's, over the loads that this one
    /// carries.
    pub worst_vs_best_arm: Option<f64>,
    /// Loads at which that ratio is at most 1.05, is not, and where it is not known.
    pub points_met: usize,
    pub points_missed: usize,
    pub points_undecided: usize,
    /// Whether it is at most 1.05 at each load at which the better static arm is under the SLO, …
    pub worst_verdict: Verdict,
    /// … and over the repeats of all these loads.
    pub vs_best_arm: Option<Ratio>,
    pub vs_best_arm_verdict: Verdict,
    /// Where it is worst, …
    pub worst_point: Option<Worst>,
    /// … and where it is worst of the loads at which no static arm is under the SLO.
    pub worst_beyond_slo: Option<Worst>,
    /// Lowest ratio of batchwise's throughput to the better static arm's.
    pub worst_throughput: Option<Worst>,
    /// Highest ratio of batchwise's latency from the first request on to TCP_NODELAY's, over all loads.
    pub worst_vs_own: Option<f64>,
    /// Loads at which that ratio is at most 1.02, is not, and where it is not known.
    pub own_met: usize,
    pub own_missed: usize,
    pub own_undecided: usize,
    /// Where that is worst of the loads at which TCP_NODELAY is under the SLO.
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
    /// The static arm with the lower latency, if one carries the load.
    pub better: Option<Arm>,
    /// Batchwise's latency over that arm's: the median, …
    pub ratio: Option<f64>,
    /// … with its interval, and whether it is at most 1.05.
    pub vs_better: Option<Ratio>,
    pub vs_better_verdict: Verdict,
    /// Its latency from the first request on over TCP_NODELAY's, and whether it is at most 1.02.
    pub vs_own: Option<Ratio>,
    pub vs_own_verdict: Verdict,
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
    let steps: Vec<_> = ladder::steps(points)
        .into_iter()
        .map(|step_rps| step(points, step_rps))
        .collect();
    let count = |of: fn(&StepSummary) -> Option<Verdict>, wanted| {
        let verdicts = steps.iter().filter_map(of);
        verdicts.filter(|verdict| *verdict == wanted).count()
    };
    let vs_better = |s: &StepSummary| s.better.map(|_| s.vs_better_verdict);
    let vs_own = |s: &StepSummary| Some(s.vs_own_verdict);
    let worst = |of: fn(&StepSummary) -> Option<Ratio>| {
        let medians = steps.iter().filter_map(|s| Some(of(s)?.median));
        medians.max_by(f64::total_cmp)
    };
    let mut summary = WorkloadSummary {
        worst_vs_best_arm: worst(|s| s.vs_better),
        points_met: count(vs_better, Verdict::Met),
        points_missed: count(vs_better, Verdict::Missed),
        points_undecided: count(vs_better, Verdict::Undecided),
        worst_vs_own: worst(|s| s.vs_own),
        own_met: count(vs_own, Verdict::Met),
        own_missed: count(vs_own, Verdict::Missed),
        own_undecided: count(vs_own, Verdict::Undecided),
        ..WorkloadSummary::default()
    };
    summary.find_worst(points, &steps);
    for arm in Arm::ALL {
        let holds = |s: &&StepSummary| s.latency_ns.get(&arm).is_some_and(|l| l.median < SLO_NS);
        let highest = steps.iter().filter(holds).map(|s| s.step_rps).max();
        let highest = highest.map(|rps| (arm, rps));
        summary.highest_under_slo_rps.extend(highest);
    }
    summary.steps = steps;
    summary.compare_with_default(points);
    summary
}

fn step(points: &[&Point], step_rps: u64) -> StepSummary {
    let latency = BTreeMap::from(Arm::ALL.map(|arm| (arm, latency(points, arm, step_rps))));
    let medians = latency.iter();
    let medians = medians.filter_map(|(&arm, of)| Some((arm, middle(of)?)));
    let better = better(&medians.collect());
    let compared =
        better.and_then(|arm| ladder::compare(&latency[&Arm::Batchwise], &latency[&arm]));
    let vs_better = compared.and_then(|(_, interval)| interval);
    let whole = |arm| {
        let whole = |p: &Point| Some(p.whole());
        by_repeat(points, arm, step_rps, whole, f64::INFINITY)
    };
    let vs_own = ladder::compare(&whole(Arm::Batchwise), &whole(Arm::Nodelay));
    let vs_own = vs_own.and_then(|(_, interval)| interval);
    let values = |of: &Repeats| of.values().copied().collect::<Vec<_>>();
    let spread = |(&arm, of): (&Arm, &Repeats)| Some((arm, Spread::of(&values(of))?));
    StepSummary {
        step_rps,
        latency_ns: latency.iter().filter_map(spread).collect(),
        better,
        ratio: compared.map(|(ratio, _)| ratio),
        vs_better,
        vs_better_verdict: Verdict::at_most(vs_better.as_ref(), BAR),
        vs_own,
        vs_own_verdict: Verdict::at_most(vs_own.as_ref(), OWN_BAR),
    }
}

impl WorkloadSummary {
    fn find_worst(&mut self, points: &[&Point], steps: &[StepSummary]) {
        let (mut under_slo, mut all_pairs) = (Vec::new(), Vec::new());
        for step in steps {
            let rps = step.step_rps;
            let holds = |arm| step.latency_ns.get(&arm).is_some_and(|l| l.median < SLO_NS);
            let at = |against, ratio, interval| Worst {
                ratio,
                interval,
                step_rps: rps,
                against,
            };
            if let Some((arm, ratio)) = step.better.zip(step.ratio) {
                let worst = match holds(arm) {
                    true => {
                        let [tuned, best] = [Arm::Batchwise, arm].map(|a| latency(points, a, rps));
                        under_slo.push(step.vs_better_verdict);
                        all_pairs.extend(ladder::pairs(&tuned, &best));
                        &mut self.worst_point
                    }
                    false => &mut self.worst_beyond_slo,
                };
                keep(worst, at(arm, ratio, step.vs_better), |new, old| new > old);
                let carried =
                    |arm| by_repeat(points, arm, rps, |p| Some(p.window.achieved_rps), 0.0);
                let found = ladder::compare(&carried(Arm::Batchwise), &carried(arm));
                if let Some((ratio, interval)) = found {
                    let worst = &mut self.worst_throughput;
                    keep(worst, at(arm, ratio, interval), |new, old| new < old);
                }
            }
            if let Some(ratio) = step.vs_own.filter(|_| holds(Arm::Nodelay)) {
                let worst = at(Arm::Nodelay, ratio.median, Some(ratio));
                keep(&mut self.worst_learning, worst, |new, old| new > old);
            }
        }
        self.worst_verdict = Verdict::of_all(under_slo);
        self.vs_best_arm = Ratio::of(&all_pairs);
        self.vs_best_arm_verdict = Verdict::at_most(self.vs_best_arm.as_ref(), BAR);
    }

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

fn keep(worst: &mut Option<Worst>, new: Worst, is_worse: impl Fn(f64, f64) -> bool) {
    if worst.is_none_or(|old| is_worse(new.ratio, old.ratio)) {
        *worst = Some(new);
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
