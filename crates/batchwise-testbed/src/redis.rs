//! Redis: a server in a host, and `redis-benchmark` as a closed-loop load.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::host::{Host, Role};
use crate::lines::Printing;
use crate::preload::Preload;
use crate::process::{Process, cpu_time};
use crate::server;
use crate::stop::Stop;
use crate::topology::TwoHosts;

/// The port of the server.
pub const PORT: u16 = 6379;
/// The port of a server whose responses go out by Nagle's algorithm.
pub const NAGLE_PORT: u16 = 6380;
/// Requests of the runs from which the rate of this machine is learned.
const CALIBRATION_REQUESTS: u64 = 100_000;
const CALIBRATION_RUNS: u32 = 3;

/// A Redis server that keeps nothing on disk.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    // outlives the process: fields are dropped in order
    _preload: Option<Preload>,
}

impl RedisServer {
    /// Starts it in `host`, at [`PORT`], and waits until it answers.
    pub fn start(host: &Host, stop: &Stop) -> Result<Self> {
        Self::start_with(host, stop, PORT, &[], None)
    }

    /// Starts one at another port, which takes so many clients.
    pub fn start_for(host: &Host, stop: &Stop, port: u16, clients: usize) -> Result<Self> {
        Self::start_with(
            host,
            stop,
            port,
            &["--maxclients", &clients.to_string()],
            None,
        )
    }

    /// Starts one at [`NAGLE_PORT`] that never sets TCP_NODELAY.
    pub fn start_with_nagle(host: &Host, stop: &Stop) -> Result<Self> {
        let preload = Preload::build("keep_nagle", include_str!("keep_nagle.c"))?;
        Self::start_with(host, stop, NAGLE_PORT, &[], Some(preload))
    }

    fn start_with(
        host: &Host,
        stop: &Stop,
        port: u16,
        args: &[&str],
        preload: Option<Preload>,
    ) -> Result<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "0.0.0.0", "::"]);
        command.args(["--protected-mode", "no", "--save", "", "--appendonly", "no"]);
        command.args(["--dir", "/tmp"]).args(args);
        if let Some(preload) = &preload {
            command.env("LD_PRELOAD", preload.library());
        }
        let names = ("redis-server", "redis-server");
        Ok(Self {
            process: server::start(host, names, command, port, ping, stop)?,
            _preload: preload,
        })
    }

    /// Fails when it has died.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }

    /// CPU time that it has used, user and system.
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu_time(self.process.pid())
    }
}

fn ping(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    if &answer == b"+PONG" {
        Ok(())
    } else {
        Err(io::Error::other("it does not answer PING"))
    }
}

/// One run of `redis-benchmark`.
#[derive(Clone, Copy, Debug)]
pub struct Benchmark {
    /// Connections, each with one request in flight.
    pub clients: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Requests in all.
    pub requests: u64,
}

/// What a run of `redis-benchmark` gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchmarkResult {
    /// Requests a second.
    pub rps: f64,
    /// CPU time that the client used, user and system.
    pub client_cpu: Duration,
}

impl Benchmark {
    /// One whose runs last about so many seconds here, learned from a few short ones: 64-byte SETs on
    /// 10 connections.
    pub fn lasting(seconds: f64, hosts: &TwoHosts, stop: &Stop) -> Result<Self> {
        let mut benchmark = Self {
            clients: 10,
            value_size: 64,
            requests: CALIBRATION_REQUESTS,
        };
        // The fastest of several: a disturbance would make all the runs too short.
        let mut fastest: f64 = 0.0;
        for _ in 0..CALIBRATION_RUNS {
            fastest = fastest.max(benchmark.run(hosts, stop)?.rps);
        }
        benchmark.requests = (fastest * seconds) as u64;
        Ok(benchmark)
    }

    /// SETs against the server's [`PORT`] from the client, to the end.
    pub fn run(&self, hosts: &TwoHosts, stop: &Stop) -> Result<BenchmarkResult> {
        let server = hosts.server_address(PORT);
        let mut command = Command::new("redis-benchmark");
        let (address, port) = (server.ip(), server.port());
        let what = format!("-h {address} -p {port} -t set --csv");
        let (clients, size, requests) = (self.clients, self.value_size, self.requests);
        let how_much = format!("-c {clients} -d {size} -n {requests}");
        command.args(what.split(' ')).args(how_much.split(' '));
        // Children are counted when they are waited for: no other one ends in the meantime.
        let before = children_cpu()?;
        let client = &hosts.client;
        let mut run = Printing::start_text(client, "redis-benchmark", command, Role::Workload)
            .context("redis-benchmark is needed (Debian: apt install redis-tools)")?;
        let status = run.wait(stop, Duration::from_secs(60))?;
        let client_cpu = children_cpu()?.saturating_sub(before);
        let rps = parse_csv(&run.text());
        let Some(rps) = rps.filter(|_| status.success()) else {
            bail!("redis-benchmark gave no result ({status}){}", run.quote());
        };
        Ok(BenchmarkResult { rps, client_cpu })
    }
}

fn children_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// The requests a second of the SET test in the output of `redis-benchmark --csv`.
fn parse_csv(output: &str) -> Option<f64> {
    let row = output
        .lines()
        .rev()
        .find(|line| line.starts_with("\"SET\""))?;
    row.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throughput_is_the_second_column_of_the_set_row() {
        let recorded = concat!(
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\"\n",
            "\"SET\",\"104712.04\",\"0.052\",\"0.016\",\"0.047\"\n"
        );
        assert_eq!(parse_csv(recorded), Some(104_712.04));
        assert_eq!(parse_csv("Could not connect to Redis"), None);
    }
}
