//! Experiment `redis-nagle`, the paper's Figure 4 with the decision taken live: both static
//! settings and batchwise tuning, from light load to collapse.

mod figures;
mod plan;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::sense::report::Side;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::text::maybe_duration;
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Turn, two_hosts};
use crate::ladder::{OnLadder, Rung, Workload};
use crate::tuner::{Decision, SLO_POLICY, Tuners, nagle_share};
use batchwise_testbed::load::{LatencySummary, LoadPhase, LoadSpec, PhaseReport};
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use plan::{Extent, WORKLOADS};
use summary::Summary;

/// The paper's Figure 4, live.
pub struct RedisNagle;

/// One measured point: a connection of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Name of the workload.
    pub workload: String,
    /// What decided.
    pub arm: Arm,
    /// The load step, requests a second.
    pub step_rps: u64,
    /// Which repetition, from 0.
    pub repeat: u32,
    /// 0, or 1 for the second measurement that a saturated point gets.
    pub attempt: u32,
    /// Whether the load was more than could be carried.
    pub saturated: bool,
    /// The measured window.
    #[serde(flatten)]
    pub window: PhaseReport,
    /// The learning phase before it, with batchwise: from the first request on.
    pub learning: Option<PhaseReport>,
    /// With batchwise: for how much of the measured window Nagle's algorithm worked at the client.
    pub nagle_share: Option<f64>,
}

impl Point {
    /// Mean latency from the intended send time, ns; infinite after a collapse.
    pub fn latency(&self) -> f64 {
        match self.saturated {
            true => f64::INFINITY,
            false => self.window.latency_ns.mean,
        }
    }
}

/// Fields beside the points.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct More {
    paper: summary::Ratios,
    /// Of the first repetition, by workload: what the plots show.
    #[serde(default)]
    decisions: BTreeMap<String, Vec<Decision>>,
}

/// Two hosts, a server, and the agents of a ladder with batchwise.
pub struct Stage {
    tuners: Option<Tuners>,
    decisions: Vec<Decision>,
    redis: RedisServer,
    hosts: TwoHosts,
}

/// A step of a ladder.
#[derive(Clone, Copy, Debug)]
pub struct Step {
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
        for repeat in 0..Extent::new(quick).repeats {
            for workload in &WORKLOADS {
                let ladder = |arms: &[Arm]| {
                    let steps = workload.steps(quick).iter();
                    let step = |(&rps, &arm)| Step {
                        workload,
                        arm,
                        rps,
                        repeat,
                    };
                    let each = steps.flat_map(|rps| arms.iter().map(move |arm| (rps, arm)));
                    Round::in_order(each.map(step))
                };
                let mut static_arms = Arm::STATIC;
                if repeat % 2 == 1 {
                    static_arms.reverse();
                }
                let mut both = vec![ladder(&static_arms)];
                if tunes {
                    both.push(ladder(&[Arm::Batchwise]));
                }
                if repeat % 2 == 1 {
                    both.reverse();
                }
                rounds.extend(both);
            }
        }
        Ok(rounds)
    }

    fn ladder(&self, step: &Step) -> Option<String> {
        Some(step.arm.name().into())
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (hosts, network) = two_hosts("redis-nagle")?;
        let redis = RedisServer::start(&hosts.server, &context.stop)?;
        let stage = Stage {
            tuners: None,
            decisions: Vec::new(),
            redis,
            hosts,
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
            let tuners = Tuners::start(run.context, &stage.hosts, SLO_POLICY, &label)?;
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
        let point = point(run.context, stage, turn)?;
        stage.redis.check_alive()?;
        Ok(vec![point])
    }

    fn end(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        _round: u32,
        steps: &[Step],
    ) -> Result<()> {
        if let Some(tuners) = stage.tuners.take() {
            stage.decisions.extend(tuners.finish()?);
        }
        let decisions = std::mem::take(&mut stage.decisions);
        if let Some(step) = steps.first().filter(|step| step.repeat == 0)
            && step.arm == Arm::Batchwise
        {
            let name = step.workload.name.to_owned();
            run.more.decisions.insert(name, decisions);
        }
        Ok(())
    }

    /// A generator that is overwhelmed does not trust itself: that is the collapse.
    fn judge(&self, point: &Point) -> Judgement {
        match point.saturated {
            true => Judgement::Saturated,
            false => Judgement::valid_if(point.window.valid, point.window.why_invalid.join(", ")),
        }
    }

    fn describe(&self, point: &Point) -> String {
        describe(point)
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

fn point(context: &Context, stage: &mut Stage, turn: Turn<'_, Step>) -> Result<Point> {
    let Step {
        workload,
        arm,
        rps,
        repeat,
    } = *turn.arm;
    let extent = Extent::new(context.quick);
    let phase = |duration: Duration| LoadPhase {
        duration,
        rate: rps,
        climb_to: None,
        value_size: workload.value_size,
    };
    let measured = phase(extent.measured);
    // Nothing of batchwise's learning is hidden in a warm-up.
    let (warmup, phases) = match arm {
        Arm::Batchwise => (Duration::ZERO, vec![phase(extent.learning), measured]),
        _ => (extent.warmup, vec![measured]),
    };
    let spec = LoadSpec {
        address: stage.hosts.server_address(PORT),
        phases,
        warmup,
        get_ratio: workload.get_ratio,
        nodelay: arm.nodelay(),
        busy_per_response: Duration::ZERO,
    };
    let mut report = spec.run(&context.command, &stage.hosts.client, &context.stop)?;
    let window = report.phases.pop();
    let window = window.ok_or_else(|| anyhow!("the load reported no phase"))?;
    if let Some(tuners) = &mut stage.tuners {
        tuners.check()?;
        stage.decisions.extend(tuners.take()?);
    }
    let (from, to) = (window.from_ts_ns, window.to_ts_ns);
    Ok(Point {
        workload: workload.name.into(),
        arm,
        step_rps: rps,
        repeat,
        attempt: turn.attempt,
        saturated: window.saturated(),
        learning: report.phases.pop(),
        nagle_share: nagle_share(&stage.decisions, Side::Client, from, to),
        window,
    })
}

fn describe(point: &Point) -> String {
    let mean = |of: &LatencySummary| maybe_duration(Some(of.mean));
    let learning = point.learning.as_ref().map_or_else(String::new, |l| {
        format!(" (learning {})", mean(&l.latency_ns))
    });
    let share = point.nagle_share.map_or_else(String::new, |share| {
        format!(", Nagle {:.0} % of the time", share * 100.0)
    });
    format!(
        "{} {}/s {}: {}{learning}{share}{}",
        point.workload,
        point.step_rps,
        point.arm.name(),
        mean(&point.window.latency_ns),
        if point.saturated { ", saturated" } else { "" },
    )
}
