//! Experiment `redis-nagle`, the paper's Figure 4 with the decision taken live: both static
//! settings and batchwise tuning, from light load to collapse.

mod figures;
mod plan;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use batchwise_core::sense::report::Side;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::text::{maybe_duration, percent};
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Turn};
use crate::ladder::{OnLadder, Rung, Workload};
use crate::redis::{Redis, judge, steady};
use crate::tuner::{Decision, SLO_POLICY, Tuners, nagle_share};
use batchwise_testbed::load::{LoadSpec, PhaseReport};
use plan::{LEARNING, WARMUP, WORKLOADS, measured, repeats};
use summary::Summary;

pub(crate) struct RedisNagle;

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
    #[serde(flatten)]
    window: PhaseReport,
    /// The learning phase before it, with batchwise: from the first request on.
    learning: Option<PhaseReport>,
    /// With batchwise: for how much of the measured window Nagle's algorithm worked at the client.
    nagle_share: Option<f64>,
}

impl Point {
    /// Mean latency from the intended send time, ns; infinite after a collapse.
    fn latency(&self) -> f64 {
        match self.saturated {
            true => f64::INFINITY,
            false => self.window.latency_ns.mean,
        }
    }
}

/// Fields beside the points.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct More {
    paper: summary::Ratios,
    /// Of the first repetition, by workload: what the plots show.
    #[serde(default)]
    decisions: BTreeMap<String, Vec<Decision>>,
}

/// Two hosts, a server, and the agents of a ladder with batchwise.
pub(crate) struct Stage {
    tuners: Option<Tuners>,
    decisions: Vec<Decision>,
    redis: Redis,
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
    type Stage = Stage;
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

    /// The static arms of a workload share a ladder, point by point, with no agent on the machine;
    /// batchwise climbs one of its own, before or after that, with agents that stay, since what
    /// they learn is part of what is measured.
    fn rounds(&self, quick: bool) -> Result<Vec<Round<Step>>> {
        let tunes = arm::chosen()?.contains(&Arm::Batchwise);
        let mut rounds = Vec::new();
        for repeat in 0..repeats(quick) {
            let mut ladders = vec![Arm::STATIC.to_vec()];
            if tunes {
                ladders.push(vec![Arm::Batchwise]);
            }
            if repeat % 2 == 1 {
                ladders.reverse();
                ladders.iter_mut().for_each(|arms| arms.reverse());
            }
            for workload in &WORKLOADS {
                rounds.extend(ladders.iter().map(|arms| {
                    let step = |rps, arm| Step {
                        workload,
                        arm,
                        rps,
                        repeat,
                    };
                    let steps = workload.steps(quick).iter();
                    Round::in_order(
                        steps.flat_map(|&rps| arms.iter().map(move |&arm| step(rps, arm))),
                    )
                }));
            }
        }
        Ok(rounds)
    }

    fn ladder(&self, step: &Step) -> Option<String> {
        Some(step.arm.name().into())
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (redis, network) = Redis::start(context, "redis-nagle")?;
        let stage = Stage {
            tuners: None,
            decisions: Vec::new(),
            redis,
        };
        Ok((stage, network))
    }

    fn begin(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        _round: u32,
        steps: &[Step],
    ) -> Result<()> {
        if let Some(step) = steps.first().filter(|step| step.arm == Arm::Batchwise) {
            let label = format!("{}-{}", step.workload.name, step.repeat + 1);
            let tuners = Tuners::start(run.context, &stage.redis.hosts, SLO_POLICY, &label)?;
            stage.tuners = Some(tuners);
        }
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        turn: Turn<'_, Step>,
    ) -> Result<Vec<Point>> {
        let Step {
            workload,
            arm,
            rps,
            repeat,
        } = *turn.arm;
        let phase = |time| steady(time, rps, workload.value_size);
        let measured = phase(measured(run.context.quick));
        // Nothing of batchwise's learning is hidden in a warm-up.
        let (warmup, phases) = match arm {
            Arm::Batchwise => (Duration::ZERO, vec![phase(LEARNING), measured]),
            _ => (WARMUP, vec![measured]),
        };
        let load = LoadSpec {
            get_ratio: workload.get_ratio,
            ..stage.redis.load(arm, warmup, phases)
        };
        let (window, learning) = stage.redis.last_phase(run.context, &load)?;
        stage.redis.server.check_alive()?;
        if let Some(tuners) = &mut stage.tuners {
            tuners.check()?;
            stage.decisions.extend(tuners.take());
        }
        let (from, to) = (window.from_ts_ns, window.to_ts_ns);
        Ok(vec![Point {
            workload: workload.name.into(),
            arm,
            step_rps: rps,
            repeat,
            attempt: turn.attempt,
            saturated: window.saturated(),
            learning,
            nagle_share: nagle_share(&stage.decisions, Side::Client, from, to),
            window,
        }])
    }

    fn end(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        _round: u32,
        steps: &[Step],
    ) -> Result<()> {
        let (Some(tuners), Some(step)) = (stage.tuners.take(), steps.first()) else {
            return Ok(());
        };
        stage.decisions.extend(tuners.finish()?);
        let decisions = std::mem::take(&mut stage.decisions);
        if step.repeat == 0 {
            let name = step.workload.name.to_owned();
            run.more.decisions.insert(name, decisions);
        }
        Ok(())
    }

    fn judge(&self, point: &Point) -> Judgement {
        judge(
            point.saturated,
            point.window.valid,
            &point.window.why_invalid,
        )
    }

    fn describe(&self, point: &Point) -> String {
        let mean = |of: &PhaseReport| maybe_duration(Some(of.latency_ns.mean));
        let learning = point.learning.as_ref().map_or_else(|| "–".into(), mean);
        format!(
            "{} {}/s {}: {}{}, learning {learning}, Nagle {}",
            point.workload,
            point.step_rps,
            point.arm.name(),
            mean(&point.window),
            if point.saturated { " (saturated)" } else { "" },
            percent(point.nagle_share),
        )
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        figures::report(&results.points, &results.more.decisions, summary)
    }
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
