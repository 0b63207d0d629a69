//! Experiment `tune-cost`: what tuning itself costs where it has nothing to gain. Requests never
//! overlap on a connection, so that Nagle's algorithm has nothing to hold back and both arms of a
//! service are alike; what is left is estimating, exchanging, probing and switching. This file
//! owns the measuring.

mod figures;
mod summary;

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use batchwise_testbed::load::{LoadPhase, LoadSpec};
use batchwise_testbed::redis::{Benchmark, PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use serde::Serialize;

use crate::frame::{Frame, Measured, NoMore};
use crate::output::Progress;
use crate::rounds::{InRound, Turn, in_random_order};
use crate::tuner::{SLO_POLICY, Tuners};
use crate::{Context, Experiment};
use summary::Summary;

/// How long one run of the benchmark should last.
const RUN_SECONDS: f64 = 4.0;
/// Runs before it, in which the agents learn: of every round, also without agents.
const LEARNING_RUNS: u32 = 2;
/// The open loop: light enough that both arms are far from their limits.
const OPEN_RATE: u64 = 50_000;
const OPEN_DURATION: Duration = Duration::from_secs(2);
const OPEN_WARMUP: Duration = Duration::from_millis(500);

/// What tuning costs.
pub struct TuneCost;

/// Whether agents run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agents {
    /// Nothing is attached.
    Off,
    /// One at each host.
    On,
}

/// A run of the benchmark and one of the open loop.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Runs of one round are compared with each other.
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    /// Whether agents ran.
    pub agents: Agents,
    /// Requests a second of the benchmark, once the agents have learned.
    pub rps: f64,
    /// The same before, while they learn.
    pub learning_rps: f64,
    /// CPU time of the server process a request of the benchmark, ns.
    pub server_cpu_ns_per_request: f64,
    /// Mean latency of the open loop from the intended send time, ns.
    pub open_mean_ns: f64,
    /// CPU time of the server process a request of the open loop, ns.
    pub open_server_cpu_ns_per_request: f64,
    /// Both agents' CPU time over the time of both runs.
    pub agents_cpu_share: Option<f64>,
}

/// What was measured so far.
#[derive(Default)]
struct Points(Vec<Point>);

impl Experiment for TuneCost {
    fn name(&self) -> &'static str {
        "tune-cost"
    }

    fn about(&self) -> &'static str {
        "what tuning itself costs Redis where both settings are alike: throughput, CPU, latency"
    }

    fn run(&self, context: &Context) -> Result<()> {
        Frame::run(self.name(), context, measure)
    }
}

impl Measured for Points {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.0);
        frame.write_result(complete, &self.0, &NoMore {}, &summary)?;
        figures::write(frame, complete, &self.0, &summary)
    }
}

impl InRound for Point {
    type Arm = Agents;

    fn round_and_arm(&self) -> (u32, Agents) {
        (self.round, self.agents)
    }
}

fn measure(frame: &Frame<'_>, hosts: &TwoHosts, measured: &mut Points) -> Result<()> {
    let context = frame.context;
    let mut redis = RedisServer::start(&hosts.server, &context.stop)?;
    let benchmark = Benchmark::lasting(RUN_SECONDS, hosts, &context.stop)?;
    let rounds: u32 = if context.quick { 8 } else { 40 };
    let arms = [Agents::Off, Agents::On];
    let mut progress = Progress::new(rounds * 2);
    in_random_order(frame, rounds, &arms, measured, |measured, turn| {
        let task = Task {
            context,
            hosts,
            benchmark: &benchmark,
            turn,
        };
        let point = task.measure(&redis)?;
        redis.check_alive()?;
        progress.step(&format!(
            "round {}, agents {}: {:.0} requests/s",
            turn.round + 1,
            if turn.arm == Agents::On { "on" } else { "off" },
            point.rps
        ));
        measured.0.push(point);
        Ok(())
    })
}

struct Task<'a> {
    context: &'a Context,
    hosts: &'a TwoHosts,
    benchmark: &'a Benchmark,
    turn: Turn<Agents>,
}

impl Task<'_> {
    fn measure(&self, redis: &RedisServer) -> Result<Point> {
        let (context, hosts) = (self.context, self.hosts);
        let tuners = match self.turn.arm {
            Agents::On => {
                let label = format!("{}", self.turn.round + 1);
                Some(Tuners::start(context, hosts, SLO_POLICY, &label)?)
            }
            Agents::Off => None,
        };
        let began = Instant::now();
        let agents_before = tuners.as_ref().map(Tuners::cpu_time).transpose()?;

        let mut learning_rps = 0.0;
        for _ in 0..LEARNING_RUNS {
            let run = self.benchmark.run(hosts, &context.stop)?;
            learning_rps += run.rps / f64::from(LEARNING_RUNS);
        }
        let before = redis.cpu_time()?;
        let result = self.benchmark.run(hosts, &context.stop)?;
        let closed_cpu = redis.cpu_time()?.saturating_sub(before);

        let open = LoadSpec {
            address: hosts.server_address(PORT),
            phases: vec![LoadPhase {
                duration: OPEN_DURATION,
                rate: OPEN_RATE,
                climb_to: None,
                value_size: self.benchmark.value_size,
            }],
            warmup: OPEN_WARMUP,
            get_ratio: 0.0,
            nodelay: true,
            busy_per_response: Duration::ZERO,
        };
        let before = redis.cpu_time()?;
        let report = open.run(&context.command, &hosts.client, &context.stop)?;
        let open_cpu = redis.cpu_time()?.saturating_sub(before);
        // The warm-up's requests are served, too.
        let all =
            report.requests as f64 * open.length().as_secs_f64() / OPEN_DURATION.as_secs_f64();

        let elapsed = began.elapsed().as_secs_f64();
        let agents_cpu_share = match (&tuners, agents_before) {
            (Some(tuners), Some(before)) => {
                let used = tuners.cpu_time()?.saturating_sub(before);
                Some(used.as_secs_f64() / elapsed)
            }
            _ => None,
        };
        if let Some(decisions) = tuners.map(Tuners::finish).transpose()?
            && decisions.is_empty()
        {
            bail!("the agents saw nothing of the benchmark; see `batchwise doctor`");
        }
        let per_request = |cpu: Duration, requests: f64| cpu.as_nanos() as f64 / requests;
        if report.requests == 0 {
            return Err(anyhow!("the open loop sent nothing"));
        }
        Ok(Point {
            round: self.turn.round,
            position: self.turn.position,
            agents: self.turn.arm,
            rps: result.rps,
            learning_rps,
            server_cpu_ns_per_request: per_request(closed_cpu, self.benchmark.requests as f64),
            open_mean_ns: report.latency_ns.mean,
            open_server_cpu_ns_per_request: per_request(open_cpu, all),
            agents_cpu_share,
        })
    }
}
