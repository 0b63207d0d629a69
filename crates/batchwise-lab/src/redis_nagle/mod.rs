//! Experiment `redis-nagle`, the paper's Figure 4 with the decision taken live: both static
//! settings and batchwise tuning, from light load to collapse. This file owns the measuring.

mod figures;
mod plan;
mod summary;

use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::report::Side;
use serde::Serialize;

use crate::arm::{self, Arm};
use crate::frame::{Frame, Measured};
use crate::ladder::{OnLadder, Rung, Workload, collapses};
use crate::load::{LatencySummary, LoadPhase, LoadSpec, PhaseReport};
use crate::output::Progress;
use crate::plot;
use crate::redis::{PORT, RedisServer};
use crate::topology::TwoHosts;
use crate::tuner::{Decision, SLO_POLICY, Tuners, nagle_share};
use crate::{Context, Experiment};
use plan::{Extent, WORKLOADS};
use summary::Summary;

/// The paper's Figure 4, live.
pub struct RedisNagle;

/// One measured point: a connection of its own.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Name of the workload.
    pub workload: &'static str,
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

/// What was measured so far.
#[derive(Default)]
struct Run {
    points: Vec<Point>,
    /// Of the first repetition, by workload: what the plots show.
    decisions: Vec<(&'static str, Vec<Decision>)>,
}

#[derive(Serialize)]
struct Paper {
    paper: summary::Ratios,
}

impl Experiment for RedisNagle {
    fn name(&self) -> &'static str {
        "redis-nagle"
    }

    fn about(&self) -> &'static str {
        "latency over load with TCP_NODELAY, Nagle, and batchwise tuning live (Figure 4)"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let (extent, arms) = (Extent::new(context.quick), arm::chosen()?);
        Frame::run(self.name(), context, |frame, hosts, run: &mut Run| {
            let ladders = Ladders {
                frame,
                extent: &extent,
                hosts,
            };
            ladders.measure(&arms, run)
        })
    }
}

impl Measured for Run {
    fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.points);
        let paper = Paper {
            paper: summary::PAPER,
        };
        frame.write_result(complete, &self.points, &paper, &summary)?;
        figures::write(frame, complete, self, &summary)
    }
}

impl OnLadder for Point {
    fn rung(&self) -> Rung<'_> {
        Rung {
            workload: self.workload,
            step_rps: self.step_rps,
            repeat: self.repeat,
            attempt: self.attempt,
            saturated: self.saturated,
        }
    }
}

struct Ladders<'a> {
    frame: &'a Frame<'a>,
    extent: &'a Extent,
    hosts: &'a TwoHosts,
}

impl Ladders<'_> {
    /// In rounds: in each, all workloads. The static arms share a ladder, point by point, with no
    /// agent on the machine; batchwise climbs one of its own, before or after that, with agents
    /// that stay, since what they learn is part of what is measured.
    fn measure(&self, arms: &[Arm], run: &mut Run) -> Result<()> {
        let context = self.frame.context;
        let mut redis = RedisServer::start(&self.hosts.server, &context.stop)?;
        let mut progress = Progress::new(self.extent.most_points(arms.len()));
        let tuned = arms.contains(&Arm::Batchwise);
        for repeat in 0..self.extent.repeats {
            for workload in &WORKLOADS {
                let tuned_first = repeat % 2 == 1;
                for tunes in [tuned_first, !tuned_first] {
                    match tunes {
                        false => {
                            let mut static_arms = Arm::STATIC;
                            if repeat % 2 == 1 {
                                static_arms.reverse();
                            }
                            let mut climb = Climb::new(workload, repeat, None);
                            self.climb(&static_arms, &mut climb, &mut progress, run)?;
                        }
                        true if tuned => self.tuned(workload, repeat, &mut progress, run)?,
                        true => {}
                    }
                    redis.check_alive()?;
                }
                run.write(self.frame, false)?;
            }
        }
        Ok(())
    }

    fn tuned(
        &self,
        workload: &'static Workload,
        repeat: u32,
        progress: &mut Progress,
        run: &mut Run,
    ) -> Result<()> {
        let context = self.frame.context;
        let label = format!("{}-{}", workload.name, repeat + 1);
        let tuners = Tuners::start(context, self.hosts, SLO_POLICY, &label)?;
        let mut climb = Climb::new(workload, repeat, Some(tuners));
        self.climb(&[Arm::Batchwise], &mut climb, progress, run)?;
        if let Some(tuners) = climb.tuners.take() {
            climb.decisions.extend(tuners.finish()?);
        }
        if repeat == 0 {
            run.decisions.push((workload.name, climb.decisions));
        }
        Ok(())
    }

    fn climb(
        &self,
        arms: &[Arm],
        climb: &mut Climb,
        progress: &mut Progress,
        run: &mut Run,
    ) -> Result<()> {
        let mut collapsed: Vec<Arm> = Vec::new();
        for &step in climb.workload.steps(self.extent.quick) {
            for &arm in arms {
                if collapsed.contains(&arm) {
                    progress.skip(1);
                    continue;
                }
                let collapse = collapses(|attempt| {
                    let point = self.point(arm, step, attempt, climb)?;
                    let saturated = point.saturated;
                    let text = describe(&point);
                    match attempt {
                        0 => progress.step(&text),
                        _ => progress.note(&text),
                    }
                    run.points.push(point);
                    Ok(saturated)
                })?;
                if collapse {
                    collapsed.push(arm);
                }
            }
        }
        Ok(())
    }

    fn point(&self, arm: Arm, step: u64, attempt: u32, climb: &mut Climb) -> Result<Point> {
        let context = self.frame.context;
        let phase = |duration: Duration| LoadPhase {
            duration,
            rate: step,
            climb_to: None,
            value_size: climb.workload.value_size,
        };
        let measured = phase(self.extent.measured);
        // Nothing of batchwise's learning is hidden in a warm-up.
        let (warmup, phases) = match arm {
            Arm::Batchwise => (Duration::ZERO, vec![phase(self.extent.learning), measured]),
            _ => (self.extent.warmup, vec![measured]),
        };
        let spec = LoadSpec {
            address: self.hosts.server_address(PORT),
            phases,
            warmup,
            get_ratio: climb.workload.get_ratio,
            nodelay: arm.nodelay(),
            busy_per_response: Duration::ZERO,
        };
        let mut report = spec.run(&context.command, &self.hosts.client, &context.stop)?;
        let window = report.phases.pop();
        let window = window.ok_or_else(|| anyhow!("the load reported no phase"))?;
        if let Some(tuners) = &mut climb.tuners {
            tuners.check()?;
            climb.decisions.extend(tuners.take()?);
        }
        let (from, to) = (window.from_ts_ns, window.to_ts_ns);
        Ok(Point {
            workload: climb.workload.name,
            arm,
            step_rps: step,
            repeat: climb.repeat,
            attempt,
            saturated: window.saturated(),
            learning: report.phases.pop(),
            nagle_share: nagle_share(&climb.decisions, Side::Client, from, to),
            window,
        })
    }
}

/// A way up a workload's ladder.
struct Climb {
    workload: &'static Workload,
    repeat: u32,
    tuners: Option<Tuners>,
    decisions: Vec<Decision>,
}

impl Climb {
    fn new(workload: &'static Workload, repeat: u32, tuners: Option<Tuners>) -> Self {
        Self {
            workload,
            repeat,
            tuners,
            decisions: Vec::new(),
        }
    }
}

fn describe(point: &Point) -> String {
    let mean = |of: &LatencySummary| plot::maybe_duration(Some(of.mean));
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
