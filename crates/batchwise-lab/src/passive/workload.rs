//! The closed-loop loads of `batchwise load` that log the truth, and the servers that they need.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::{Host, Place};
use batchwise_testbed::memcached::{self, Memcached};
use batchwise_testbed::nginx::{self, Nginx};
use batchwise_testbed::process::{Process, Reader, lock};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{SERVER_IP, Triangle};
use nix::unistd::Pid;
use serde::Serialize;

use crate::truth::Request;

/// The port of the QUIC server.
const QUIC_PORT: u16 = 4433;
/// CPU time that the QUIC server works on a request.
const QUIC_WORK: &str = "none";
/// Time beyond its duration after which a load is taken to hang.
const GRACE: Duration = Duration::from_secs(30);
/// How long a server may take until it is there.
const START_LIMIT: Duration = Duration::from_secs(10);

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    /// HTTP/1.1 to nginx.
    Web,
    /// memcached's text protocol.
    Memcached,
    /// QUIC.
    Quic,
}

impl Service {
    /// The server's port.
    pub fn port(self) -> u16 {
        match self {
            Self::Web => nginx::PORT,
            Self::Memcached => memcached::PORT,
            Self::Quic => QUIC_PORT,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Memcached => "memcached",
            Self::Quic => "quic",
        }
    }
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub enum Server {
    /// nginx.
    Web(Nginx),
    /// memcached.
    Memcached(Memcached),
    /// batchwise's own QUIC server.
    Quic(Process),
}

impl Server {
    /// Starts it in the triangle's server.
    pub fn start(
        service: Service,
        batchwise: &Path,
        triangle: &Triangle,
        stop: &Stop,
    ) -> Result<Self> {
        let host = &triangle.server;
        Ok(match service {
            Service::Web => Self::Web(Nginx::start(host, stop, |site| {
                write_site(batchwise, site, None)
            })?),
            Service::Memcached => Self::Memcached(Memcached::start(host, stop)?),
            Service::Quic => Self::Quic(quic_server(batchwise, host, stop)?),
        })
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        match self {
            Self::Web(nginx) => nginx.pid(),
            Self::Memcached(memcached) => memcached.pid(),
            Self::Quic(process) => process.pid(),
        }
    }

    /// Fails when it has died.
    pub fn check_alive(&mut self) -> Result<()> {
        match self {
            Self::Web(nginx) => nginx.check_alive(),
            Self::Memcached(memcached) => memcached.check_alive(),
            Self::Quic(process) => process.check_alive(),
        }
    }
}

/// Writes the site that the web load asks for.
pub fn write_site(batchwise: &Path, folder: &Path, description: Option<&Path>) -> Result<()> {
    let mut command = Command::new(batchwise);
    command.args(["load", "web-site", "--out"]).arg(folder);
    if let Some(description) = description {
        command.arg("--site").arg(description);
    }
    let output = command
        .output()
        .context("starting `batchwise load web-site`")?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    bail!("`batchwise load web-site` failed: {}", message.trim())
}

fn quic_server(batchwise: &Path, host: &Host, stop: &Stop) -> Result<Process> {
    let mut command = Command::new(batchwise);
    command.args(["load", "quic-server", "--listen"]);
    command.arg(format!("{SERVER_IP}:{QUIC_PORT}"));
    command.args(["--work", QUIC_WORK]);
    let mut process = host.spawn("the QUIC server", command, Place::Workload)?;
    process.on_line(drop);
    // Its socket is there: nobody else can have the port.
    let taken = stop.wait_until(START_LIMIT, || {
        process.check_alive()?;
        host.inside(|| {
            let bound = std::net::UdpSocket::bind((SERVER_IP, QUIC_PORT));
            Ok(bound.is_err().then_some(()))
        })
    })?;
    match taken {
        Some(()) => Ok(process),
        None => bail!(
            "the QUIC server did not begin within {START_LIMIT:?}{}",
            process.quote()
        ),
    }
}

/// A closed-loop load.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// What is spoken.
    pub service: Service,
    /// How long.
    pub duration: Duration,
    /// Connections.
    pub connections: u32,
    /// Requests a second in all; as fast as responses come when `None`.
    pub rate: Option<u64>,
    /// More options of `batchwise load`.
    pub options: Vec<String>,
}

impl Workload {
    /// The web-like one of the paper's §5.1, with at most this many requests in flight on each
    /// connection.
    pub fn web(duration: Duration, connections: u32, rate: u64, in_flight: u32) -> Self {
        Self {
            service: Service::Web,
            duration,
            connections,
            rate: Some(rate),
            options: vec!["--in-flight".into(), in_flight.to_string()],
        }
    }

    /// Starts it in the triangle's client, at its server.
    pub fn start(&self, batchwise: &Path, triangle: &Triangle) -> Result<RunningWorkload> {
        let to = triangle.server_address(self.service.port());
        self.start_on(batchwise, &triangle.client, to)
    }

    /// Starts it in a host; the truth goes into a file of its own.
    pub fn start_on(
        &self,
        batchwise: &Path,
        client: &Host,
        to: SocketAddr,
    ) -> Result<RunningWorkload> {
        let name = format!("bw-{}.csv", client.namespace().name());
        let log = std::env::temp_dir().join(name);
        let mut command = Command::new(batchwise);
        command.args(["load", self.service.word(), "--format", "json", "--addr"]);
        command.arg(to.to_string());
        command.args(["--connections", &self.connections.to_string()]);
        command
            .arg("--duration")
            .arg(format!("{}ms", self.duration.as_millis()));
        if let Some(rate) = self.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        command.arg("--log").arg(&log).args(&self.options);
        let mut process = client.spawn("the load", command, Place::Workload)?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let sink = output.clone();
        let reader = process.on_line(move |line| lock(&sink).push(line));
        Ok(RunningWorkload {
            process,
            reader,
            output,
            log: Log(log),
            limit: self.duration + GRACE,
        })
    }
}

/// A load that is under way. Dropping it ends it.
#[derive(Debug)]
pub struct RunningWorkload {
    process: Process,
    reader: Reader,
    output: Arc<Mutex<Vec<String>>>,
    log: Log,
    limit: Duration,
}

/// A file that goes when it is dropped.
#[derive(Debug)]
struct Log(PathBuf);

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl RunningWorkload {
    /// Waits for its end; gives what it reports, and the truth.
    pub fn finish(mut self, stop: &Stop) -> Result<(serde_json::Value, Vec<Request>)> {
        let status = self.process.wait(stop, self.limit)?;
        self.reader.finish();
        let quote = self.process.quote();
        if !status.success() {
            bail!("the load failed ({status}){quote}");
        }
        let report = serde_json::from_str(&lock(&self.output).join("\n"))
            .with_context(|| format!("what the load printed is not JSON{quote}"))?;
        let log = fs::read_to_string(&self.log.0)
            .with_context(|| format!("reading {}", self.log.0.display()))?;
        Ok((report, Request::read_log(&log)?))
    }
}
