//! The closed-loop loads of `batchwise load` that log the truth, and the servers that they need.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::load::logged::LoggedLoad;
use batchwise_testbed::memcached::{self, Memcached};
use batchwise_testbed::nginx::{self, Nginx};
use batchwise_testbed::process::Process;
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{SERVER_IP, Triangle};
use clap::ValueEnum;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::truth::Request;

const QUIC_PORT: u16 = 4433;
/// CPU time that the QUIC server works on a request.
const QUIC_WORK: &str = "none";
/// Time beyond its duration after which a load is taken to hang.
const GRACE: Duration = Duration::from_secs(30);
/// How long a server may take until it is there.
const START_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Web,
    Memcached,
    Quic,
}

impl Service {
    pub fn port(self) -> u16 {
        match self {
            Self::Web => nginx::PORT,
            Self::Memcached => memcached::PORT,
            Self::Quic => QUIC_PORT,
        }
    }
}

#[derive(Debug)]
pub enum Server {
    Web(Nginx),
    Memcached(Memcached),
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

    pub fn pid(&self) -> Pid {
        match self {
            Self::Web(nginx) => nginx.pid(),
            Self::Memcached(memcached) => memcached.pid(),
            Self::Quic(process) => process.pid(),
        }
    }

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
    let mut process = host.spawn("the QUIC server", command, Role::Workload)?;
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    pub service: Service,
    pub duration: Duration,
    pub connections: u32,
    /// Requests a second in all; as fast as responses come when `None`.
    pub rate: Option<u64>,
    /// More options of `batchwise load`.
    pub options: Vec<String>,
}

impl Workload {
    /// The web-like one of the paper's §5.1, with at most this many requests in flight on each
    /// connection.
    pub fn web(duration: Duration, in_flight: u32) -> Self {
        Self {
            service: Service::Web,
            duration,
            connections: 20,
            rate: Some(2000),
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
        let mut command = Command::new(batchwise);
        let service = self.service.to_possible_value();
        let service = service.context("the service has no name")?;
        command.args(["load", service.get_name(), "--addr"]);
        command.arg(to.to_string());
        command.args(["--connections", &self.connections.to_string()]);
        command.args(["--duration", &format!("{}ms", self.duration.as_millis())]);
        if let Some(rate) = self.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        command.args(&self.options);
        Ok(RunningWorkload {
            load: LoggedLoad::start(client, command)?,
            limit: self.duration + GRACE,
        })
    }
}

#[derive(Debug)]
pub struct RunningWorkload {
    load: LoggedLoad,
    limit: Duration,
}

impl RunningWorkload {
    /// Waits for its end; gives what it reports, and the truth.
    pub fn finish(self, stop: &Stop) -> Result<(serde_json::Value, Vec<Request>)> {
        let (report, log) = self.load.finish(stop, self.limit)?;
        Ok((report, Request::read_log(&log)?))
    }
}
