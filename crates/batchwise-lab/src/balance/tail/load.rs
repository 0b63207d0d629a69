//! A run's load: both clients, and what they saw together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::Place;
use batchwise_testbed::nginx;
use batchwise_testbed::process::{Process, Reader, lock};
use batchwise_testbed::segment::{Segment, VIP};
use serde::Deserialize;

use crate::Context;
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

struct Client {
    process: Process,
    reader: Reader,
    output: Arc<Mutex<Vec<String>>>,
    log: Log,
}

/// A file that goes when it is dropped.
struct Log(PathBuf);

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Load {
    /// Runs it, on the site that this file describes.
    pub fn run(&self, context: &Context, segment: &Segment, site: &Path) -> Result<Done> {
        let clients = segment.clients.iter().zip(1..).map(|(host, number)| {
            let log = std::env::temp_dir().join(format!("{}.csv", host.namespace().name()));
            let mut command = Command::new(&context.command);
            command.args(["load", "web", "--format", "json", "--in-flight", "4"]);
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
            command.arg("--log").arg(&log);
            let log = Log(log);
            let mut process = host.spawn("the load", command, Place::Workload)?;
            let output = Arc::new(Mutex::new(Vec::new()));
            let sink = output.clone();
            let reader = process.on_line(move |line| lock(&sink).push(line));
            Ok(Client {
                process,
                reader,
                output,
                log,
            })
        });
        let clients: Vec<_> = clients.collect::<Result<_>>()?;
        let mut done = Done::default();
        for client in clients {
            client.finish(context, self.duration, &mut done)?;
        }
        Ok(done)
    }
}

impl Client {
    fn finish(mut self, context: &Context, duration: Duration, done: &mut Done) -> Result<()> {
        let status = self.process.wait(&context.stop, duration + GRACE)?;
        self.reader.finish();
        let quote = self.process.quote();
        if !status.success() {
            bail!("the load failed ({status}){quote}");
        }
        let report: Report = serde_json::from_str(&lock(&self.output).join("\n"))
            .with_context(|| format!("what the load printed is not its report{quote}"))?;
        let log = fs::read_to_string(&self.log.0)
            .with_context(|| format!("reading {}", self.log.0.display()))?;
        let requests = Request::read_log(&log)?;
        done.latencies.extend(requests.iter().map(Request::latency));
        done.achieved_rps += report.achieved_rps;
        done.broken_connections += report.broken_connections + report.connect_failures;
        let waited = report.cpu_wait_ns.unwrap_or(0) as f64 / duration.as_nanos() as f64;
        done.cpu_wait_share = done.cpu_wait_share.max(waited);
        done.why_invalid.extend(report.why_invalid);
        if done.from_ns == 0 {
            done.from_ns = report.measured_from_ts_ns;
        }
        Ok(())
    }
}

impl Done {
    /// A quantile of the latency, ns.
    pub fn quantile(&self, q: f64) -> Result<f64> {
        quantile(&self.latencies, q).context("no request was answered")
    }
}
