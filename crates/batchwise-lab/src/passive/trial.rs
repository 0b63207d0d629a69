//! One run: a load through the vantage, an observer there, baselines beside it, and what is true
//! in each epoch of each connection.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::cpu_share::{Applied, CpuShare};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{SERVER_IP, Triangle, TriangleSpec, VANTAGE_LINK};
use batchwise_testbed::wire::{Counts, WireSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::capture::{Capture, ack_round_trips, handshakes};
use super::curves::{Curve, Measured, Shown, Way};
use super::observer::{EPOCH, Observer, over_capture};
use super::tcp_probe::TcpProbe;
use super::workload::{Server, Service, Workload};
use crate::Context;
use crate::engine::{ATTEMPTS, triangle};
use crate::truth::{
    Epoch, Errors, Paired, Truth, against_triggered, by_connection, slots_to_follow,
    with_constants, with_samples, with_triggered,
};

/// Requests of the first moments do not count: connections are being made.
const SETTLE: Duration = Duration::from_secs(1);

/// What is measured, and beside what.
#[derive(Clone, Debug)]
pub struct Trial {
    pub arm: String,
    pub workload: Workload,
    /// The load's rate as a share of what the server can carry, which is found out before.
    pub of_saturation: Option<f64>,
    /// What happens between client and vantage.
    pub wire: Option<WireSpec>,
    /// The server's share of its CPU; all of it when `None`.
    pub share: Option<Trace>,
    /// Whether changes of that share are compared with the estimates that follow.
    pub follow: bool,
    /// Whether the baselines run, too.
    pub baselines: bool,
    /// A capture at the vantage, as a filter of tcpdump, and the estimators that read it.
    pub capture: Option<(String, &'static [Way])>,
    pub shows: &'static [Shown],
}

/// A run in `result.json`. Errors are by epoch against the time to the response, unless it is said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub arm: String,
    pub workload: Workload,
    pub epoch_ns: u64,
    /// Requests that count, also those in no epoch.
    pub requests: usize,
    pub achieved_rps: f64,
    /// Ours.
    pub errors: Errors,
    /// Ours against the time to the triggered request.
    pub against_req_to_req: Errors,
    /// Means of connections.
    pub by_connection: Errors,
    /// What others estimated.
    pub baselines: BTreeMap<Way, Errors>,
    pub totals: Option<Value>,
    /// What the wire between client and vantage did.
    pub wire: Option<Counts>,
    /// What the load says of itself.
    pub load: Value,
    /// Slots of [`EPOCH`] until each change of the server's speed was followed.
    #[serde(default)]
    pub followed: Vec<Option<usize>>,
    /// The speeds: from and to which second, and the share.
    #[serde(default)]
    pub speeds: Vec<(f64, f64, f64)>,
    #[serde(default)]
    pub curves: BTreeMap<Shown, Vec<Curve>>,
}

/// What a load says against itself.
pub fn why_invalid(load: &Value) -> Vec<String> {
    let why = load["why_invalid"].as_array().into_iter().flatten();
    why.filter_map(|one| Some(one.as_str()?.to_owned()))
        .collect()
}

/// Where trials run: a triangle, with or without a wire, and a server.
pub struct Stage {
    server: Option<(Service, Server)>,
    triangle: Triangle,
}

impl Stage {
    /// For this trial first; gives the network's settings.
    pub fn build(name: &str, first: &Trial) -> Result<(Self, Value)> {
        let access = first.wire.clone();
        let (triangle, network) = triangle(name, &TriangleSpec { access, back: None })?;
        let server = None;
        Ok((Self { server, triangle }, network))
    }

    /// What the server carries of this trial's requests, a second, with one in flight a connection.
    /// It only scales loads: the last attempt has to do if none is trusted.
    pub fn saturation(&mut self, context: &Context, trial: &Trial) -> Result<f64> {
        self.prepare(context, trial)?;
        let mut most = trial.workload.clone();
        most.duration = Duration::from_secs(if context.quick { 4 } else { 15 });
        most.rate = None;
        most.options = ["--in-flight", "1", "--think", "none"]
            .map(str::to_owned)
            .into();
        let mut attempts = ATTEMPTS;
        loop {
            let load = most.start(&context.command, &self.triangle)?;
            let (report, _) = load.finish(&context.stop)?;
            attempts -= 1;
            if attempts == 0 || why_invalid(&report).is_empty() {
                let found = report["achieved_rps"].as_f64();
                return found.context("the load does not say how much it achieved");
            }
        }
    }

    /// The trial's wire and server.
    fn prepare(&mut self, context: &Context, trial: &Trial) -> Result<()> {
        if trial.wire.is_some() != self.triangle.access.is_some() {
            // Without a wire there is none at all: its work would be part of the load.
            self.server = None;
            (*self, _) = Self::build("passive-again", trial)?;
        }
        if let (Some(spec), Some(wire)) = (&trial.wire, &self.triangle.access) {
            wire.set(spec);
        }
        let service = trial.workload.service;
        if self.server.as_ref().is_none_or(|(is, _)| *is != service) {
            self.server = None;
            let server = Server::start(service, &context.command, &self.triangle, &context.stop)?;
            self.server = Some((service, server));
        }
        Ok(())
    }
}

struct Beside {
    probe: TcpProbe,
    at_client: Capture,
    at_vantage: Capture,
}

impl Beside {
    fn start(triangle: &Triangle, port: u16, stop: &Stop) -> Result<Self> {
        let filter = format!("port {port}");
        Ok(Self {
            probe: TcpProbe::start("passive", port)?,
            at_client: Capture::start(&triangle.client, "any", &filter, stop)?,
            at_vantage: Capture::start(&triangle.vantage, VANTAGE_LINK, &filter, stop)?,
        })
    }

    /// These epochs with what each baseline made of them.
    fn finish(mut self, paired: &[Paired]) -> Result<[(Way, Vec<Paired>); 3]> {
        let probed = self.probe.finish()?;
        let acknowledged = ack_round_trips(self.at_client.end(), SERVER_IP)?;
        let begun = handshakes(self.at_vantage.end(), SERVER_IP)?;
        Ok([
            (Way::TcpProbe, with_samples(paired, &probed)),
            (Way::AckRtt, with_samples(paired, &acknowledged)),
            (Way::SynAck, with_constants(paired, &begun)),
        ])
    }
}

impl Trial {
    /// Of this load, with nothing beside it.
    pub fn new(arm: impl Into<String>, workload: Workload, shows: &'static [Shown]) -> Self {
        Self {
            arm: arm.into(),
            workload,
            of_saturation: None,
            wire: None,
            share: None,
            follow: false,
            baselines: false,
            capture: None,
            shows,
        }
    }

    pub fn run(&self, context: &Context, stage: &mut Stage) -> Result<Point> {
        stage.prepare(context, self)?;
        let (triangle, stop) = (&mut stage.triangle, &context.stop);
        let (_, server) = stage.server.as_mut().context("there is no server")?;
        let port = self.workload.service.port();
        let wire_before = triangle.access.as_ref().map(|wire| wire.counts());
        let beside = self.baselines.then(|| Beside::start(triangle, port, stop));
        let beside = beside.transpose()?;
        let at_vantage = |filter| Capture::start(&triangle.vantage, VANTAGE_LINK, filter, stop);
        let capture = match &self.capture {
            Some((filter, estimators)) => Some((at_vantage(filter)?, *estimators)),
            None => None,
        };
        let observer = Observer::start(&context.command, triangle, port, stop)?;
        let share = self.share.as_ref().map(|trace| {
            let share = CpuShare::of(&triangle.server, &[server.pid()])?;
            anyhow::Ok(share.follow(trace.clone().first(self.workload.duration)))
        });
        let share = share.transpose()?;

        let load = self.workload.start(&context.command, triangle)?;
        let (load, requests) = load.finish(stop)?;
        let observed = observer.finish()?;
        server.check_alive()?;
        triangle.check()?;
        let mut shares = Vec::new();
        if let Some(follower) = share {
            let (share, applied) = follower.finish()?;
            share.release()?;
            shares = applied;
        }
        let wire = triangle.access.as_ref().zip(wire_before);
        let wire = wire.map(|(wire, before)| wire.counts().since(&before));

        let sent = requests.iter().map(|request| request.sent_ns);
        let Some((first, last)) = sent.clone().min().zip(sent.max()) else {
            bail!("the load logged no request: {load}");
        };
        let from_ns = first + SETTLE.as_nanos() as u64;
        let truth = Truth::of(&requests, from_ns);
        // Epochs that began before have requests that do not count.
        let pair = |epochs: &[Epoch]| {
            let mut paired = truth.pair(epochs);
            paired.retain(|epoch| epoch.start_ns >= from_ns);
            paired
        };
        let passive = pair(&observed.epochs);
        let mut ways = BTreeMap::from([(Way::ReqToReq, with_triggered(&passive))]);
        if let Some(beside) = beside {
            ways.extend(beside.finish(&passive)?);
        }
        if let Some((mut capture, estimators)) = capture {
            let capture = capture.end();
            for &way in estimators {
                let estimator = (way != Way::Oracle).then(|| way.label());
                let observed = over_capture(&context.command, port, estimator, capture)?;
                ways.insert(way, pair(&observed.epochs));
                stop.check()?;
            }
        }
        let errors = |(&way, epochs): (&Way, &Vec<Paired>)| (way, Errors::of(epochs));
        let baselines = ways.iter().map(errors).collect();
        ways.insert(Way::Passive, passive);
        let measured = Measured {
            truth,
            from_ns,
            ways,
        };
        let passive = measured.passive();
        let seconds = last.saturating_sub(from_ns) as f64 / 1e9;
        let requests = measured.truth.count();
        shares.retain(|_| self.follow);
        shares.extend(shares.last().map(|&end| Applied { at_ns: last, ..end }));
        Ok(Point {
            arm: self.arm.clone(),
            workload: self.workload.clone(),
            epoch_ns: EPOCH.as_nanos() as u64,
            requests,
            achieved_rps: if seconds > 0.0 {
                requests as f64 / seconds
            } else {
                0.0
            },
            errors: Errors::of(passive),
            against_req_to_req: Errors::of(&against_triggered(passive)),
            by_connection: Errors::of(&by_connection(passive)),
            baselines,
            totals: observed.totals,
            wire,
            load,
            followed: slots_to_follow(&measured.server(passive), &changes(&shares, from_ns)),
            speeds: speeds(&shares, from_ns),
            curves: self
                .shows
                .iter()
                .map(|&shown| (shown, shown.curves(&measured)))
                .collect(),
        })
    }
}

fn changes(shares: &[Applied], from_ns: u64) -> Vec<u64> {
    let pairs = shares.windows(2);
    let changed = pairs.filter(|p| p[0].share != p[1].share && p[1].at_ns > from_ns);
    changed.map(|pair| pair[1].at_ns).collect()
}

fn speeds(shares: &[Applied], from_ns: u64) -> Vec<(f64, f64, f64)> {
    let seconds = |applied: &Applied| applied.at_ns.saturating_sub(from_ns) as f64 / 1e9;
    let speed = |pair: &[Applied]| (seconds(&pair[0]), seconds(&pair[1]), pair[0].share);
    shares.windows(2).map(speed).collect()
}
