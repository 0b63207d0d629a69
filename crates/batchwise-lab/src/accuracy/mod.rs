//! Experiment `accuracy`, the paper's Figure 4: measured latency against the estimate from queue
//! states, with Nagle on and off, from light load to collapse. This file owns the measuring.

mod figures;
mod plan;
mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_core::sense::report::{Line, Side, Unit};
use batchwise_testbed::load::{LatencySummary, LoadPhase, LoadReport, LoadSpec, saturated};
use batchwise_testbed::redis::{NAGLE_PORT, PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use batchwise_testbed::window::{EndEstimate, estimates_in};
use serde::Serialize;

use crate::frame::{Frame, Measured, NoMore};
use crate::ladder::{OnLadder, Rung, collapses};
use crate::output::Progress;
use crate::{Context, Experiment};
use plan::{Extent, NagleAt, Switched, WORKLOADS};
use summary::Summary;

/// Between two lines of a watcher. The lines at a window's edges do not count, so that this is also
/// how much of a window goes unseen: a disturbance there is in the truth, not in the estimate.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long the line of a window's last interval may take to arrive.
const LINE_DELAY: Duration = Duration::from_millis(100);

/// The paper's Figure 4.
pub struct Accuracy;

/// One measured point.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Name of the workload.
    pub workload: &'static str,
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
    /// What each end estimated, by unit; empty where a watcher had no line in the window.
    pub ends: Ends,
}

/// What the load generator says of a point.
#[derive(Clone, Debug, Serialize)]
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

/// Both ends' estimates, by unit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ends {
    /// Made at the server.
    pub server: BTreeMap<Unit, EndEstimate>,
    /// Made at the client.
    pub client: BTreeMap<Unit, EndEstimate>,
}

impl Experiment for Accuracy {
    fn name(&self) -> &'static str {
        "accuracy"
    }

    fn about(&self) -> &'static str {
        "measured against estimated latency, Nagle on and off, up to collapse (Figure 4)"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let extent = Extent::new(context.quick);
        Frame::run(self.name(), context, |frame, hosts, measured| {
            measure(frame, &extent, hosts, measured)
        })
    }
}

/// What was measured so far.
#[derive(Default)]
struct Points(Vec<Point>);

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

impl OnLadder for Point {
    fn rung(&self) -> Rung {
        Rung {
            workload: self.workload,
            step_rps: self.step_rps,
            repeat: self.repeat,
            attempt: self.attempt,
            saturated: self.saturated,
        }
    }
}

/// Both ends' watchers.
struct Watchers {
    server: Watcher,
    client: Watcher,
}

impl Watchers {
    fn start(context: &Context, hosts: &TwoHosts) -> Result<Self> {
        let start = |host: &batchwise_testbed::host::Host| {
            let spec = WatchSpec {
                ports: &[PORT, NAGLE_PORT],
                interval: INTERVAL,
                units: Some("sends,bytes,packets"),
                exchange: true,
                cgroup: Some(host.cgroup()),
            };
            Watcher::start(&context.command, host, &spec, &context.stop)
        };
        Ok(Self {
            server: start(&hosts.server).context("at the server's end")?,
            client: start(&hosts.client).context("at the client's end")?,
        })
    }

    fn check(&mut self) -> Result<()> {
        self.server.check().context("at the server's end")?;
        self.client.check().context("at the client's end")
    }

    /// The lines since the last call.
    fn take(&self) -> (Vec<Line>, Vec<Line>) {
        (self.server.take_lines(), self.client.take_lines())
    }
}

/// Measures everything, in rounds: in each, all workloads, and the two arms of a step next to each
/// other in an order that alternates.
fn measure(
    frame: &Frame<'_>,
    extent: &Extent,
    hosts: &TwoHosts,
    measured: &mut Points,
) -> Result<()> {
    let context = frame.context;
    let mut redis = RedisServer::start(&hosts.server, &context.stop)?;
    let mut redis_with_nagle = RedisServer::start_with_nagle(&hosts.server, &context.stop)?;
    let mut watchers = Watchers::start(context, hosts)?;
    let mut progress = Progress::new(extent.most_points());
    for repeat in 0..extent.repeats {
        for switched in &WORKLOADS {
            let steps = switched.workload.steps(extent.quick);
            let mut collapsed = [false; 2];
            for (index, &step) in steps.iter().enumerate() {
                let nodelay_first = (index + repeat as usize).is_multiple_of(2);
                for nodelay in [nodelay_first, !nodelay_first] {
                    if collapsed[usize::from(nodelay)] {
                        progress.skip(1);
                        continue;
                    }
                    collapsed[usize::from(nodelay)] = collapses(|attempt| {
                        let task = Task {
                            switched,
                            nodelay,
                            step,
                            repeat,
                            attempt,
                        };
                        let point = task.measure(context, extent, hosts, &mut watchers)?;
                        redis.check_alive()?;
                        redis_with_nagle.check_alive()?;
                        if attempt == 0 {
                            progress.step(&describe(&point));
                        }
                        let saturated = point.saturated;
                        measured.0.push(point);
                        Ok(saturated)
                    })?;
                }
            }
            measured.write(frame, false)?;
        }
    }
    if measured
        .0
        .iter()
        .all(|p| p.ends.server.is_empty() && p.ends.client.is_empty())
    {
        bail!(
            "the watchers ran but saw no connection to port {PORT} or {NAGLE_PORT}; see `batchwise doctor`"
        );
    }
    Ok(())
}

/// One point that is to be measured.
struct Task<'a> {
    switched: &'a Switched,
    nodelay: bool,
    step: u64,
    repeat: u32,
    attempt: u32,
}

impl Task<'_> {
    fn measure(
        &self,
        context: &Context,
        extent: &Extent,
        hosts: &TwoHosts,
        watchers: &mut Watchers,
    ) -> Result<Point> {
        let Switched { workload, nagle_at } = self.switched;
        let (port, client_nodelay) = match nagle_at {
            NagleAt::Client => (PORT, self.nodelay),
            NagleAt::Server if self.nodelay => (PORT, true),
            NagleAt::Server => (NAGLE_PORT, true),
        };
        let spec = LoadSpec {
            address: hosts.server_address(port),
            phases: vec![LoadPhase {
                duration: extent.duration,
                rate: self.step,
                climb_to: None,
                value_size: workload.value_size,
            }],
            warmup: extent.warmup,
            get_ratio: workload.get_ratio,
            nodelay: client_nodelay,
            busy_per_response: Duration::ZERO,
        };
        let report = spec.run(&context.command, &hosts.client, &context.stop)?;
        context.stop.sleep(LINE_DELAY)?;
        watchers.check()?;
        let (server, client) = watchers.take();
        let (from, to) = (report.measured_from_ts_ns, report.measured_to_ts_ns);
        Ok(Point {
            workload: workload.name,
            nagle_at: *nagle_at,
            nodelay: self.nodelay,
            step_rps: self.step,
            repeat: self.repeat,
            attempt: self.attempt,
            saturated: saturated(
                report.offered_rps,
                report.achieved_rps,
                report.latency_ns.mean,
                report.errors,
            ),
            truth: truth(report),
            ends: Ends {
                server: estimates_in(&server, Side::Server, from, to),
                client: estimates_in(&client, Side::Client, from, to),
            },
        })
    }
}

fn truth(report: LoadReport) -> Truth {
    Truth {
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

fn describe(point: &Point) -> String {
    let micros = |ns: f64| format!("{:.0} µs", ns / 1e3);
    let estimate = |end: &BTreeMap<Unit, EndEstimate>| {
        end.get(&Unit::Sends)
            .and_then(|e| e.total_ns)
            .map_or_else(|| "none".into(), micros)
    };
    format!(
        "{} {}/s nagle {}: measured {}, estimated {} (client) {} (server){}",
        point.workload,
        point.step_rps,
        if point.nodelay { "off" } else { "on" },
        micros(point.truth.from_send_ns.mean),
        estimate(&point.ends.client),
        estimate(&point.ends.server),
        if point.saturated { ", saturated" } else { "" },
    )
}
