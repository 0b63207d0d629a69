//! A Redis server that `redis-benchmark` keeps busy over connections that stay: what it served, and
//! what that cost, in a stretch of time.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::Role;
use batchwise_testbed::process::{Process, cpu_time};
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;

use crate::engine::stalls::{Gap, lost, now_ns};

/// Each with one request in flight.
pub const CONNECTIONS: u32 = 10;

/// A stretch of which the host took away more decides nothing.
pub const MOST_CUT: f64 = 0.25;

/// A client that never ends by itself, and a connection that asks the server how much it has served.
pub struct Busy {
    benchmark: Process,
    info: BufReader<TcpStream>,
}

/// What is read at the ends of a stretch.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// ns since the Unix epoch.
    pub at: u64,
    pub requests: u64,
    pub server_cpu: Duration,
    pub client_cpu: Duration,
    pub agents_cpu: Duration,
}

/// What was between two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Requests a second of the time that the host did not take away.
    pub rps: f64,
    /// The same with nothing cut.
    pub raw_rps: f64,
    pub requests: u64,
    pub server_cpu_ns_per_request: f64,
    pub client_cpu_ns_per_request: f64,
    /// Share that the host took away: cut.
    pub cut_share: f64,
    /// CPU time of the agents, as a share of one CPU.
    pub agents_cpu_share: f64,
}

impl Busy {
    /// Starts the client: 64-byte SETs.
    pub fn start(hosts: &TwoHosts) -> Result<Self> {
        let benchmark = start_benchmark(hosts)?;
        let info = hosts.server.inside(|| {
            let stream = TcpStream::connect(("127.0.0.1", PORT))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            Ok(BufReader::new(stream))
        })?;
        Ok(Self { benchmark, info })
    }

    /// Fails when the client has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.benchmark.check_alive()
    }

    /// Commands that the server has served, as it says itself.
    pub fn requests(&mut self) -> Result<u64> {
        self.info.get_mut().write_all(b"INFO stats\r\n")?;
        next_served(&mut self.info)
    }

    /// Reads everything; `agents_cpu` gives the CPU time of the agents.
    pub fn sample(
        &mut self,
        redis: &RedisServer,
        agents_cpu: impl FnOnce() -> Result<Duration>,
    ) -> Result<Sample> {
        let asked = now_ns();
        let requests = self.requests()?;
        Ok(Sample {
            at: asked.midpoint(now_ns()),
            requests,
            server_cpu: redis.cpu_time()?,
            client_cpu: cpu_time(self.benchmark.pid())?,
            agents_cpu: agents_cpu()?,
        })
    }
}

impl Stretch {
    /// Without the time in these gaps.
    pub fn between(before: &Sample, after: &Sample, gaps: &[Gap]) -> Self {
        let elapsed = after.at.saturating_sub(before.at);
        let cut = lost(gaps, before.at, after.at);
        let share = |ns: u64| ns as f64 / elapsed.max(1) as f64;
        let requests = after.requests.saturating_sub(before.requests);
        let per_second = |ns: u64| requests as f64 / Duration::from_nanos(ns.max(1)).as_secs_f64();
        let per_request = |after: Duration, before: Duration| {
            after.saturating_sub(before).as_nanos() as f64 / requests.max(1) as f64
        };
        let agents = after.agents_cpu.saturating_sub(before.agents_cpu);
        Self {
            rps: per_second(elapsed - cut),
            raw_rps: per_second(elapsed),
            requests,
            server_cpu_ns_per_request: per_request(after.server_cpu, before.server_cpu),
            client_cpu_ns_per_request: per_request(after.client_cpu, before.client_cpu),
            cut_share: share(cut),
            agents_cpu_share: share(agents.as_nanos() as u64),
        }
    }
}

fn start_benchmark(hosts: &TwoHosts) -> Result<Process> {
    let SocketAddr::V4(server) = hosts.server_address(PORT) else {
        bail!("the server has no IPv4 address")
    };
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", &server.ip().to_string(), "-p", &PORT.to_string()]);
    command.args(["-c", &CONNECTIONS.to_string()]);
    command.args("-t set --csv -d 64 -n 2000000000".split(' '));
    let client = &hosts.client;
    let mut benchmark = client
        .spawn("redis-benchmark", command, Role::Workload)
        .context("redis-benchmark is needed (Debian: apt install redis-tools)")?;
    // Read, so that it never blocks on a full pipe.
    benchmark.on_line(drop);
    Ok(benchmark)
}

/// The number in the next answer; what else is in an answer is passed over.
fn next_served(answers: impl BufRead) -> Result<u64> {
    for line in answers.lines() {
        if let Some(served) = line?.strip_prefix("total_commands_processed:") {
            return Ok(served.parse()?);
        }
    }
    bail!("Redis does not say how much it has served")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_redis_says_in_each_answer() {
        let answer =
            |n| format!("$60\r\n# Stats\r\ntotal_commands_processed:{n}\r\nother:7\r\n\r\n");
        let answers = answer(12) + &answer(13);
        let mut answers = answers.as_bytes();
        let mut next = || next_served(&mut answers).ok();
        assert_eq!([next(), next(), next()], [Some(12), Some(13), None]);
    }

    #[test]
    fn a_stall_does_not_move_the_throughput_once_it_is_cut() {
        let sample = |ms: u64, requests| Sample {
            at: ms * 1_000_000,
            requests,
            server_cpu: Duration::ZERO,
            client_cpu: Duration::ZERO,
            agents_cpu: Duration::ZERO,
        };
        // 100 requests a millisecond, but none in the gap
        let (from, to) = (50_000_000, 80_000_000);
        let gaps = [Gap { from, to }];
        let found = Stretch::between(&sample(0, 0), &sample(150, 12_000), &gaps);
        assert!((found.rps - 100_000.0).abs() < 1.0 && found.raw_rps == 80_000.0);
        assert!((found.cut_share - 0.2).abs() < 1e-9);
    }
}
