//! Experiment `client-cost`, the paper's Figure 2: the same 20,000 requests a second from a cheap
//! and from an expensive client, for which opposite settings are better. This file owns the
//! measuring.

mod figures;
mod search;
mod summary;

use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::sense::report::Side;
use batchwise_testbed::load::{LoadPhase, LoadSpec, PhaseReport};
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use serde::Serialize;

use crate::arm::{self, Arm};
use crate::frame::{Frame, Measured};
use crate::output::Progress;
use crate::plot;
use crate::rounds::InRound;
use crate::tuner::{Tuners, nagle_share};
use crate::{Context, Experiment};
use search::{CHEAP, Grid, Setting, Trial, most_opposite};
use summary::Summary;

/// Requests a second, as in the paper.
const RATE: u64 = 20_000;
/// The rate is given: what can be won is latency.
const POLICY: &str = "latency";
/// How long a setting is tried.
const TRIAL: Duration = Duration::from_millis(800);
/// Load before a trial or the window of a static arm.
const WARMUP: Duration = Duration::from_millis(300);
/// Load before the window with batchwise, whose agents know nothing yet.
const LEARNING: Duration = Duration::from_secs(4);
/// How long a point is measured.
const WINDOW: Duration = Duration::from_secs(3);

/// The paper's Figure 2.
pub struct ClientCost;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Takes a response and is done.
    Cheap,
    /// Works on each response.
    Expensive,
}

impl Client {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Cheap, Self::Expensive];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cheap => "cheap",
            Self::Expensive => "expensive",
        }
    }
}

/// One measured point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Who sent.
    pub client: Client,
    /// What decided.
    pub arm: Arm,
    /// Points of one round are compared with each other.
    pub round: u32,
    /// Whether the load was more than could be carried.
    pub saturated: bool,
    /// The measured window.
    #[serde(flatten)]
    pub window: PhaseReport,
    /// With batchwise: for how much of the window Nagle's algorithm worked at the client.
    pub nagle_share: Option<f64>,
}

impl Point {
    /// Mean latency from the intended send time, ns; also of a collapse, which has a mean of its
    /// own.
    pub fn latency(&self) -> f64 {
        self.window.latency_ns.mean
    }
}

/// What was measured so far.
#[derive(Default, Serialize)]
struct Run {
    #[serde(skip)]
    points: Vec<Point>,
    setting: Option<Setting>,
    trials: Vec<Trial>,
}

impl Experiment for ClientCost {
    fn name(&self) -> &'static str {
        "client-cost"
    }

    fn about(&self) -> &'static str {
        "a cheap and an expensive client at one load: opposite answers (Figure 2)"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let arms = arm::chosen()?;
        Frame::run(self.name(), context, |frame, hosts, run| {
            measure(frame, hosts, &arms, run)
        })
    }
}

impl Measured for Run {
    fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.points);
        frame.write_result(complete, &self.points, self, &summary)?;
        figures::write(frame, complete, self, &summary)
    }
}

impl InRound for Point {
    type Arm = Arm;

    fn round_and_arm(&self) -> (u32, Arm) {
        (self.round, self.arm)
    }
}

fn measure(frame: &Frame<'_>, hosts: &TwoHosts, arms: &[Arm], run: &mut Run) -> Result<()> {
    let context = frame.context;
    let grid = Grid::new(context.quick);
    let rounds: u32 = if context.quick { 2 } else { 7 };
    // What a packet costs its receiver must be paid by the receiver: that is what batching saves.
    hosts.receive_on_own_cpus()?;
    let mut redis = RedisServer::start(&hosts.server, &context.stop)?;
    let trials = grid.value_sizes.len() * grid.costs().len() * Arm::STATIC.len();
    let trials = grid.repeats * u32::try_from(trials).unwrap_or(u32::MAX);
    let points = rounds * u32::try_from(2 * arms.len()).unwrap_or(u32::MAX);
    let mut progress = Progress::new(trials + points);
    for _ in 0..grid.repeats {
        for &value_size in grid.value_sizes {
            for busy in grid.costs() {
                for arm in Arm::STATIC {
                    let load = load(hosts, arm, value_size, busy, &[TRIAL]);
                    let window = last_phase(frame, hosts, &load)?;
                    let mean_ns = window.latency_ns.mean;
                    progress.step(&format!(
                        "trying {value_size} B, {busy:?} a response, {}: {}",
                        arm.name(),
                        plot::maybe_duration(Some(mean_ns))
                    ));
                    run.trials.push(Trial {
                        value_size,
                        busy,
                        arm,
                        mean_ns,
                        saturated: window.saturated(),
                    });
                }
            }
        }
    }
    redis.check_alive()?;
    let setting = most_opposite(&grid, &run.trials);
    let setting =
        setting.ok_or_else(|| anyhow!("no setting was tried with both clients and both arms"))?;
    run.setting = Some(setting);
    for round in 0..rounds {
        for client in Client::BOTH {
            let mut order = arms.to_vec();
            order.rotate_left(round as usize % arms.len());
            for arm in order {
                let point = point(frame, hosts, client, arm, round, &setting)?;
                redis.check_alive()?;
                progress.step(&format!(
                    "{} client, {}: {}",
                    client.name(),
                    arm.name(),
                    plot::maybe_duration(Some(point.latency()))
                ));
                run.points.push(point);
            }
        }
        run.write(frame, false)?;
    }
    Ok(())
}

fn load(
    hosts: &TwoHosts,
    arm: Arm,
    value_size: u32,
    busy: Duration,
    phases: &[Duration],
) -> LoadSpec {
    let phase = |&duration: &Duration| LoadPhase {
        duration,
        rate: RATE,
        climb_to: None,
        value_size,
    };
    LoadSpec {
        address: hosts.server_address(PORT),
        phases: phases.iter().map(phase).collect(),
        warmup: WARMUP,
        get_ratio: 0.0,
        nodelay: arm.nodelay(),
        busy_per_response: busy,
    }
}

fn last_phase(frame: &Frame<'_>, hosts: &TwoHosts, load: &LoadSpec) -> Result<PhaseReport> {
    let context = frame.context;
    let mut report = load.run(&context.command, &hosts.client, &context.stop)?;
    let last = report.phases.pop();
    last.ok_or_else(|| anyhow!("the load reported no phase"))
}

fn point(
    frame: &Frame<'_>,
    hosts: &TwoHosts,
    client: Client,
    arm: Arm,
    round: u32,
    setting: &Setting,
) -> Result<Point> {
    let busy = match client {
        Client::Cheap => CHEAP,
        Client::Expensive => setting.busy,
    };
    let load = |phases: &[Duration]| load(hosts, arm, setting.value_size, busy, phases);
    let (window, decisions) = match arm {
        Arm::Batchwise => {
            let label = format!("{}-{}", client.name(), round + 1);
            let tuners = Tuners::start(frame.context, hosts, POLICY, &label)?;
            let window = last_phase(frame, hosts, &load(&[LEARNING, WINDOW]))?;
            (window, tuners.finish()?)
        }
        _ => (last_phase(frame, hosts, &load(&[WINDOW]))?, Vec::new()),
    };
    let (from, to) = (window.from_ts_ns, window.to_ts_ns);
    Ok(Point {
        client,
        arm,
        round,
        saturated: window.saturated(),
        nagle_share: nagle_share(&decisions, Side::Client, from, to),
        window,
    })
}
