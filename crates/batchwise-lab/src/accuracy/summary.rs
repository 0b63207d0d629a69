//! How good the estimates were: relative errors below saturation, and whether estimates place the
//! load from which Nagle is worthwhile (the cutoff) where measurements do.

use std::collections::BTreeMap;

use batchwise_core::sense::report::{Estimator, Side, Unit};
use batchwise_testbed::window::EndEstimate;
use serde::Serialize;

use super::Point;
use super::plan::Cost;
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::ladder::{self, middle, per_workload};
use crate::stats::{MedianInterval, median, quantile};

/// Both ends, the preferred one first.
const BOTH: [Side; 2] = [Side::Client, Side::Server];

/// Errors of one end's estimates in one unit, over the points below saturation, and the cutoffs.
#[derive(Clone, Debug, Serialize)]
pub struct Errors {
    pub points: usize,
    /// Those of them without a two-sided estimate.
    pub missing: usize,
    /// Points that are missing because the generator did not trust its own numbers in any attempt.
    pub load_invalid: usize,
    /// Median of |estimate - truth| / truth over the points that have an estimate.
    pub median_abs_rel_error: Option<f64>,
    /// Its 95 % interval; `None` where fewer than [`ENOUGH_PAIRS`] points have an estimate, which
    /// decide nothing.
    pub median_abs_rel_error_interval: Option<[f64; 2]>,
    /// 90th percentile of the same.
    pub p90_abs_rel_error: Option<f64>,
    /// Median of (estimate - truth) / truth: which way it is off.
    pub median_signed_rel_error: Option<f64>,
    /// The load from which Nagle is measured to be better, requests a second.
    pub measured_cutoff_rps: Option<u64>,
    /// The load from which it is estimated to be.
    pub estimated_cutoff_rps: Option<u64>,
    /// Whether both are the same step, or there is neither.
    pub cutoff_matches: bool,
}

/// One workload.
#[derive(Debug, Serialize)]
pub struct WorkloadSummary {
    /// The headline: `sends`, from `end`.
    #[serde(flatten)]
    pub headline: Errors,
    /// The end that the headline and `by_unit` are from: the client's if it has any two-sided
    /// estimate.
    pub end: Side,
    /// `sends`, from each end.
    pub by_end: BTreeMap<Side, Errors>,
    /// Each unit, from `end`.
    pub by_unit: BTreeMap<Unit, Errors>,
    /// Each unit from each end.
    pub by_end_and_unit: BTreeMap<Side, BTreeMap<Unit, Errors>>,
}

/// What the client's end says of the whole latency, with any estimator, over the points below saturation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AtClient {
    pub points: usize,
    pub missing: usize,
    /// Share of those with an estimate that have a two-sided one.
    pub two_sided: Option<f64>,
    pub median_abs_rel_error: Option<f64>,
    pub median_abs_rel_error_interval: Option<[f64; 2]>,
    pub p90_abs_rel_error: Option<f64>,
    /// Share of the points whose truth is within 1.96 standard errors of the estimate.
    pub covered: Option<f64>,
    /// Of how many.
    pub with_stderr: usize,
    /// Median of (estimate - truth) / truth.
    pub median_signed_rel_error: Option<f64>,
    /// Median share of a point's time in which the host took no CPU away: all else is cut.
    pub undisturbed: Option<f64>,
}

/// The loads from which Nagle is better, of a workload at the default budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cutoffs {
    pub measured_rps: Option<u64>,
    pub estimated_rps: Option<u64>,
    pub matches: bool,
}

/// All workloads, by name.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// With everything counted.
    pub per_workload: BTreeMap<String, WorkloadSummary>,
    /// Share of all points, whatever the watchers may cost, whose truth the 95 % interval holds.
    pub covered: Option<f64>,
    pub by_cost: BTreeMap<Cost, AtClient>,
    pub at_budget: BTreeMap<String, AtClient>,
    pub cutoffs_at_budget: BTreeMap<String, Cutoffs>,
}

impl Summary {
    /// Of these points; invalid ones are only counted.
    pub fn of(points: &[Point], invalid: &[Point]) -> Self {
        let (budget, all): (Vec<_>, Vec<_>) =
            points.iter().cloned().partition(|p| p.cost == Cost::Budget);
        let (budget, all) = (&budget[..], &all[..]);
        let each = points.iter().collect::<Vec<_>>();
        let by_cost = [(Cost::Off, all), (Cost::Budget, budget)];
        Self {
            per_workload: per_workload(all, |points| WorkloadSummary::of(points, invalid)),
            covered: AtClient::of(&each).covered,
            by_cost: by_cost
                .map(|(cost, points)| (cost, AtClient::of(&points.iter().collect::<Vec<_>>())))
                .into(),
            at_budget: per_workload(budget, AtClient::of),
            cutoffs_at_budget: per_workload(budget, Cutoffs::of),
        }
    }
}

impl AtClient {
    fn of(points: &[&Point]) -> Self {
        let below: Vec<_> = points.iter().filter(|p| !p.saturated).collect();
        let found = |p: &&&Point| {
            let truth = p.truth_ns(Side::Client);
            let found = estimate(p, Side::Client, Unit::Sends)?;
            let off = found.total_ns? - truth;
            let within = found.total_stderr_ns.map(|error| off.abs() <= 1.96 * error);
            (truth > 0.0).then_some((off / truth, within, found.estimator))
        };
        let found: Vec<_> = below.iter().filter_map(found).collect();
        let signed: Vec<_> = found.iter().map(|(error, ..)| *error).collect();
        let errors: Vec<_> = signed.iter().map(|error| error.abs()).collect();
        let undisturbed = below
            .iter()
            .filter_map(|p| p.undisturbed.get(&Side::Client));
        let undisturbed: Vec<_> = undisturbed.map(|u| u.share).collect();
        let within: Vec<_> = found.iter().filter_map(|(_, within, _)| *within).collect();
        let share = |count: usize, of: usize| (of > 0).then(|| count as f64 / of as f64);
        let two_sided = found.iter().filter(|f| f.2 == Estimator::TwoSided).count();
        let interval = MedianInterval::of(&errors).filter(|_| errors.len() >= ENOUGH_PAIRS);
        Self {
            points: below.len(),
            missing: below.len() - found.len(),
            two_sided: share(two_sided, found.len()),
            median_abs_rel_error: median(&errors),
            median_abs_rel_error_interval: interval.map(|i| [i.low, i.high]),
            p90_abs_rel_error: quantile(&errors, 0.9),
            covered: share(within.iter().filter(|w| **w).count(), within.len()),
            with_stderr: within.len(),
            median_signed_rel_error: median(&signed),
            undisturbed: median(&undisturbed),
        }
    }
}

impl Cutoffs {
    /// As the client's end says, with any estimator.
    fn of(points: &[&Point]) -> Self {
        Self::by(points, Side::Client, |p| {
            estimate(p, Side::Client, Unit::Sends)?.total_ns
        })
    }

    fn by(points: &[&Point], end: Side, estimate: impl Fn(&Point) -> Option<f64>) -> Self {
        let collapsed = |p: &Point| p.saturated.then_some(f64::INFINITY);
        let measured_rps = cutoff(&arms(points, |p| collapsed(p).or(Some(p.truth_ns(end)))));
        let estimated_rps = cutoff(&arms(points, |p| estimate(p).or_else(|| collapsed(p))));
        Self {
            measured_rps,
            estimated_rps,
            matches: measured_rps == estimated_rps,
        }
    }
}

impl WorkloadSummary {
    fn of(points: &[&Point], invalid: &[Point]) -> Self {
        let same = |p: &&Point| points.iter().any(|point| point.workload == p.workload);
        let load_invalid = invalid.iter().filter(same).count();
        let errors = |end, unit| Errors {
            load_invalid,
            ..errors(points, end, unit)
        };
        let units = [Unit::Sends, Unit::Bytes, Unit::Packets];
        let by_unit = |end| units.map(|unit| (unit, errors(end, unit)));
        let all = BTreeMap::from(BOTH.map(|end| (end, BTreeMap::from(by_unit(end)))));
        let estimates = |p: &&Point, end| two_sided_total(p, end, Unit::Sends).is_some();
        let usable = |end: &Side| points.iter().any(|p| estimates(p, *end));
        let end = BOTH.into_iter().find(usable).unwrap_or(Side::Client);
        Self {
            headline: all[&end][&Unit::Sends].clone(),
            end,
            by_end: BTreeMap::from(BOTH.map(|e| (e, all[&e][&Unit::Sends].clone()))),
            by_unit: all[&end].clone(),
            by_end_and_unit: all,
        }
    }
}

/// What an end estimated at a point in a unit.
pub fn estimate(point: &Point, end: Side, unit: Unit) -> Option<&EndEstimate> {
    point.ends.get(&end)?.get(&unit)
}

/// The two-sided estimate of what the client feels, ns.
pub fn two_sided_total(point: &Point, end: Side, unit: Unit) -> Option<f64> {
    let found = estimate(point, end, unit)?;
    let is_two_sided = found.estimator == Estimator::TwoSided;
    found.total_ns.filter(|_| is_two_sided)
}

fn errors(points: &[&Point], end: Side, unit: Unit) -> Errors {
    let below: Vec<_> = points.iter().filter(|p| !p.saturated).collect();
    let error = |p: &&&Point| {
        let truth = p.truth_ns(end);
        let estimate = two_sided_total(p, end, unit)?;
        (truth > 0.0).then(|| (estimate - truth) / truth)
    };
    let signed: Vec<f64> = below.iter().filter_map(error).collect();
    let errors: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
    let interval = MedianInterval::of(&errors).filter(|_| errors.len() >= ENOUGH_PAIRS);
    let Cutoffs {
        measured_rps,
        estimated_rps,
        matches,
    } = Cutoffs::by(points, end, |p| two_sided_total(p, end, unit));
    Errors {
        points: below.len(),
        missing: below.len() - errors.len(),
        load_invalid: 0,
        median_abs_rel_error: median(&errors),
        median_abs_rel_error_interval: interval.map(|i| [i.low, i.high]),
        p90_abs_rel_error: quantile(&errors, 0.9),
        median_signed_rel_error: median(&signed),
        measured_cutoff_rps: measured_rps,
        estimated_cutoff_rps: estimated_rps,
        // Nothing was estimated: that there is no cutoff either is no match.
        cutoff_matches: !errors.is_empty() && matches,
    }
}

/// Mean latency of both arms at a load step; infinite where an arm has collapsed, `None` where it
/// is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arms {
    pub step_rps: u64,
    /// With Nagle, ns.
    pub nagle: Option<f64>,
    /// With TCP_NODELAY, ns.
    pub nodelay: Option<f64>,
}

/// The median over repeats of `latency`, by step and arm. A repeat whose ladder had ended below a
/// step counts as infinite there.
pub fn arms(points: &[&Point], latency: impl Fn(&Point) -> Option<f64>) -> Vec<Arms> {
    let of_arm = |step: u64, nodelay: bool| {
        let arm = points.iter().copied().filter(|p| p.nodelay == nodelay);
        middle(&ladder::by_repeat(arm, step, &latency, f64::INFINITY))
    };
    let arms = |step_rps| Arms {
        step_rps,
        nagle: of_arm(step_rps, false),
        nodelay: of_arm(step_rps, true),
    };
    ladder::steps(points).into_iter().map(arms).collect()
}

/// The lowest step from which on Nagle is better at every step. Steps at which both arms have
/// collapsed say nothing; a step at which an arm is not known does not count as better.
pub fn cutoff(arms: &[Arms]) -> Option<u64> {
    let mut found = None;
    for at in arms.iter().rev() {
        match (at.nagle, at.nodelay) {
            (Some(nagle), Some(nodelay)) if nagle.is_infinite() && nodelay.is_infinite() => {}
            (Some(nagle), Some(nodelay)) if nagle < nodelay => found = Some(at.step_rps),
            _ => break,
        }
    }
    found
}
