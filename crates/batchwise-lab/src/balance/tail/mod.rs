//! Experiment `balance-tail`, the paper's Figure 8: the 99th percentile of response latency over
//! load, with static weights and with weights that follow latency, where servers' speeds follow
//! traces; and where all servers are equal. This file owns the measuring.

mod figures;
mod plan;
mod point;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::nginx::{self, Nginx};
use batchwise_testbed::segment::{Segment, SegmentSpec};
use batchwise_testbed::speed::{Brake, Follower, Speed};
use serde::Serialize;

use crate::balancer::{Balancer, BalancerSpec};
use crate::frame::{Frame, Measured};
use crate::output::Progress;
use crate::passive::workload::write_site;
use crate::plot::maybe_duration;
use crate::rounds::{InRound, in_random_order};
use crate::{Context, Experiment};
use plan::{EQUAL_SHARE, Extent, SCALE, Servers};
use point::{Load, Moment};
use summary::Summary;

/// What the servers serve.
const SITE: &str = include_str!("site.toml");
/// Between the balancer's decisions.
const INTERVAL: Duration = Duration::from_millis(500);

/// The paper's Figure 8.
pub struct BalanceTail;

/// Who decides where new connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Maglev, weights all the same.
    Static,
    /// The less busy of two by Maglev, weights all the same.
    Choices,
    /// Maglev alone, this project's weights by latency.
    Weights,
    /// The less busy of two by Maglev, weights by latency: `--policy latency` as it comes.
    Latency,
}

impl Policy {
    /// All.
    pub const ALL: [Self; 4] = [Self::Static, Self::Choices, Self::Weights, Self::Latency];

    /// What summaries call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Choices => "choices",
            Self::Weights => "weights",
            Self::Latency => "latency",
        }
    }

    /// For `--policy`, and the configuration's `choices`.
    fn options(self) -> (&'static str, Option<u8>) {
        match self {
            Self::Static => ("static", None),
            Self::Choices => ("static", Some(2)),
            Self::Weights => ("latency", Some(1)),
            Self::Latency => ("latency", None),
        }
    }
}

/// What differs between the runs of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Arm {
    /// What the servers are like.
    pub servers: Servers,
    /// Pages on a connection, mean.
    pub pages: u32,
    /// Load in percent of the capacity.
    pub load_percent: u32,
    /// Which pair of this kind in the round.
    pub pair: u32,
    /// Who sets the weights.
    pub policy: Policy,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Its round.
    pub round: u32,
    /// What was run.
    #[serde(flatten)]
    pub arm: Arm,
    /// Requests a second that both clients together ask for.
    pub offered_rps: f64,
    /// Responses a second that they got.
    pub achieved_rps: f64,
    /// Responses.
    pub requests: usize,
    /// Of all responses of both clients, ns.
    pub p50_ns: f64,
    /// Of all responses of both clients, ns.
    pub p99_ns: f64,
    /// Broken connections, and those that could not be opened.
    pub broken_connections: u64,
    /// Whether the clients say that they can be believed; other points do not count.
    pub valid: bool,
    /// If not, why.
    pub why_invalid: Vec<String>,
    /// Most that a client's thread waited for its CPU, as a share of the time.
    pub cpu_wait_share: f64,
    /// Packets' fates at the balancer.
    pub balancer: Option<serde_json::Value>,
}

impl InRound for Point {
    type Arm = Arm;

    fn round_and_arm(&self) -> (u32, Arm) {
        (self.round, self.arm)
    }
}

#[derive(Default)]
struct Run {
    capacity_rps: Option<f64>,
    points: Vec<Point>,
    /// The latency arm's first run at the highest load.
    shown: Option<Moment>,
}

#[derive(Serialize)]
struct More {
    /// Requests a second that the servers can do at the traces' mean speed.
    capacity_rps: Option<f64>,
    /// Points that do not count, because a client says so.
    discarded: usize,
}

impl Experiment for BalanceTail {
    fn name(&self) -> &'static str {
        "balance-tail"
    }

    fn about(&self) -> &'static str {
        "p99 over load, balanced by static weights and by latency (Figure 8)"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let build = || {
            let segment = Segment::build("tail", SegmentSpec::default())?;
            segment.receive_on_own_cpus()?;
            let settings = segment.settings()?;
            Ok((segment, settings))
        };
        Frame::run_on(self.name(), context, build, measure)
    }
}

impl Measured for Run {
    fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.points);
        let more = More {
            capacity_rps: self.capacity_rps,
            discarded: self.points.iter().filter(|point| !point.valid).count(),
        };
        frame.write_result(complete, &self.points, &more, &summary)?;
        figures::write(frame, complete, self, &summary)
    }
}

/// Four servers that run.
struct Lab<'a> {
    frame: &'a Frame<'a>,
    segment: &'a Segment,
    extent: Extent,
    site: PathBuf,
    speeds: Vec<Speed>,
    servers: Vec<Nginx>,
    // After the servers, which it slows down.
    _brake: Brake,
}

fn measure(frame: &Frame<'_>, segment: &mut Segment, run: &mut Run) -> Result<()> {
    let context = frame.context;
    let brake = Brake::build()?;
    let site = context.output.dir().join("site.toml");
    std::fs::write(&site, SITE).with_context(|| format!("writing {}", site.display()))?;
    let (mut speeds, mut servers) = (Vec::new(), Vec::new());
    for host in &segment.servers {
        let speed = brake.speed(host.namespace().name())?;
        let fill = |folder: &std::path::Path| write_site(&context.command, folder, Some(&site));
        let slow = |command: &mut _| brake.apply(&speed, command);
        servers.push(Nginx::start_changed(host, &context.stop, fill, slow)?);
        speeds.push(speed);
    }
    let mut lab = Lab {
        frame,
        segment,
        extent: Extent::new(context.quick),
        site,
        speeds,
        servers,
        _brake: brake,
    };
    let arms = lab.extent.arms();
    let mut progress = Progress::new(1 + lab.extent.rounds * arms.len() as u32);
    let capacity = lab.capacity()?;
    run.capacity_rps = Some(capacity);
    progress.step(&format!("the servers can do {capacity:.0} requests/s"));
    in_random_order(frame, lab.extent.rounds, &arms, run, |run, turn| {
        let (point, moment) = lab.point(capacity, turn.round, turn.arm)?;
        progress.step(&describe(&point));
        let highest = lab.extent.loads.last() == Some(&point.arm.load_percent);
        let traced = point.arm.servers == Servers::Traced && point.arm.pages == plan::PAGES;
        if highest && traced && point.arm.policy == Policy::Latency && run.shown.is_none() {
            run.shown = Some(moment);
        }
        run.points.push(point);
        Ok(())
    })
}

impl Lab<'_> {
    fn balancer(&self, policy: Policy) -> Result<Balancer> {
        let (policy, choices) = policy.options();
        let spec = BalancerSpec {
            name: "bw-lab-tail",
            policy,
            choices,
            interval: INTERVAL,
            method: "l2",
            port: nginx::PORT,
            health_path: "/site.toml",
        };
        let context = self.frame.context;
        Balancer::start(&context.command, self.segment, &spec, &context.stop)
    }

    /// Requests a second at the mean speed of the traces, with static weights.
    fn capacity(&mut self) -> Result<f64> {
        for speed in &self.speeds {
            speed.set(EQUAL_SHARE * SCALE)?;
        }
        let balancer = self.balancer(Policy::Static)?;
        let load = Load {
            rate: None,
            pages: plan::PAGES,
            duration: self.extent.calibration,
            seed: 1,
        };
        let done = load.run(self.frame.context, self.segment, &self.site)?;
        balancer.finish()?;
        Ok(done.achieved_rps)
    }

    fn point(&mut self, capacity: f64, round: u32, arm: Arm) -> Result<(Point, Moment)> {
        let duration = self.extent.duration(arm.servers);
        let seconds = duration.as_secs() as u32 + 1;
        // The same in both arms of a pair.
        let seed = plan::seed(round, arm);
        let trace = |server: u64| match arm.servers {
            Servers::Traced => Trace::generate(seed * 10 + server, seconds),
            Servers::Equal => Ok(Trace::constant(EQUAL_SHARE)),
        };
        let traces = (0..self.speeds.len() as u64)
            .map(trace)
            .collect::<Result<Vec<_>>>()?;
        for (speed, trace) in self.speeds.iter().zip(&traces) {
            let first = trace.steps().first().context("a trace without steps")?;
            speed.set(first.share * SCALE)?;
        }
        let balancer = self.balancer(arm.policy)?;
        let speeds: Vec<_> = self.speeds.iter().cloned().zip(traces.clone()).collect();
        let follower = Follower::start(&speeds, SCALE);
        let offered_rps = capacity * f64::from(arm.load_percent) / 100.0;
        let load = Load {
            rate: Some(offered_rps),
            pages: arm.pages,
            duration,
            seed,
        };
        let done = load.run(self.frame.context, self.segment, &self.site)?;
        follower.finish()?;
        let said = balancer.finish()?;
        self.servers.iter_mut().try_for_each(Nginx::check_alive)?;
        let point = Point {
            round,
            arm,
            offered_rps,
            achieved_rps: done.achieved_rps,
            requests: done.latencies.len(),
            p50_ns: done.quantile(0.5)?,
            p99_ns: done.quantile(0.99)?,
            broken_connections: done.broken_connections,
            valid: done.why_invalid.is_empty(),
            why_invalid: done.why_invalid,
            cpu_wait_share: done.cpu_wait_share,
            balancer: said.totals,
        };
        let moment = Moment {
            from_ns: done.from_ns,
            backends: said.backends,
            traces,
        };
        Ok((point, moment))
    }
}

fn describe(point: &Point) -> String {
    let arm = point.arm;
    format!(
        "{} servers, {} % load{}, {}: p99 {}, {:.0} of {:.0} responses/s{}",
        arm.servers.name(),
        arm.load_percent,
        if arm.pages == 1 {
            ", a connection a page"
        } else {
            ""
        },
        arm.policy.name(),
        maybe_duration(Some(point.p99_ns)),
        point.achieved_rps,
        point.offered_rps,
        match point.valid {
            true => String::new(),
            false => format!("; does not count: {}", point.why_invalid.join("; ")),
        }
    )
}
