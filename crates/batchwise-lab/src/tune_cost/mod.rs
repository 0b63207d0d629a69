//! Experiment `tune-cost`: what tuning itself costs where it has nothing to gain. Requests never
//! overlap on a connection, so that Nagle's algorithm has nothing to hold back and both arms of a
//! service are alike; what is left is estimating, exchanging, probing and switching.

mod summary;

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::color::{BATCHWISE, NODELAY};
use crate::engine::text::{percent, quartiles};
use crate::engine::{
    Experiment, Figure, Judgement, NoMore, Ratio, Report, Results, Round, Run, Strip, Table, Turn,
    two_hosts,
};
use crate::stats::Spread;
use crate::tuner::{SLO_POLICY, Tuners};
use batchwise_testbed::load::{LoadPhase, LoadSpec};
use batchwise_testbed::redis::{Benchmark, PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use summary::{Summary, of_rounds};

/// Runs before the measured one, in which the agents learn: of every round, also without agents.
const LEARNING_RUNS: u32 = 2;
/// The open loop: light enough that both arms are far from their limits.
const OPEN_RATE: u64 = 50_000;
const OPEN_DURATION: Duration = Duration::from_secs(2);
const OPEN_WARMUP: Duration = Duration::from_millis(500);

/// What tuning costs.
pub struct TuneCost;

/// Whether agents run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agents {
    /// Nothing is attached.
    Off,
    /// One at each host.
    On,
}

/// A run of the benchmark and one of the open loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Why the open loop's generator does not trust its numbers.
    #[serde(default)]
    pub why_invalid: Vec<String>,
}

/// Two hosts, a server, and the closed loop.
pub struct Stage {
    redis: RedisServer,
    benchmark: Benchmark,
    hosts: TwoHosts,
}

impl Experiment for TuneCost {
    type Stage = Stage;
    type Arm = Agents;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "tune-cost"
    }

    fn about(&self) -> &'static str {
        "what tuning itself costs Redis where both settings are alike: throughput, CPU, latency"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Agents>>> {
        let rounds = if quick { 15 } else { 40 };
        Ok(Round::shuffled(rounds, &[Agents::Off, Agents::On]))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (hosts, network) = two_hosts("tune-cost")?;
        let redis = RedisServer::start(&hosts.server, &context.stop)?;
        let seconds = if context.quick { 2.0 } else { 4.0 };
        let benchmark = Benchmark::lasting(seconds, &hosts, &context.stop)?;
        let stage = Stage {
            redis,
            benchmark,
            hosts,
        };
        Ok((stage, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Agents>,
    ) -> Result<Vec<Point>> {
        let point = point(run.context, stage, turn)?;
        stage.redis.check_alive()?;
        Ok(vec![point])
    }

    fn judge(&self, point: &Point) -> Judgement {
        Judgement::valid_if(point.why_invalid.is_empty(), point.why_invalid.join(", "))
    }

    fn describe(&self, point: &Point) -> String {
        let (round, rps) = (point.round + 1, point.rps);
        format!(
            "round {round}, agents {:?}: {rps:.0} requests/s",
            point.agents
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let points = &results.points;
        let throughput = of_rounds(points, |p| p.rps);
        let cpu = of_rounds(points, |p| p.open_server_cpu_ns_per_request);
        let strips = vec![
            Strip::new("throughput", BATCHWISE, &throughput),
            Strip::new("server CPU, open loop", NODELAY, &cpu),
        ];
        let title = "With agents over without, in the same round";
        Report::new(
            "Tune cost: what tuning costs where it has nothing to gain",
            "redis-benchmark, 64-byte SETs, 10 connections, one request in flight on each, which \
             Nagle's algorithm never delays; an agent at each host, or none, in random order.",
        )
        .heading("Summary")
        .table(table(summary))
        .text(format!(
            "Medians of the rounds' ratios with a 95 % bootstrap interval, over {} rounds. \
             Throughput and the first CPU figure are of redis-benchmark, the others of an open loop \
             of {OPEN_RATE} requests/s. CPU time is that of the server process. Both agents together, \
             which run beside the workloads, took {} of a CPU.",
            summary.rounds,
            percent(summary.agents_cpu_share)
        ))
        .figure(Figure::ratios("ratios.svg", title, "ratio", strips))
    }
}

fn table(summary: &Summary) -> Table {
    let spread = |s: Option<Spread>| s.map_or_else(String::new, quartiles);
    let mut table = Table::new(["", "with agents / without", "without", "with"]);
    table.row([
        "requests/s".into(),
        Ratio::text(summary.throughput.as_ref()),
        spread(summary.rps_off),
        spread(summary.rps_on),
    ]);
    for (name, value) in [
        ("requests/s while the agents learn", summary.learning),
        ("server CPU per request", summary.server_cpu),
        ("open loop: server CPU per request", summary.open_server_cpu),
        ("open loop: mean latency", summary.open_latency),
    ] {
        let value = Ratio::text(value.as_ref());
        table.row([name.into(), value, String::new(), String::new()]);
    }
    table
}

fn point(context: &Context, stage: &Stage, turn: Turn<'_, Agents>) -> Result<Point> {
    let Stage {
        redis,
        benchmark,
        hosts,
    } = stage;
    let tuners = match turn.arm {
        Agents::On => {
            let label = format!("{}", turn.round + 1);
            Some(Tuners::start(context, hosts, SLO_POLICY, &label)?)
        }
        Agents::Off => None,
    };
    let began = Instant::now();
    let agents_before = tuners.as_ref().map(Tuners::cpu_time).transpose()?;

    let mut learning_rps = 0.0;
    for _ in 0..LEARNING_RUNS {
        let run = benchmark.run(hosts, &context.stop)?;
        learning_rps += run.rps / f64::from(LEARNING_RUNS);
    }
    let before = redis.cpu_time()?;
    let result = benchmark.run(hosts, &context.stop)?;
    let closed_cpu = redis.cpu_time()?.saturating_sub(before);

    let open = LoadSpec {
        address: hosts.server_address(PORT),
        phases: vec![LoadPhase {
            duration: OPEN_DURATION,
            rate: OPEN_RATE,
            climb_to: None,
            value_size: benchmark.value_size,
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
    let all = report.requests as f64 * open.length().as_secs_f64() / OPEN_DURATION.as_secs_f64();

    let elapsed = began.elapsed().as_secs_f64();
    let agents_cpu_share = match (&tuners, agents_before) {
        (Some(tuners), Some(before)) => {
            let used = tuners.cpu_time()?.saturating_sub(before);
            Some(used.as_secs_f64() / elapsed)
        }
        _ => None,
    };
    let decisions = tuners.map(Tuners::finish).transpose()?;
    if decisions.is_some_and(|decisions| decisions.is_empty()) {
        bail!("the agents saw nothing of the benchmark; see `batchwise doctor`");
    }
    let per_request = |cpu: Duration, requests: f64| cpu.as_nanos() as f64 / requests;
    if report.requests == 0 {
        return Err(anyhow!("the open loop sent nothing"));
    }
    Ok(Point {
        round: turn.round,
        position: turn.position,
        agents: *turn.arm,
        rps: result.rps,
        learning_rps,
        server_cpu_ns_per_request: per_request(closed_cpu, benchmark.requests as f64),
        open_mean_ns: report.latency_ns.mean,
        open_server_cpu_ns_per_request: per_request(open_cpu, all),
        agents_cpu_share,
        why_invalid: report.why_invalid,
    })
}
