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
use batchwise_core::sense::report::{Side, Unit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::Arm as Setting;
use crate::engine::text::{duration, maybe_duration};
use crate::engine::{Experiment, Judgement, NoMore, Report, Results, Round, Run, Turn};
use crate::ladder::{OnLadder, Rung};
use crate::redis::{Redis, judge, steady};
use batchwise_testbed::host::Host;
use batchwise_testbed::load::{LatencySummary, LoadReport, LoadSpec, saturated};
use batchwise_testbed::redis::{NAGLE_PORT, PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use batchwise_testbed::window::{EndEstimate, estimates_in};
use plan::{Extent, NagleAt, Switched, WORKLOADS};
use summary::{Summary, estimate};

/// Between two lines of a watcher. The lines at a window's edges do not count, so that this is also
/// how much of a window goes unseen: a disturbance there is in the truth, not in the estimate.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long the line of a window's last interval may take to arrive.
const LINE_DELAY: Duration = Duration::from_millis(100);

/// The paper's Figure 4.
pub struct Accuracy;

/// One measured point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Name of the workload.
    pub workload: String,
    /// At which end Nagle is switched.
    pub nagle_at: NagleAt,
    /// TCP_NODELAY of that end; `false` is Nagle's algorithm on.
    pub nodelay: bool,
    /// The load step, requests a second.
    pub step_rps: u64,
    /// Which repetition, from 0.
    pub repeat: u32,
    /// 0, or 1 for the second measurement that a saturated point gets.
    pub attempt: u32,
    /// What the generator measured.
    pub truth: Truth,
    /// See [`saturated`].
    pub saturated: bool,
    /// Estimates.
    pub ends: Ends,
}

/// What the load generator says of a point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Truth {
    /// Requests a second that were to be sent.
    pub offered_rps: f64,
    /// Requests a second that were answered.
    pub achieved_rps: f64,
    /// Requests in the window.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Latency from the send: what the estimate is compared with.
    pub from_send_ns: LatencySummary,
    /// Latency from the time the request was due: what a user feels.
    pub from_intended_ns: LatencySummary,
    /// Whether the generator trusts its numbers.
    pub valid: bool,
    /// Why not.
    pub why_invalid: Vec<String>,
    /// Begin of the window, ns since the Unix epoch.
    pub measured_from_ts_ns: u64,
    /// End of the window, ns since the Unix epoch.
    pub measured_to_ts_ns: u64,
}

/// What each end estimated, by unit; empty where its watcher had no line in the window.
pub type Ends = BTreeMap<Side, BTreeMap<Unit, EndEstimate>>;

/// Two hosts, both servers, both ends' watchers.
pub struct Stage {
    watchers: Watchers,
    redis_with_nagle: RedisServer,
    redis: Redis,
}

/// A step of a ladder.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    switched: &'static Switched,
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
        for repeat in 0..Extent::new(quick).repeats {
            for switched in &WORKLOADS {
                let steps = switched.workload.steps(quick).iter().enumerate();
                rounds.push(Round::in_order(steps.flat_map(|(index, &step)| {
                    let nodelay_first = (index + repeat as usize).is_multiple_of(2);
                    [nodelay_first, !nodelay_first].map(|nodelay| Arm {
                        switched,
                        nodelay,
                        step,
                        repeat,
                    })
                })));
            }
        }
        Ok(rounds)
    }

    fn ladder(&self, arm: &Arm) -> Option<String> {
        Some(format!("nodelay {}", arm.nodelay))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (redis, network) = Redis::start(context, "accuracy")?;
        let server = &redis.hosts.server;
        let redis_with_nagle = RedisServer::start_with_nagle(server, &context.stop)?;
        let stage = Stage {
            watchers: Watchers::start(context, &redis.hosts)?,
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
            switched: Switched { workload, nagle_at },
            nodelay,
            step,
            repeat,
        } = *turn.arm;
        let extent = Extent::new(context.quick);
        let (port, client_nodelay) = match nagle_at {
            NagleAt::Client => (PORT, nodelay),
            NagleAt::Server if nodelay => (PORT, true),
            NagleAt::Server => (NAGLE_PORT, true),
        };
        let phase = steady(extent.duration, step, workload.value_size);
        let load = LoadSpec {
            address: stage.redis.hosts.server_address(port),
            get_ratio: workload.get_ratio,
            nodelay: client_nodelay,
            ..stage
                .redis
                .load(Setting::Nodelay, extent.warmup, vec![phase])
        };
        let report = stage.redis.run(context, &load)?;
        context.stop.sleep(LINE_DELAY)?;
        stage.watchers.check()?;
        stage.redis.server.check_alive()?;
        stage.redis_with_nagle.check_alive()?;
        let (from, to) = (report.measured_from_ts_ns, report.measured_to_ts_ns);
        let truth = Truth::from(report);
        let (offered, achieved) = (truth.offered_rps, truth.achieved_rps);
        let felt_ns = truth.from_intended_ns.mean;
        Ok(vec![Point {
            workload: workload.name.into(),
            nagle_at: *nagle_at,
            nodelay,
            step_rps: step,
            repeat,
            attempt: turn.attempt,
            saturated: saturated(offered, achieved, felt_ns, truth.errors),
            truth,
            ends: stage.watchers.estimates(from, to),
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
            duration(point.truth.from_send_ns.mean),
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

/// A watcher at each end.
struct Watchers([(Side, Watcher); 2]);

impl Watchers {
    fn start(context: &Context, hosts: &TwoHosts) -> Result<Self> {
        let start = |side: Side, host: &Host| -> Result<_> {
            let spec = WatchSpec {
                ports: &[PORT, NAGLE_PORT],
                interval: INTERVAL,
                units: Some("sends,bytes,packets"),
                exchange: true,
                cgroup: Some(host.cgroup()),
            };
            let watcher = Watcher::start(&context.command, host, &spec, &context.stop);
            Ok((
                side,
                watcher.with_context(|| format!("at the {side:?}'s end"))?,
            ))
        };
        let server = start(Side::Server, &hosts.server)?;
        Ok(Self([server, start(Side::Client, &hosts.client)?]))
    }

    fn check(&mut self) -> Result<()> {
        let check = |(side, watcher): &mut (Side, Watcher)| {
            watcher
                .check()
                .with_context(|| format!("at the {side:?}'s end"))
        };
        self.0.iter_mut().try_for_each(check)
    }

    /// What the lines since the last call say of a window.
    fn estimates(&self, from: u64, to: u64) -> Ends {
        let of = |(side, watcher): &(Side, Watcher)| {
            (*side, estimates_in(&watcher.take_lines(), *side, from, to))
        };
        self.0.iter().map(of).collect()
    }
}

impl From<LoadReport> for Truth {
    fn from(report: LoadReport) -> Self {
        Self {
            offered_rps: report.offered_rps,
            achieved_rps: report.achieved_rps,
            requests: report.requests,
            errors: report.errors,
            from_send_ns: report.latency_from_send_ns,
            from_intended_ns: report.latency_ns,
            valid: report.valid,
            why_invalid: report.why_invalid,
            measured_from_ts_ns: report.measured_from_ts_ns,
            measured_to_ts_ns: report.measured_to_ts_ns,
        }
    }
}
