//! Experiment `redis-nagle`, the paper's Figure 4 with the decision taken live: both static
//! settings, and batchwise tuning, mostly at the client alone, from light load to collapse.

mod figures;
mod plan;
mod summary;
#[cfg(test)]
mod tests;

use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::sense::report::Side;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::stalls::{Gap, Monitor};
use crate::engine::text::{duration, percent};
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Turn};
use crate::ladder::{OnLadder, Rung, Workload};
use crate::redis::{Redis, steady};
use crate::tuner::{SLO_POLICY, Tuners, nagle_share};
use batchwise_testbed::load::{LoadInterval, LoadSpec, PhaseReport};
use plan::{LEARNING, REPEATS, WORKLOADS, measured};
use summary::Summary;

pub(crate) struct RedisNagle;

/// What the load reports in one piece, and what is left out for a stall.
const INTERVAL: Duration = Duration::from_millis(20);

/// One measured point: a connection of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    workload: String,
    arm: Arm,
    step_rps: u64,
    repeat: u32,
    /// 0, or 1 for the second measurement that a saturated point gets.
    attempt: u32,
    saturated: bool,
    /// The second phase.
    #[serde(flatten)]
    window: PhaseReport,
    /// Mean latency in it from the intended send time, ns, without intervals that a stall of the machine
    /// disturbed; infinite where nothing was answered.
    #[serde(deserialize_with = "crate::engine::float")]
    mean_ns: f64,
    /// The same from the first request on: what learning costs is in it.
    #[serde(deserialize_with = "crate::engine::float")]
    whole_ns: f64,
    /// The share of the time that was left out for stalls.
    cut: f64,
    /// With batchwise: for how much of the second phase Nagle's algorithm worked at the client.
    nagle_share: Option<f64>,
}

impl Point {
    /// Mean latency, ns; infinite after a collapse.
    fn latency(&self) -> f64 {
        match self.saturated {
            true => f64::INFINITY,
            false => self.mean_ns,
        }
    }

    /// The same of both phases.
    fn whole(&self) -> f64 {
        match self.saturated {
            true => f64::INFINITY,
            false => self.whole_ns,
        }
    }
}

/// Fields beside the points.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct More {
    paper: summary::Ratios,
}

/// A step of a ladder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    workload: &'static Workload,
    arm: Arm,
    rps: u64,
    repeat: u32,
}

impl Experiment for RedisNagle {
    type Stage = Redis;
    type Arm = Step;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "redis-nagle"
    }

    fn about(&self) -> &'static str {
        "latency over load with TCP_NODELAY, Nagle, and batchwise tuning live (Figure 4)"
    }

    /// Each repeat climbs each workload's loads; at each load all arms follow each other in random order.
    fn rounds(&self, quick: bool) -> Result<Vec<Round<Step>>> {
        let mut arms = arm::chosen()?;
        let mut rng = StdRng::seed_from_u64(1);
        let mut rounds = Vec::new();
        for repeat in 0..REPEATS {
            for workload in WORKLOADS.iter().filter(|w| !w.steps(quick).is_empty()) {
                let mut steps = Vec::new();
                for &rps in workload.steps(quick) {
                    arms.shuffle(&mut rng);
                    steps.extend(arms.iter().map(|&arm| Step {
                        workload,
                        arm,
                        rps,
                        repeat,
                    }));
                }
                rounds.push(Round::in_order(steps));
            }
        }
        Ok(rounds)
    }

    fn part(&self, step: &Step) -> Option<String> {
        Some(step.workload.name.into())
    }

    fn ladder(&self, step: &Step) -> Option<String> {
        Some(step.arm.name().into())
    }

    fn stage(&self, context: &Context) -> Result<(Redis, Value)> {
        Redis::start(context, "redis-nagle")
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        redis: &mut Redis,
        turn: Turn<'_, Step>,
    ) -> Result<Vec<Point>> {
        let Step {
            workload,
            arm,
            rps,
            repeat,
        } = *turn.arm;
        let context = run.context;
        let start = match workload.both_ends {
            true => Tuners::start,
            false => Tuners::start_at_client,
        };
        let label = format!("{}-{rps}-{}", workload.file_name(), repeat + 1);
        let tuners = (arm == Arm::Batchwise)
            .then(|| start(context, &redis.hosts, SLO_POLICY, &label))
            .transpose()?;
        let own = tuners.as_ref().map_or_else(Vec::new, Tuners::pids);
        let monitor = Monitor::start(&[redis.hosts.server.cpu(), redis.hosts.client.cpu()], &own);
        let phase = |time| steady(time, rps, workload.value_size);
        let phases = vec![phase(LEARNING), phase(measured(context.quick))];
        let load = LoadSpec {
            get_ratio: workload.get_ratio,
            sleeping: workload.sleeping,
            ..redis.load(arm, Duration::ZERO, phases)
        };
        let (client, stop) = (&redis.hosts.client, &context.stop);
        let (report, intervals) =
            load.run_with_intervals(&context.command, client, INTERVAL, stop)?;
        redis.server.check_alive()?;
        let decisions = tuners.map(Tuners::finish).transpose()?.unwrap_or_default();
        let phases = report.phases;
        let [learning, window] = <[PhaseReport; 2]>::try_from(phases)
            .map_err(|phases| anyhow!("the load told of {} phases", phases.len()))?;
        let (from, to) = (window.from_ts_ns, window.to_ts_ns);
        let gaps = monitor.gaps(learning.from_ts_ns, to);
        let (mean_ns, cut) = undisturbed(&intervals, &gaps, from);
        let (whole_ns, _) = undisturbed(&intervals, &gaps, 0);
        Ok(vec![Point {
            workload: workload.name.into(),
            arm,
            step_rps: rps,
            repeat,
            attempt: turn.attempt,
            saturated: window.saturated(),
            mean_ns,
            whole_ns,
            cut,
            nagle_share: nagle_share(&decisions, Side::Client, from, to),
            window,
        }])
    }

    /// However late the generator was is in the latency, which counts from when a request was due; where
    /// the host took its CPU away is cut.
    fn judge(&self, point: &Point) -> Judgement {
        match point.saturated {
            true => Judgement::Saturated,
            false => Judgement::Valid,
        }
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "{} {}/s {}: {}{}, from the begin {}, Nagle {}, cut {}",
            point.workload,
            point.step_rps,
            point.arm.name(),
            duration(point.mean_ns),
            if point.saturated { " (saturated)" } else { "" },
            duration(point.whole_ns),
            percent(point.nagle_share),
            percent(Some(point.cut)),
        )
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _results: &Results<Point, More>, summary: &Summary) -> Report {
        figures::report(summary)
    }
}

/// Mean latency of the intervals that began after `from` and that no stall disturbed, and the share of
/// them that one did. What waited during a stall is served in as much time after it again.
fn undisturbed(intervals: &[LoadInterval], gaps: &[Gap], from: u64) -> (f64, f64) {
    let begins = |i: &LoadInterval| i.ts_ns.saturating_sub(i.interval_ns);
    let inside = || intervals.iter().filter(|i| begins(i) >= from);
    let is_calm = |i: &&LoadInterval| {
        let disturbs = |gap: &Gap| gap.from < i.ts_ns && 2 * gap.to - gap.from > begins(i);
        !gaps.iter().any(disturbs)
    };
    let (mut sum, mut served, mut calm) = (0.0, 0.0, 0);
    for interval in inside().filter(is_calm) {
        calm += 1;
        if let Some(mean) = interval.mean_from_intended_ns {
            sum += mean * interval.achieved_rps;
            served += interval.achieved_rps;
        }
    }
    let mean = if served > 0.0 {
        sum / served
    } else {
        f64::INFINITY
    };
    (mean, 1.0 - f64::from(calm) / inside().count().max(1) as f64)
}

impl OnLadder for Point {
    fn rung(&self) -> Rung<'_> {
        Rung {
            workload: &self.workload,
            step_rps: self.step_rps,
            repeat: self.repeat,
            attempt: self.attempt,
            saturated: self.saturated,
        }
    }
}
