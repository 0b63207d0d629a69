//! Experiment `shift`: load and value size change under way, so that each static setting has a
//! time in which it is the wrong one. However late the generator was is in the latency, which counts from
//! when a request was due: to refuse such runs would keep the lucky ones.

mod figures;
mod plan;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use anyhow::Result;
use batchwise_core::tune::report::Decision;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::text::maybe_duration;
use crate::engine::{Experiment, Report, Results, Round, Run, Turn};
use crate::redis::{Redis, steady};
use crate::tuner::SLO_POLICY;
use batchwise_testbed::load::{LoadInterval, LoadReport};
use plan::{Extent, INTERVAL, ROUNDS, Schedule, WARMUP};
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
    /// A static arm alone at the rate and value size of a phase.
    Alone(Arm, u64, u32),
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
        let tasks = {
            let phases = extent.schedules.iter().flat_map(|s| &s.phases);
            let constant = phases.filter(|phase| phase.climb_to.is_none());
            let loads: BTreeSet<_> = constant.map(|p| (p.rate, p.value_size)).collect();
            let alone = |(rate, size)| Arm::STATIC.map(|arm| Task::Alone(arm, rate, size));
            let mut tasks: Vec<_> = loads.into_iter().flat_map(alone).collect();
            for schedule in &extent.schedules {
                tasks.extend(arms.iter().map(|&arm| Task::Whole(arm, schedule.clone())));
            }
            tasks
        };
        Ok(Round::shuffled(ROUNDS, &tasks))
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
            &Task::Alone(arm, rate, value_size) => {
                let phase = steady(Extent::new(context.quick).steady, rate, value_size);
                let load = redis.load(arm, WARMUP, vec![phase]);
                let (window, _) = redis.last_phase(context, &load)?;
                let mean_ns = window.latency_ns.mean;
                let (name, mean) = (arm.name(), maybe_duration(Some(mean_ns)));
                run.note(&format!("{name} alone, {rate}/s of {value_size} B: {mean}"));
                run.more.steady.push(Steady {
                    arm,
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
