//! Experiment `accuracy`, the paper's Figure 4: measured latency against the estimate from queue
//! states, with Nagle on and off, from light load to collapse.

mod figures;
mod plan;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_core::sense::report::{Estimator, Line, Side, Unit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::Arm as Setting;
use crate::engine::stalls::{Gap, Monitor};
use crate::engine::text::{duration, maybe_duration};
use crate::engine::{Experiment, Judgement, NoMore, Report, Results, Round, Run, Turn};
use crate::ladder::{OnLadder, Rung, Workload};
use crate::redis::{Redis, is_saturated, judge, steady};
use batchwise_testbed::host::Host;
use batchwise_testbed::load::{LatencySummary, LoadInterval, LoadReport, LoadSpec};
use batchwise_testbed::redis::{NAGLE_PORT, PORT, RedisServer};
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use batchwise_testbed::window::{EndEstimate, estimates_in};
pub(crate) use plan::workload;
use plan::{Cost, NagleAt, WARMUP, WORKLOADS, measured, repeats};
use summary::{Summary, estimate};

/// Between two lines of a watcher.
const INTERVAL: Duration = Duration::from_millis(250);
/// The same of one that keeps a budget: the command's default.
const BUDGET_INTERVAL: Duration = Duration::from_secs(1);
/// Between two reports of the load generator: the truth of a line is known to so much at its edges.
const BIN: Duration = Duration::from_millis(20);
/// How long what a stall held up may take to be answered.
const AFTER_GAP: Duration = Duration::from_millis(20);
/// A generator that is later than this, ns, and than this share of the latency, is not trusted: its own rule.
const LATE_NS: f64 = 5_000.0;
const LATE: f64 = 0.1;
/// How long the line of a window's last interval may take to arrive.
const LINE_DELAY: Duration = Duration::from_millis(100);

pub(crate) struct Accuracy;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    workload: String,
    #[serde(default)]
    cost: Cost,
    nagle_at: NagleAt,
    /// TCP_NODELAY of that end; `false` is Nagle's algorithm on.
    nodelay: bool,
    step_rps: u64,
    repeat: u32,
    /// 0, or 1 for the second measurement that a saturated point gets.
    attempt: u32,
    truth: Truth,
    saturated: bool,
    ends: Ends,
    /// What is true of the time that an end's estimates are of.
    #[serde(default)]
    undisturbed: BTreeMap<Side, Undisturbed>,
}

/// The time of those lines of a watcher in which the host took no CPU away. A stall of some ms moves the
/// mean of seconds, and a window that counts a tenth of the requests sees it ten times or not at all: it
/// is cut from the truth and from the estimate alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Undisturbed {
    /// Mean latency from the send, ns.
    mean_ns: f64,
    /// How late requests were sent, mean, ns.
    late_ns: f64,
    /// Share of the point's time.
    share: f64,
}

/// What the load generator says of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Truth {
    offered_rps: f64,
    achieved_rps: f64,
    requests: u64,
    errors: u64,
    /// Latency from the send: what the estimate is compared with.
    from_send_ns: LatencySummary,
    /// Latency from the time the request was due: what a user feels.
    from_intended_ns: LatencySummary,
    valid: bool,
    why_invalid: Vec<String>,
    measured_from_ts_ns: u64,
    measured_to_ts_ns: u64,
}

/// What each end estimated, by unit; empty where its watcher had no line in the window.
type Ends = BTreeMap<Side, BTreeMap<Unit, EndEstimate>>;

/// Two hosts, both servers, both ends' watchers.
pub(crate) struct Stage {
    /// One at each end, of one kind.
    watchers: Vec<(Cost, Side, Watcher)>,
    monitor: Option<Monitor>,
    redis_with_nagle: RedisServer,
    redis: Redis,
}

/// A step of a ladder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm {
    workload: &'static Workload,
    cost: Cost,
    nagle_at: NagleAt,
    nodelay: bool,
    step: u64,
    repeat: u32,
}

impl Experiment for Accuracy {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "accuracy"
    }

    fn about(&self) -> &'static str {
        "measured against estimated latency, Nagle on and off, up to collapse (Figure 4)"
    }

    /// A round is a workload's ladder: the two arms of a step next to each other, in an order that
    /// alternates.
    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let mut rounds = Vec::new();
        for cost in [Cost::Off, Cost::Budget] {
            for repeat in 0..repeats(quick, cost) {
                for &(nagle_at, ref workload) in &WORKLOADS {
                    let steps = workload.steps(quick || cost == Cost::Budget);
                    let steps = (repeat..).zip(steps);
                    rounds.push(Round::in_order(steps.flat_map(|(number, &step)| {
                        let nodelay_first = number % 2 == 0;
                        [nodelay_first, !nodelay_first].map(|nodelay| Arm {
                            workload,
                            cost,
                            nagle_at,
                            nodelay,
                            step,
                            repeat,
                        })
                    })));
                }
            }
        }
        Ok(rounds)
    }

    fn ladder(&self, arm: &Arm) -> Option<String> {
        Some(format!("nodelay {} {:?}", arm.nodelay, arm.cost))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (redis, network) = Redis::start(context, "accuracy")?;
        let server = &redis.hosts.server;
        let redis_with_nagle = RedisServer::start_with_nagle(server, &context.stop)?;
        let stage = Stage {
            watchers: Vec::new(),
            monitor: None,
            redis_with_nagle,
            redis,
        };
        Ok((stage, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let context = run.context;
        let Arm {
            workload,
            cost,
            nagle_at,
            nodelay,
            step,
            repeat,
        } = *turn.arm;
        stage.watch(context, cost)?;
        let (port, client_nodelay) = match nagle_at {
            NagleAt::Client => (PORT, nodelay),
            NagleAt::Server if nodelay => (PORT, true),
            NagleAt::Server => (NAGLE_PORT, true),
        };
        let phase = steady(measured(context.quick, cost), step, workload.value_size);
        let load = LoadSpec {
            address: stage.redis.hosts.server_address(port),
            get_ratio: workload.get_ratio,
            nodelay: client_nodelay,
            ..stage.redis.load(Setting::Nodelay, WARMUP, vec![phase])
        };
        let client = &stage.redis.hosts.client;
        let (mut report, intervals) =
            load.run_with_intervals(&context.command, client, BIN, &context.stop)?;
        context.stop.sleep(LINE_DELAY)?;
        for (_, side, watcher) in &mut stage.watchers {
            watcher.check().with_context(|| at_end(*side))?;
        }
        stage.redis.server.check_alive()?;
        stage.redis_with_nagle.check_alive()?;
        let (from, to) = (report.measured_from_ts_ns, report.measured_to_ts_ns);
        let gaps = stage.monitor.iter().flat_map(|m| m.gaps(from, to));
        let gaps: Vec<_> = gaps.collect();
        let (mut ends, mut undisturbed) = (Ends::new(), BTreeMap::new());
        for (_, side, watcher) in &stage.watchers {
            let mut lines = watcher.take_lines();
            lines.retain(|line| is_quiet(&gaps, span(line)));
            ends.insert(*side, estimates_in(&lines, *side, from, to));
            let found = Undisturbed::of(&lines, &intervals, from, to);
            undisturbed.extend(found.map(|found| (*side, found)));
        }
        match undisturbed.get(&Side::Client) {
            // what the stalls delayed is cut
            Some(found) if report.only_late && !found.is_late(&report) => {
                report.valid = true;
                report.why_invalid.clear();
            }
            Some(_) => {}
            None => {
                report.valid = false;
                let why = "the host took a CPU away in each of the watcher's lines";
                report.why_invalid.push(why.into());
            }
        }
        Ok(vec![Point {
            workload: workload.name.into(),
            cost,
            nagle_at,
            nodelay,
            step_rps: step,
            repeat,
            attempt: turn.attempt,
            saturated: is_saturated(&report),
            truth: Truth {
                offered_rps: report.offered_rps,
                achieved_rps: report.achieved_rps,
                requests: report.requests,
                errors: report.errors,
                from_send_ns: report.latency_from_send_ns,
                from_intended_ns: report.latency_ns,
                valid: report.valid,
                why_invalid: report.why_invalid,
                measured_from_ts_ns: from,
                measured_to_ts_ns: to,
            },
            ends,
            undisturbed,
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        judge(point.saturated, point.truth.valid, &point.truth.why_invalid)
    }

    fn describe(&self, point: &Point) -> String {
        let estimate =
            |side| maybe_duration(estimate(point, side, Unit::Sends).and_then(|e| e.total_ns));
        format!(
            "{} {}/s nagle {}: measured {}, estimated {} (client) {} (server){}",
            point.workload,
            point.step_rps,
            if point.nodelay { "off" } else { "on" },
            duration(point.truth_ns(Side::Client)),
            estimate(Side::Client),
            estimate(Side::Server),
            if point.saturated { ", saturated" } else { "" },
        )
    }

    fn finish(
        &self,
        _run: &mut Run<'_, NoMore>,
        _stage: &mut Stage,
        points: &[Point],
    ) -> Result<()> {
        let blind = |p: &Point| p.ends.values().all(BTreeMap::is_empty);
        if points.iter().all(blind) {
            bail!(
                "the watchers ran but saw no connection to port {PORT} or {NAGLE_PORT}; see `batchwise doctor`"
            );
        }
        Ok(())
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points, &results.invalid)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        figures::report(&results.points, summary)
    }
}

/// From when to when a line is, ns since the Unix epoch.
fn span(line: &Line) -> (u64, u64) {
    (line.ts_ns.saturating_sub(line.interval_ns), line.ts_ns)
}

/// Whether no CPU was taken away in a time, nor so shortly before it that what waited then is still there.
fn is_quiet(gaps: &[Gap], (from, to): (u64, u64)) -> bool {
    let after = AFTER_GAP.as_nanos() as u64;
    gaps.iter()
        .all(|gap| gap.to + after < from || gap.from > to)
}

impl Undisturbed {
    /// Of these lines, as far as they are within `from..=to` and estimates are made of them: two-sided ones,
    /// if there are any. `None` without any.
    fn of(lines: &[Line], intervals: &[LoadInterval], from: u64, to: u64) -> Option<Self> {
        let is_two_sided = |line: &Line| line.estimator == Estimator::TwoSided;
        let any = lines.iter().any(is_two_sided);
        let spans: Vec<_> = lines
            .iter()
            .filter(|line| is_two_sided(line) || !any)
            .map(span)
            .filter(|(begin, end)| *begin >= from && *end <= to)
            .collect();
        let is_inside = |interval: &&LoadInterval| {
            let middle = interval.ts_ns - interval.interval_ns / 2;
            spans
                .iter()
                .any(|(begin, end)| (*begin..*end).contains(&middle))
        };
        let (mut requests, mut sum, mut late, mut time) = (0.0, 0.0, 0.0, 0);
        for interval in intervals.iter().filter(is_inside) {
            let answered = interval.achieved_rps * interval.interval_ns as f64;
            let from_send = interval.mean_from_send_ns.unwrap_or(0.0);
            requests += answered;
            sum += answered * from_send;
            late += answered * (interval.mean_from_intended_ns.unwrap_or(0.0) - from_send);
            time += interval.interval_ns;
        }
        (requests > 0.0).then(|| Self {
            mean_ns: sum / requests,
            late_ns: late / requests,
            share: time as f64 / to.saturating_sub(from).max(1) as f64,
        })
    }

    /// Whether requests were sent later than the generator's own rule allows.
    fn is_late(&self, report: &LoadReport) -> bool {
        let own = self.late_ns - report.expected_lateness_ns.unwrap_or(0.0);
        own > LATE_NS && own > LATE * (self.mean_ns + self.late_ns)
    }
}

impl Point {
    /// Mean latency from the send in the time that an end's estimates are of, ns.
    fn truth_ns(&self, end: Side) -> f64 {
        let undisturbed = self.undisturbed.get(&end);
        undisturbed.map_or(self.truth.from_send_ns.mean, |found| found.mean_ns)
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

impl Stage {
    /// Starts watchers of that kind, if others run: of two pairs that exchange, one would spoil the other's.
    fn watch(&mut self, context: &Context, cost: Cost) -> Result<()> {
        if self.watchers.first().is_some_and(|(of, ..)| *of == cost) {
            return Ok(());
        }
        self.watchers.clear();
        self.monitor = None;
        let start = |side: Side, host: &Host| -> Result<_> {
            let spec = WatchSpec {
                ports: &[PORT, NAGLE_PORT],
                interval: match cost {
                    Cost::Off => INTERVAL,
                    Cost::Budget => BUDGET_INTERVAL,
                },
                units: (cost == Cost::Off).then_some("sends,bytes,packets"),
                exchange: true,
                cgroup: Some(host.cgroup()),
                cost: (cost == Cost::Off).then_some("off"),
            };
            let watcher = Watcher::start(&context.command, host, &spec, &context.stop);
            Ok((cost, side, watcher.with_context(|| at_end(side))?))
        };
        let hosts = &self.redis.hosts;
        let server = start(Side::Server, &hosts.server)?;
        self.watchers = vec![server, start(Side::Client, &hosts.client)?];
        let own: Vec<_> = self.watchers.iter().map(|w| w.2.pid()).collect();
        self.monitor = Some(Monitor::start(
            &[hosts.server.cpu(), hosts.client.cpu()],
            &own,
        ));
        Ok(())
    }
}

fn at_end(side: Side) -> String {
    format!("at the {side:?}'s end")
}
