//! Experiment `client-cost`, the paper's Figure 2: the same 20,000 requests a second from a cheap
//! and from an expensive client, for which opposite settings are better.

mod figures;
mod search;
mod summary;

use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::sense::report::Side;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::text::maybe_duration;
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Turn, two_hosts};
use crate::tuner::{Tuners, nagle_share};
use batchwise_testbed::load::{LoadPhase, LoadSpec, PhaseReport};
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// Fields beside the points.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct More {
    setting: Option<Setting>,
    trials: Vec<Trial>,
}

/// Two hosts that receive on their own CPUs, and a server.
pub struct Stage {
    redis: RedisServer,
    hosts: TwoHosts,
}

impl Experiment for ClientCost {
    type Stage = Stage;
    type Arm = (Client, Arm);
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "client-cost"
    }

    fn about(&self) -> &'static str {
        "a cheap and an expensive client at one load: opposite answers (Figure 2)"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<(Client, Arm)>>> {
        let arms = arm::chosen()?;
        let round = |round: usize| {
            let mut order = arms.clone();
            order.rotate_left(round % arms.len());
            let of = |client| order.iter().map(move |&arm| (client, arm));
            Round::in_order(Client::BOTH.into_iter().flat_map(of))
        };
        Ok((0..if quick { 2 } else { 7 }).map(round).collect())
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (hosts, network) = two_hosts("client-cost")?;
        // What a packet costs its receiver must be paid by the receiver: that is what batching saves.
        hosts.receive_on_own_cpus()?;
        let redis = RedisServer::start(&hosts.server, &context.stop)?;
        Ok((Stage { redis, hosts }, network))
    }

    /// Looks for the setting.
    fn prepare(&self, run: &mut Run<'_, More>, stage: &mut Stage) -> Result<()> {
        if run.more.setting.is_some() {
            return Ok(());
        }
        run.more.trials.clear();
        let grid = Grid::new(run.context.quick);
        for _ in 0..grid.repeats {
            for &value_size in grid.value_sizes {
                for busy in grid.costs() {
                    for arm in Arm::STATIC {
                        let load = load(&stage.hosts, arm, value_size, busy, &[TRIAL]);
                        let window = last_phase(run.context, &stage.hosts, &load)?;
                        let mean_ns = window.latency_ns.mean;
                        run.note(&format!(
                            "trying {value_size} B, {busy:?} a response, {}: {}",
                            arm.name(),
                            maybe_duration(Some(mean_ns))
                        ));
                        run.more.trials.push(Trial {
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
        stage.redis.check_alive()?;
        run.more.setting = most_opposite(&grid, &run.more.trials);
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        turn: Turn<'_, (Client, Arm)>,
    ) -> Result<Vec<Point>> {
        let setting = run.more.setting;
        let setting = setting
            .ok_or_else(|| anyhow!("no setting was tried with both clients and both arms"))?;
        let point = point(run.context, &stage.hosts, turn, &setting)?;
        stage.redis.check_alive()?;
        Ok(vec![point])
    }

    /// What cannot be carried overwhelms the generator, too; that is an answer here.
    fn judge(&self, point: &Point) -> Judgement {
        let (valid, why) = (point.window.valid, point.window.why_invalid.join(", "));
        Judgement::valid_if(point.saturated || valid, why)
    }

    fn describe(&self, point: &Point) -> String {
        let (client, arm) = (point.client.name(), point.arm.name());
        let latency = maybe_duration(Some(point.latency()));
        format!("{client} client, {arm}: {latency}")
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        figures::report(&results.points, &results.more, summary)
    }
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

fn last_phase(context: &Context, hosts: &TwoHosts, load: &LoadSpec) -> Result<PhaseReport> {
    let mut report = load.run(&context.command, &hosts.client, &context.stop)?;
    let last = report.phases.pop();
    last.ok_or_else(|| anyhow!("the load reported no phase"))
}

fn point(
    context: &Context,
    hosts: &TwoHosts,
    turn: Turn<'_, (Client, Arm)>,
    setting: &Setting,
) -> Result<Point> {
    let (client, arm) = *turn.arm;
    let busy = match client {
        Client::Cheap => CHEAP,
        Client::Expensive => setting.busy,
    };
    let load = |phases: &[Duration]| load(hosts, arm, setting.value_size, busy, phases);
    let (window, decisions) = match arm {
        Arm::Batchwise => {
            let label = format!("{}-{}", client.name(), turn.round + 1);
            let tuners = Tuners::start(context, hosts, POLICY, &label)?;
            let window = last_phase(context, hosts, &load(&[LEARNING, WINDOW]))?;
            (window, tuners.finish()?)
        }
        _ => (last_phase(context, hosts, &load(&[WINDOW]))?, Vec::new()),
    };
    let (from, to) = (window.from_ts_ns, window.to_ts_ns);
    Ok(Point {
        client,
        arm,
        round: turn.round,
        saturated: window.saturated(),
        nagle_share: nagle_share(&decisions, Side::Client, from, to),
        window,
    })
}
