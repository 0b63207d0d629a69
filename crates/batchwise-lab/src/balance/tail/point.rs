//! A run's load: both clients, and what they saw together.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::load::logged::LoggedLoad;
use batchwise_testbed::nginx;
use batchwise_testbed::segment::{Segment, VIP};
use serde::Deserialize;

use crate::Context;
use crate::balancer::BackendMoment;
use crate::stats::quantile;
use crate::truth::Request;

/// Connections of a client.
const CONNECTIONS: usize = 100;
/// Time beyond its duration after which a load is taken to hang.
const GRACE: Duration = Duration::from_secs(20);

/// What both clients do together.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests a second; as many as there can be when `None`.
    pub rate: Option<f64>,
    /// Pages on a connection, mean: new ones can go to another server.
    pub pages: u32,
    /// How long.
    pub duration: Duration,
    /// Of all that is drawn at random.
    pub seed: u64,
}

/// What they saw.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Responses a second.
    pub achieved_rps: f64,
    /// Of each response, ns.
    pub latencies: Vec<f64>,
    /// Broken connections, and those that could not be opened.
    pub broken_connections: u64,
    /// Why a client is not to be believed.
    pub why_invalid: Vec<String>,
    /// Most that a client's thread waited for its CPU, as a share of the time.
    pub cpu_wait_share: f64,
    /// When the first one began, ns since 1970.
    pub from_ns: u64,
}

/// What a run was like, for a plot over time.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Its begin, ns since 1970.
    pub from_ns: u64,
    /// What the balancer said.
    pub backends: Vec<BackendMoment>,
    /// The servers' shares.
    pub traces: Vec<Trace>,
}

/// The part of what a load reports that is used.
#[derive(Deserialize)]
struct Report {
    achieved_rps: f64,
    broken_connections: u64,
    connect_failures: u64,
    cpu_wait_ns: Option<u64>,
    why_invalid: Vec<String>,
    measured_from_ts_ns: u64,
}

impl Load {
    /// Runs it, on the site that this file describes.
    pub fn run(&self, context: &Context, segment: &Segment, site: &Path) -> Result<Done> {
        let clients = segment.clients.iter().zip(1..).map(|(host, number)| {
            let mut command = Command::new(&context.command);
            command.args(["load", "web", "--in-flight", "4"]);
            command.arg("--site").arg(site);
            command.args(["--addr", &format!("{VIP}:{}", nginx::PORT)]);
            command.args(["--connections", &CONNECTIONS.to_string()]);
            command.args(["--pages-per-connection", &self.pages.to_string()]);
            command.args(["--duration", &format!("{}ms", self.duration.as_millis())]);
            command.args(["--seed", &(self.seed * 100 + number).to_string()]);
            match self.rate {
                Some(rate) => {
                    let share = rate / segment.clients.len() as f64;
                    command.args(["--rate", &format!("{share:.0}")])
                }
                None => command.args(["--think", "none"]),
            };
            LoggedLoad::start(host, command)
        });
        let clients: Vec<_> = clients.collect::<Result<_>>()?;
        let mut done = Done::default();
        for client in clients {
            let (report, log) = client.finish(&context.stop, self.duration + GRACE)?;
            done.add(report, &Request::read_log(&log)?, self.duration);
        }
        Ok(done)
    }
}

impl Done {
    fn add(&mut self, report: Report, requests: &[Request], duration: Duration) {
        self.latencies.extend(requests.iter().map(Request::latency));
        self.achieved_rps += report.achieved_rps;
        self.broken_connections += report.broken_connections + report.connect_failures;
        let waited = report.cpu_wait_ns.unwrap_or(0) as f64 / duration.as_nanos() as f64;
        self.cpu_wait_share = self.cpu_wait_share.max(waited);
        self.why_invalid.extend(report.why_invalid);
        if self.from_ns == 0 {
            self.from_ns = report.measured_from_ts_ns;
        }
    }

    /// A quantile of the latency, ns.
    pub fn quantile(&self, q: f64) -> Result<f64> {
        quantile(&self.latencies, q).context("no request was answered")
    }
}
