//! Experiment `shift`: load and value size change under way, so that each static setting has a
//! time in which it is the wrong one. This file owns the measuring.

mod figures;
mod plan;
mod summary;

use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_testbed::load::{LoadInterval, LoadPhase, LoadReport, LoadSpec};
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use serde::Serialize;

use crate::arm::{self, Arm};
use crate::frame::{Frame, Measured};
use crate::output::Progress;
use crate::plot;
use crate::rounds::InRound;
use crate::tuner::{Decision, SLO_POLICY, Tuners};
use crate::{Context, Experiment};
use plan::{Extent, INTERVAL, Schedule, WARMUP};
use summary::Summary;

/// Load and value size that change under way.
pub struct Shift;

/// One run of a schedule.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Name of the schedule.
    pub schedule: &'static str,
    /// What decided.
    pub arm: Arm,
    /// Runs of one round are compared with each other.
    pub round: u32,
    /// Over the whole run, with its phases.
    pub report: LoadReport,
    /// Every tenth of a second.
    pub intervals: Vec<LoadInterval>,
    /// With batchwise: what both agents decided.
    pub decisions: Vec<Decision>,
}

/// A static arm alone at the load of a phase: what can be reached there.
#[derive(Clone, Debug, Serialize)]
pub struct Steady {
    /// The arm.
    pub arm: Arm,
    /// Requests a second.
    pub rate: u64,
    /// Bytes of a value.
    pub value_size: u32,
    /// Runs of one round are compared with each other.
    pub round: u32,
    /// Whether the load was more than could be carried.
    pub saturated: bool,
    /// Mean latency from the intended send time, ns.
    pub mean_ns: f64,
}

/// What was measured so far.
#[derive(Default)]
struct Runs {
    points: Vec<Point>,
    steady: Vec<Steady>,
    schedules: Vec<Schedule>,
}

#[derive(Serialize)]
struct More<'a> {
    steady: &'a [Steady],
}

impl Experiment for Shift {
    fn name(&self) -> &'static str {
        "shift"
    }

    fn about(&self) -> &'static str {
        "load and value size change under way: how fast batchwise follows, and what that brings"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let arms = arm::chosen()?;
        Frame::run(self.name(), context, |frame, hosts, runs| {
            measure(frame, hosts, &arms, runs)
        })
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.points, &self.steady, &self.schedules);
        let more = More {
            steady: &self.steady,
        };
        frame.write_result(complete, &self.points, &more, &summary)?;
        figures::write(frame, complete, self, &summary)
    }
}

impl InRound for Point {
    type Arm = Arm;

    fn round_and_arm(&self) -> (u32, Arm) {
        (self.round, self.arm)
    }
}

fn measure(frame: &Frame<'_>, hosts: &TwoHosts, arms: &[Arm], runs: &mut Runs) -> Result<()> {
    let context = frame.context;
    let extent = Extent::new(context.quick);
    runs.schedules = extent.schedules.to_vec();
    let constant = constant_phases(&extent.schedules);
    let each = constant.len() * Arm::STATIC.len() + extent.schedules.len() * arms.len();
    let mut progress = Progress::new(extent.rounds * u32::try_from(each).unwrap_or(u32::MAX));
    let mut redis = RedisServer::start(&hosts.server, &context.stop)?;
    for round in 0..extent.rounds {
        for phase in &constant {
            for arm in Arm::STATIC {
                let steady = steady(frame, hosts, arm, round, extent.steady, phase)?;
                let mean = plot::maybe_duration(Some(steady.mean_ns));
                let (rate, size) = (phase.rate, phase.value_size);
                progress.step(&format!(
                    "{} alone, {rate}/s of {size} B: {mean}",
                    arm.name()
                ));
                runs.steady.push(steady);
            }
        }
        for schedule in &extent.schedules {
            let mut order = arms.to_vec();
            // So that none is always the first or the last of a round.
            order.rotate_left(round as usize % arms.len());
            for arm in order {
                let point = run(frame, hosts, arm, round, schedule)?;
                redis.check_alive()?;
                let mean = plot::maybe_duration(Some(point.report.latency_ns.mean));
                progress.step(&format!("{}, {}: mean {mean}", schedule.name, arm.name()));
                runs.points.push(point);
                runs.write(frame, false)?;
            }
        }
    }
    Ok(())
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

fn load(hosts: &TwoHosts, arm: Arm, phases: Vec<LoadPhase>) -> LoadSpec {
    LoadSpec {
        address: hosts.server_address(PORT),
        phases,
        warmup: WARMUP,
        get_ratio: 0.0,
        nodelay: arm.nodelay(),
        busy_per_response: Duration::ZERO,
    }
}

fn steady(
    frame: &Frame<'_>,
    hosts: &TwoHosts,
    arm: Arm,
    round: u32,
    duration: Duration,
    phase: &LoadPhase,
) -> Result<Steady> {
    let context = frame.context;
    let spec = load(hosts, arm, vec![LoadPhase { duration, ..*phase }]);
    let report = spec.run(&context.command, &hosts.client, &context.stop)?;
    let window = report.phases.first();
    let window = window.ok_or_else(|| anyhow!("the load reported no phase"))?;
    Ok(Steady {
        arm,
        rate: phase.rate,
        value_size: phase.value_size,
        round,
        saturated: window.saturated(),
        mean_ns: window.latency_ns.mean,
    })
}

fn run(
    frame: &Frame<'_>,
    hosts: &TwoHosts,
    arm: Arm,
    round: u32,
    schedule: &Schedule,
) -> Result<Point> {
    let context = frame.context;
    // Agents that know nothing yet: what they learn is part of what is measured.
    let tuners = match arm {
        Arm::Batchwise => {
            let label = format!("{}-{}", schedule.name, round + 1);
            Some(Tuners::start(context, hosts, SLO_POLICY, &label)?)
        }
        _ => None,
    };
    let spec = load(hosts, arm, schedule.phases.clone());
    let (report, intervals) =
        spec.run_with_intervals(&context.command, &hosts.client, INTERVAL, &context.stop)?;
    Ok(Point {
        schedule: schedule.name,
        arm,
        round,
        report,
        intervals,
        decisions: tuners.map_or_else(|| Ok(Vec::new()), Tuners::finish)?,
    })
}
