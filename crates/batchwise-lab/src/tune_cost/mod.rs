//! Experiment `tune-cost`: what tuning itself costs where it has nothing to gain. Requests never
//! overlap on a connection, so that Nagle's algorithm has nothing to hold back and both arms of a
//! service are alike; what is left is looking, counting, testing and switching.

mod summary;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::Arm;
use crate::engine::color::{BATCHWISE, NODELAY};
use crate::engine::text::{percent, quartiles};
use crate::engine::{
    Experiment, Figure, Judgement, NoMore, Ratio, Report, Results, Round, Run, Strip, Table, Turn,
};
use crate::redis::{Redis, steady};
use crate::stats::Spread;
use crate::tuner::{SLO_POLICY, Tuners};
use batchwise_testbed::redis::Benchmark;
use summary::{Summary, of_rounds};

/// Runs before the measured one, in which the agents learn: of every round, also without agents.
const LEARNING_RUNS: u32 = 2;
/// The open loop: light enough that both arms are far from their limits.
const OPEN_RATE: u64 = 50_000;
const OPEN_DURATION: Duration = Duration::from_secs(2);
const OPEN_WARMUP: Duration = Duration::from_millis(500);

pub(crate) struct TuneCost;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Agents {
    Off,
    /// One at each host.
    On,
}

/// A run of the benchmark and one of the open loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    round: u32,
    position: usize,
    agents: Agents,
    /// Of the benchmark, once the agents have learned.
    rps: f64,
    /// The same before, while they learn.
    learning_rps: f64,
    /// Of the benchmark.
    server_cpu_ns_per_request: f64,
    /// Mean latency of the open loop from the intended send time.
    open_mean_ns: f64,
    open_server_cpu_ns_per_request: f64,
    /// Both agents' CPU time over the time of both runs.
    agents_cpu_share: Option<f64>,
    /// Why the open loop's generator does not trust its numbers.
    #[serde(default)]
    why_invalid: Vec<String>,
}

/// A server, and the closed loop.
pub(crate) struct Stage {
    benchmark: Benchmark,
    redis: Redis,
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
        let (redis, network) = Redis::start(context, "tune-cost")?;
        let seconds = if context.quick { 2.0 } else { 4.0 };
        let benchmark = Benchmark::lasting(seconds, &redis.hosts, &context.stop)?;
        Ok((Stage { benchmark, redis }, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Agents>,
    ) -> Result<Vec<Point>> {
        let (context, benchmark, redis) = (run.context, &stage.benchmark, &stage.redis);
        let label = (turn.round + 1).to_string();
        let tuners = (*turn.arm == Agents::On)
            .then(|| Tuners::start(context, &redis.hosts, SLO_POLICY, &label))
            .transpose()?;
        let began = Instant::now();
        let agents_cpu = || tuners.as_ref().map(Tuners::cpu_time).transpose();
        let before = agents_cpu()?;

        let mut learning_rps = 0.0;
        for _ in 0..LEARNING_RUNS {
            let run = benchmark.run(&redis.hosts, &context.stop)?;
            learning_rps += run.rps / f64::from(LEARNING_RUNS);
        }
        let (result, closed_cpu) = cpu_of(redis, || benchmark.run(&redis.hosts, &context.stop))?;

        let phase = steady(OPEN_DURATION, OPEN_RATE, benchmark.value_size);
        let open = redis.load(Arm::Nodelay, OPEN_WARMUP, vec![phase]);
        let (report, open_cpu) = cpu_of(redis, || redis.run(context, &open))?;
        ensure!(report.requests > 0, "the open loop sent nothing");
        // The warm-up's requests are served, too.
        let whole = open.length().as_secs_f64() / OPEN_DURATION.as_secs_f64();

        let elapsed = began.elapsed().as_secs_f64();
        let agents_cpu = agents_cpu()?.zip(before);
        if let Some(tuners) = tuners {
            let blind = "the agents saw nothing of the benchmark; see `batchwise doctor`";
            ensure!(!tuners.finish()?.is_empty(), blind);
        }
        stage.redis.server.check_alive()?;
        Ok(vec![Point {
            round: turn.round,
            position: turn.position,
            agents: *turn.arm,
            rps: result.rps,
            learning_rps,
            server_cpu_ns_per_request: closed_cpu / benchmark.requests as f64,
            open_mean_ns: report.latency_ns.mean,
            open_server_cpu_ns_per_request: open_cpu / (report.requests as f64 * whole),
            agents_cpu_share: agents_cpu
                .map(|(after, before)| after.saturating_sub(before).as_secs_f64() / elapsed),
            why_invalid: report.why_invalid,
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        Judgement::valid_if(point.why_invalid.is_empty(), point.why_invalid.join(", "))
    }

    fn describe(&self, point: &Point) -> String {
        let (round, agents) = (point.round + 1, point.agents);
        format!(
            "round {round}, agents {agents:?}: {:.0} requests/s",
            point.rps
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
    let (without, with) = (summary.rps_off, summary.rps_on);
    let rows = [
        ("requests/s", summary.throughput, [without, with]),
        (
            "requests/s while the agents learn",
            summary.learning,
            [None; 2],
        ),
        ("server CPU per request", summary.server_cpu, [None; 2]),
        (
            "open loop: server CPU per request",
            summary.open_server_cpu,
            [None; 2],
        ),
        ("open loop: mean latency", summary.open_latency, [None; 2]),
    ];
    let known = |spread: Option<Spread>| spread.map_or_else(String::new, quartiles);
    Table::of(
        rows,
        &[
            ("", &|row| row.0.into()),
            ("with agents / without", &|row| Ratio::text(row.1.as_ref())),
            ("without", &|row| known(row.2[0])),
            ("with", &|row| known(row.2[1])),
        ],
    )
}

/// What `what` gives, and the server's CPU time meanwhile, ns.
fn cpu_of<T>(redis: &Redis, what: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let before = redis.server.cpu_time()?;
    let found = what()?;
    let cpu = redis.server.cpu_time()?.saturating_sub(before);
    Ok((found, cpu.as_nanos() as f64))
}
