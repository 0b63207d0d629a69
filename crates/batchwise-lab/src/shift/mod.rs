//! Experiment `shift`: load and value size change under way, so that each static setting has a
//! time in which it is the wrong one.

mod figures;
mod plan;
mod summary;
#[cfg(test)]
mod tests;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::text::maybe_duration;
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Turn};
use crate::redis::{Redis, is_saturated};
use crate::tuner::{Decision, SLO_POLICY};
use batchwise_testbed::load::{LoadInterval, LoadPhase, LoadReport};
use plan::{Extent, INTERVAL, Schedule, WARMUP};
use summary::Summary;

pub(crate) struct Shift;

/// One run of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    schedule: String,
    arm: Arm,
    /// Runs of one round are compared with each other.
    round: u32,
    report: LoadReport,
    intervals: Vec<LoadInterval>,
    /// With batchwise: what both agents decided.
    decisions: Vec<Decision>,
}

/// A static arm alone at the load of a phase: what can be reached there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Steady {
    arm: Arm,
    rate: u64,
    value_size: u32,
    round: u32,
    saturated: bool,
    /// Mean latency from the intended send time.
    #[serde(deserialize_with = "crate::engine::float")]
    mean_ns: f64,
}

/// Fields beside the points.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct More {
    steady: Vec<Steady>,
}

/// What a turn measures.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    /// A static arm alone at the load of a phase.
    Alone(Arm, LoadPhase),
    /// A whole schedule.
    Whole(Arm, Schedule),
}

impl Experiment for Shift {
    type Stage = Redis;
    type Arm = Task;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "shift"
    }

    fn about(&self) -> &'static str {
        "load and value size change under way: how fast batchwise follows, and what that brings"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Task>>> {
        let (arms, extent) = (arm::chosen()?, Extent::new(quick));
        let round = |round: u32| {
            let mut tasks = Vec::new();
            for phase in constant_phases(&extent.schedules) {
                tasks.extend(Arm::STATIC.map(|arm| Task::Alone(arm, phase)));
            }
            // So that none is always the first or the last of a round.
            let mut order = arms.clone();
            order.rotate_left(round as usize % arms.len());
            for schedule in &extent.schedules {
                tasks.extend(order.iter().map(|&arm| Task::Whole(arm, schedule.clone())));
            }
            Round::in_order(tasks)
        };
        Ok((0..extent.rounds).map(round).collect())
    }

    fn stage(&self, context: &Context) -> Result<(Redis, Value)> {
        Redis::start(context, "shift")
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        redis: &mut Redis,
        turn: Turn<'_, Task>,
    ) -> Result<Vec<Point>> {
        redis.server.check_alive()?;
        let (context, round) = (run.context, turn.round);
        match turn.arm {
            Task::Alone(arm, phase) => {
                let duration = Extent::new(context.quick).steady;
                let load = redis.load(*arm, WARMUP, vec![LoadPhase { duration, ..*phase }]);
                let (window, _) = redis.last_phase(context, &load)?;
                let mean_ns = window.latency_ns.mean;
                let (rate, value_size) = (phase.rate, phase.value_size);
                let (name, mean) = (arm.name(), maybe_duration(Some(mean_ns)));
                run.note(&format!("{name} alone, {rate}/s of {value_size} B: {mean}"));
                run.more.steady.push(Steady {
                    arm: *arm,
                    rate,
                    value_size,
                    round,
                    saturated: window.saturated(),
                    mean_ns,
                });
                Ok(Vec::new())
            }
            Task::Whole(arm, schedule) => {
                let label = format!("{}-{}", schedule.name, round + 1);
                let agents = (*arm, SLO_POLICY, label.as_str());
                let load = redis.load(*arm, WARMUP, schedule.phases.clone());
                let (client, stop) = (&redis.hosts.client, &context.stop);
                let measured = redis.tuned(context, agents, || {
                    load.run_with_intervals(&context.command, client, INTERVAL, stop)
                });
                let ((report, intervals), decisions) = measured?;
                Ok(vec![Point {
                    schedule: schedule.name.into(),
                    arm: *arm,
                    round,
                    report,
                    intervals,
                    decisions,
                }])
            }
        }
    }

    /// What cannot be carried overwhelms the generator, too; that is an answer here.
    fn judge(&self, point: &Point) -> Judgement {
        let report = &point.report;
        let counts = is_saturated(report) || report.valid;
        Judgement::valid_if(counts, report.why_invalid.join(", "))
    }

    fn describe(&self, point: &Point) -> String {
        let mean = maybe_duration(Some(point.report.latency_ns.mean));
        format!("{}, {}: mean {mean}", point.schedule, point.arm.name())
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        let schedules = Extent::new(results.quick).schedules;
        Summary::of(&results.points, &results.more.steady, &schedules)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        let schedules = Extent::new(results.quick).schedules;
        figures::report(&schedules, &results.points, summary)
    }
}

/// The different phases with a constant rate.
fn constant_phases(schedules: &[Schedule]) -> Vec<LoadPhase> {
    let mut found: Vec<LoadPhase> = Vec::new();
    let constant = |phase: &&LoadPhase| phase.climb_to.is_none();
    for phase in schedules.iter().flat_map(|s| &s.phases).filter(constant) {
        let same = |p: &LoadPhase| (p.rate, p.value_size) == (phase.rate, phase.value_size);
        if !found.iter().any(same) {
            found.push(*phase);
        }
    }
    found
}
