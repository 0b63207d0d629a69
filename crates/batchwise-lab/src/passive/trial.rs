//! One run: a load through the vantage, an observer there, baselines beside it, and what is true
//! in each epoch of each connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::cpu_share::{Applied, CpuShare};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{Triangle, VANTAGE_LINK};
use batchwise_testbed::wire::Counts;
use serde::Serialize;

use super::capture::{Capture, ack_round_trips, handshakes};
use super::observer::{Observed, Observer, PassiveSpec, Totals};
use super::tcp_probe::TcpProbe;
use super::workload::{Server, Workload};
use crate::Context;
use crate::truth::{
    Epoch, Errors, Paired, Request, Truth, by_connection, with_constants, with_samples,
    with_triggered,
};

/// Requests of the first moments do not count: connections are being made.
const SETTLE: Duration = Duration::from_secs(1);

/// What is measured, and beside what.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The load.
    pub workload: Workload,
    /// Length of an epoch.
    pub epoch: Duration,
    /// The server's share of its CPU; all of it when `None`.
    pub share: Option<Trace>,
    /// Whether the baselines run, too.
    pub baselines: bool,
    /// Captures at the vantage to keep: what each is of, as a filter of tcpdump.
    pub captures: Vec<String>,
}

/// Ways to estimate besides ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// The client's own time from request to triggered request: no estimate, but the most that
    /// one from the path can be.
    ReqToReq,
    /// SYN to ACK at the vantage.
    SynAck,
    /// The kernel's smoothed round-trip time at the client.
    TcpProbe,
    /// Round-trip times from data to acknowledgment, in a capture at the client.
    AckRtt,
}

impl Baseline {
    /// What estimates, without the client's own measurement.
    pub const ESTIMATORS: [Self; 3] = [Self::SynAck, Self::TcpProbe, Self::AckRtt];

    /// In legends.
    pub fn label(self) -> &'static str {
        match self {
            Self::ReqToReq => "req-to-req, at the client",
            Self::SynAck => "SYN to ACK",
            Self::TcpProbe => "tcp_probe",
            Self::AckRtt => "ACK times (tshark)",
        }
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// The requests that count.
    pub truth: Truth,
    /// Epochs with truth and estimate.
    pub paired: Vec<Paired>,
    /// The same epochs with what others estimated.
    pub baselines: BTreeMap<Baseline, Vec<Paired>>,
    /// The server's shares as they came into force.
    pub shares: Vec<Applied>,
    /// Begin of what counts, ns since 1970.
    pub from_ns: u64,
    /// The captures that were asked for.
    pub captures: Vec<Capture>,
    /// As for `result.json`.
    pub point: Point,
}

/// A run in `result.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// What was run.
    pub arm: String,
    /// The load.
    pub workload: Workload,
    /// Length of an epoch.
    pub epoch_ns: u64,
    /// Requests that count, also those in no epoch.
    pub requests: usize,
    /// Responses a second.
    pub achieved_rps: f64,
    /// By epoch, against the time to the response.
    pub errors: Errors,
    /// By epoch, against the time to the triggered request.
    pub against_req_to_req: Errors,
    /// Means of connections, against the time to the response.
    pub by_connection: Errors,
    /// What others estimated, against the time to the response.
    pub baselines: BTreeMap<Baseline, Errors>,
    /// What the observer saw.
    pub totals: Option<Totals>,
    /// What the wire between client and vantage did.
    pub wire: Option<Counts>,
    /// What the load says of itself.
    pub load: serde_json::Value,
}

impl Point {
    /// For who watches the run.
    pub fn in_words(&self) -> String {
        let percent = |share: Option<f64>| share.map_or(f64::NAN, |share| share * 100.0);
        format!(
            "{}: {:.0} responses/s, median error {:.2} %, absolute {:.2} %, within 15 %: {:.1} %",
            self.arm,
            self.achieved_rps,
            percent(self.errors.median_rel_error),
            percent(self.errors.median_abs_rel_error),
            percent(self.errors.within_15_percent),
        )
    }

    /// What the load says against itself.
    pub fn why_invalid(&self) -> Option<String> {
        let why = self.load.get("why_invalid")?.as_array()?;
        let why: Vec<_> = why.iter().filter_map(serde_json::Value::as_str).collect();
        (!why.is_empty()).then(|| why.join("; "))
    }
}

/// The baselines at work.
struct Beside {
    probe: TcpProbe,
    at_client: Capture,
    at_vantage: Capture,
}

impl Beside {
    fn start(triangle: &Triangle, port: u16, stop: &Stop) -> Result<Self> {
        Ok(Self {
            probe: TcpProbe::start("passive", port)?,
            at_client: Capture::start(&triangle.client, "any", port, stop)?,
            at_vantage: Capture::start(&triangle.vantage, VANTAGE_LINK, port, stop)?,
        })
    }

    /// These epochs with what each baseline made of them.
    fn finish(
        mut self,
        paired: &[Paired],
        server: SocketAddr,
    ) -> Result<[(Baseline, Vec<Paired>); 3]> {
        self.at_client.end();
        self.at_vantage.end();
        let probed = self.probe.finish()?;
        let acknowledged = ack_round_trips(self.at_client.file(), server)?;
        let begun = handshakes(self.at_vantage.file(), server)?;
        Ok([
            (Baseline::TcpProbe, with_samples(paired, &probed)),
            (Baseline::AckRtt, with_samples(paired, &acknowledged)),
            (Baseline::SynAck, with_constants(paired, &begun)),
        ])
    }
}

/// What a run left when its load was over.
struct Over {
    load: serde_json::Value,
    requests: Vec<Request>,
    observed: Observed,
    beside: Option<Beside>,
    shares: Vec<Applied>,
    captures: Vec<Capture>,
    wire: Option<Counts>,
}

impl Trial {
    /// Runs it against a server that was started; `arm` names it in the results.
    pub fn run(
        &self,
        arm: &str,
        context: &Context,
        triangle: &mut Triangle,
        server: &mut Server,
    ) -> Result<Outcome> {
        let over = self.until_over(context, triangle, server)?;
        let sent = over.requests.iter().map(|request| request.sent_ns);
        let Some((first, last)) = sent.clone().min().zip(sent.max()) else {
            bail!("the load logged no request: {}", over.load);
        };
        let from_ns = first + SETTLE.as_nanos() as u64;
        let truth = Truth::of(&over.requests, from_ns, u64::MAX);
        let paired = pair_from(&truth, &over.observed.epochs, from_ns);

        let mut baselines = BTreeMap::from([(Baseline::ReqToReq, with_triggered(&paired))]);
        if let Some(beside) = over.beside {
            let address = triangle.server_address(self.workload.service.port());
            baselines.extend(beside.finish(&paired, address)?);
        }
        let seconds = last.saturating_sub(from_ns) as f64 / 1e9;
        let point = Point {
            arm: arm.to_owned(),
            workload: self.workload.clone(),
            epoch_ns: self.epoch.as_nanos() as u64,
            requests: truth.len(),
            achieved_rps: if seconds > 0.0 {
                truth.len() as f64 / seconds
            } else {
                0.0
            },
            errors: Errors::of(&paired),
            against_req_to_req: Errors::of(&against_triggered(&paired)),
            by_connection: Errors::of(&by_connection(&paired)),
            baselines: baselines
                .iter()
                .map(|(&b, epochs)| (b, Errors::of(epochs)))
                .collect(),
            totals: over.observed.totals,
            wire: over.wire,
            load: over.load,
        };
        Ok(Outcome {
            truth,
            paired,
            baselines,
            shares: over.shares,
            from_ns,
            captures: over.captures,
            point,
        })
    }

    /// Starts all, and waits until the load is over.
    fn until_over(
        &self,
        context: &Context,
        triangle: &mut Triangle,
        server: &mut Server,
    ) -> Result<Over> {
        let (batchwise, stop): (&Path, _) = (&context.command, &context.stop);
        let port = self.workload.service.port();
        let before = triangle.access.as_ref().map(|wire| wire.counts());
        let beside = self.baselines.then(|| Beside::start(triangle, port, stop));
        let beside = beside.transpose()?;
        let capture = |filter: &String| {
            Capture::start_matching(&triangle.vantage, VANTAGE_LINK, filter, stop)
        };
        let captures = self.captures.iter().map(capture);
        let mut captures = captures.collect::<Result<Vec<_>>>()?;
        let spec = PassiveSpec {
            port,
            epoch: self.epoch,
            estimator: None,
        };
        let observer = Observer::start(batchwise, triangle, &spec, stop)?;
        let share = match &self.share {
            Some(trace) => {
                let share = CpuShare::of(&triangle.server, &[server.pid()])?;
                Some(share.follow(trace.clone().first(self.workload.duration)))
            }
            None => None,
        };
        let load = self.workload.start(batchwise, triangle)?;
        let (load, requests) = load.finish(stop)?;
        let observed = observer.finish()?;
        server.check_alive()?;
        triangle.check()?;
        captures.iter_mut().for_each(Capture::end);
        let shares = match share {
            Some(follower) => {
                let (share, applied) = follower.finish()?;
                share.release()?;
                applied
            }
            None => Vec::new(),
        };
        let wire = triangle.access.as_ref().zip(before);
        Ok(Over {
            load,
            requests,
            observed,
            beside,
            shares,
            captures,
            wire: wire.map(|(wire, before)| wire.counts().since(&before)),
        })
    }
}

impl Outcome {
    /// The epochs that another estimator found, such as one over a capture, with the truth.
    pub fn pair(&self, epochs: &[Epoch]) -> Vec<Paired> {
        pair_from(&self.truth, epochs, self.from_ns)
    }
}

/// Epochs that began before have requests that do not count.
fn pair_from(truth: &Truth, epochs: &[Epoch], from_ns: u64) -> Vec<Paired> {
    let mut paired = truth.pair(epochs);
    paired.retain(|epoch| epoch.start_ns >= from_ns);
    paired
}

/// The epochs with the time to the triggered request as the truth.
pub fn against_triggered(paired: &[Paired]) -> Vec<Paired> {
    let with = |epoch: &Paired| {
        Some(Paired {
            response_ns: epoch.triggered_ns?,
            ..epoch.clone()
        })
    };
    paired.iter().filter_map(with).collect()
}
