//! The loads: rates of the open loop, ten thousand connections, and clients that people use; and the
//! servers that they need.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::memcached::{self, Memcached};
use batchwise_testbed::nginx::{self, Nginx};
use batchwise_testbed::process::now_ns;
use batchwise_testbed::redis::{self, RedisServer};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::{SERVER_IP, TwoHosts};
use serde::{Deserialize, Serialize};

use super::clients::{Truth, of_benchmark, of_generator, of_wrk};
use crate::Context;
use crate::engine::text::thousands;

/// Time beyond its duration after which a load is taken to hang.
const GRACE: Duration = Duration::from_secs(30);
/// For how long the many connections may be opened before the busy ones count.
const OPENING: Duration = Duration::from_secs(6);
/// Connections that are idle most of the time.
const MANY: u32 = 10_000;
/// Requests from which the rate of redis-benchmark is learned, for each that it sends at once.
const FIRST_REQUESTS: f64 = 50_000.0;
const WRK_CONNECTIONS: u32 = 20;
/// Bytes of what nginx serves.
const PAGE: usize = 612;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// An open loop of so many requests/s.
    Rate(u64),
    /// Ten thousand connections with a request in ten seconds each, and ten busy ones.
    Idle,
    /// redis-benchmark with so many requests in one send call.
    Benchmark(u32),
    /// A client library of Redis, 64 tasks on one connection.
    Multiplexed,
    /// wrk and nginx.
    Wrk,
    Memcached,
}

/// What a client's process is asked to do before it counts, and while it does.
type Times = (Duration, Duration);

impl Load {
    pub fn all(quick: bool) -> Vec<Self> {
        let rates: &[u64] = match quick {
            true => &[10, 20_000, 100_000, 500_000],
            false => &[
                10, 100, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
            ],
        };
        let rates = rates.iter().copied().map(Self::Rate);
        let others = [
            Self::Idle,
            Self::Benchmark(1),
            Self::Benchmark(16),
            Self::Multiplexed,
            Self::Wrk,
            Self::Memcached,
        ];
        rates.chain(others).collect()
    }

    /// What results call it.
    pub fn name(self) -> String {
        match self {
            Self::Rate(rate) => format!("rate-{}", thousands(rate as f64)),
            Self::Idle => "idle-10k".into(),
            Self::Benchmark(1) => "redis-benchmark".into(),
            Self::Benchmark(pipeline) => format!("redis-benchmark-p{pipeline}"),
            Self::Multiplexed => "redis-rs".into(),
            Self::Wrk => "wrk".into(),
            Self::Memcached => "memcached".into(),
        }
    }

    pub fn port(self) -> u16 {
        match self {
            Self::Wrk => nginx::PORT,
            Self::Memcached => memcached::PORT,
            _ => redis::PORT,
        }
    }

    /// Runs it to its end; gives what its client says.
    pub fn run(self, context: &Context, servers: &Servers, times: Times) -> Result<Truth> {
        let (settle, length) = times;
        let runner = Runner {
            context,
            hosts: &servers.hosts,
            port: self.port(),
        };
        match self {
            Self::Rate(rate) => {
                let connections = match rate > MOST_ON_TEN {
                    true => "1 --nodelay off",
                    false => "10",
                };
                let what = format!("redis --rate {rate} --connections {connections}");
                of_generator(&runner.generator(&what, times)?)
            }
            Self::Multiplexed => of_generator(&runner.generator("multiplexed", times)?),
            Self::Idle => runner.idle(times),
            Self::Memcached => {
                let what = "memcached --connections 10 --value-size 500";
                runner.closed(what, settle)?;
                of_generator(&runner.closed(what, length)?)
            }
            Self::Benchmark(pipeline) => runner.benchmark(pipeline, times),
            Self::Wrk => {
                runner.wrk(settle)?;
                runner.wrk(length)
            }
        }
    }
}

/// Up to this rate requests come on ten connections; above, on one with Nagle's algorithm: a packet for
/// each is more than two CPUs carry.
const MOST_ON_TEN: u64 = 100_000;

/// Where clients run, and where they find their server.
pub struct Runner<'a> {
    pub context: &'a Context,
    pub hosts: &'a TwoHosts,
    pub port: u16,
}

impl Runner<'_> {
    pub fn start(&self, name: &str, command: Command) -> Result<Printing<String>> {
        Printing::start_text(&self.hosts.client, name, command, Role::Workload)
    }

    /// All that it printed, once it has ended.
    pub fn finish(
        &self,
        name: &str,
        mut client: Printing<String>,
        length: Duration,
    ) -> Result<String> {
        let status = client.wait(&self.context.stop, length + GRACE)?;
        let (text, quote) = (client.text(), client.quote());
        ensure!(status.success(), "{name} failed ({status}): {text}{quote}");
        Ok(text)
    }

    /// `batchwise load`, without its times.
    fn load(&self, what: &str) -> Command {
        let mut command = Command::new(&self.context.command);
        command.arg("load").args(what.split(' '));
        let address = self.hosts.server_address(self.port).to_string();
        command.args(["--addr", &address, "--format", "json"]);
        command
    }

    fn generator(&self, what: &str, (warmup, length): Times) -> Result<String> {
        let client = self.start("the load", self.timed(what, (warmup, length)))?;
        self.finish("the load", client, warmup + length)
    }

    fn timed(&self, what: &str, (warmup, length): Times) -> Command {
        let mut command = self.load(what);
        command.args(["--warmup", &seconds(warmup), "--duration", &seconds(length)]);
        command
    }

    /// One that has no warm-up.
    fn closed(&self, what: &str, length: Duration) -> Result<String> {
        let mut command = self.load(what);
        command.args(["--duration", &seconds(length)]);
        let client = self.start("the load", command)?;
        self.finish("the load", client, length)
    }

    /// The idle connections count all the time in which the busy ones do.
    fn idle(&self, (settle, length): Times) -> Result<Truth> {
        let many = format!("multiplexed --connections {MANY} --tasks {MANY} --every 10s");
        let times = (settle, length + OPENING);
        let idle = self.start("the idle clients", self.timed(&many, times))?;
        let busy = "multiplexed --connections 10 --tasks 10 --every 1ms";
        let busy = of_generator(&self.generator(busy, (settle + OPENING, length))?)?;
        let idle = of_generator(&self.finish("the idle clients", idle, length)?)?;
        idle.with(&busy)
            .context("the idle clients took too long to connect")
    }

    /// One run to learn the rate, one for the agents to learn it, and the one that counts.
    fn benchmark(&self, pipeline: u32, (settle, length): Times) -> Result<Truth> {
        let run = |requests: f64| {
            let mut command = Command::new("redis-benchmark");
            let arguments = format!(
                "-h {SERVER_IP} -p {} -t set --csv -d 64 -c 50 -P {pipeline} -n {requests:.0}",
                self.port
            );
            command.args(arguments.split(' '));
            self.told("redis-benchmark", command, length, of_benchmark)
        };
        let first = run(FIRST_REQUESTS * f64::from(pipeline))?;
        let second = run(first.rps * settle.as_secs_f64())?;
        run(second.rps * length.as_secs_f64())
    }

    fn wrk(&self, length: Duration) -> Result<Truth> {
        let mut command = Command::new("wrk");
        command.args(["-t", "1", "--latency", "-d", &seconds(length)]);
        command.args(["-c", &WRK_CONNECTIONS.to_string()]);
        command.arg(format!("http://{SERVER_IP}:{}/page.html", self.port));
        self.told("wrk", command, length, |text| of_wrk(text, WRK_CONNECTIONS))
    }

    /// What a client says that does not tell when it began and ended.
    fn told(
        &self,
        name: &str,
        command: Command,
        length: Duration,
        read: fn(&str) -> Result<Truth>,
    ) -> Result<Truth> {
        let from_ts_ns = now_ns();
        let client = self.start(name, command)?;
        let text = self.finish(name, client, length)?;
        Ok(Truth {
            from_ts_ns,
            to_ts_ns: now_ns(),
            ..read(&text)?
        })
    }
}

/// As all clients read it.
fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs())
}

pub struct Servers {
    redis: RedisServer,
    memcached: Memcached,
    nginx: Nginx,
    /// Last: the servers live in one of them.
    pub hosts: TwoHosts,
}

impl Servers {
    pub fn start(hosts: TwoHosts, stop: &Stop) -> Result<Self> {
        let host = &hosts.server;
        let redis = RedisServer::start(host, stop)?;
        host.inside(admit_many)
            .context("asking Redis for more connections")?;
        Ok(Self {
            redis,
            memcached: Memcached::start(host, stop)?,
            nginx: Nginx::start(host, stop, |site| {
                fs::write(site.join("page.html"), [b'x'; PAGE]).context("writing a page")
            })?,
            hosts,
        })
    }

    pub fn check_alive(&mut self) -> Result<()> {
        self.redis.check_alive()?;
        self.memcached.check_alive()?;
        self.nginx.check_alive()
    }
}

fn admit_many() -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", redis::PORT))?;
    stream.write_all(b"CONFIG SET maxclients 11000\r\n")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    match &answer {
        b"+OK\r\n" => Ok(()),
        _ => bail!("it refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_has_a_name_of_its_own_and_a_quick_run_has_fewer() {
        let names = |quick| -> Vec<_> { Load::all(quick).into_iter().map(Load::name).collect() };
        let all = names(false);
        let mut once = all.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all.len());
        assert!(names(true).iter().all(|name| all.contains(name)));
        assert!(names(true).len() < all.len());
    }

    #[test]
    fn a_full_run_ends_in_a_quarter_of_an_hour_and_a_quick_one_in_three_minutes() {
        let time = |quick, length| {
            // agents begin and end, connections are opened, the last line comes
            let around = Duration::from_millis(2_500);
            let row = super::super::SETTLE + Duration::from_secs(length) + around;
            row * Load::all(quick).len() as u32 + OPENING
        };
        assert!(
            time(true, 8) < Duration::from_mins(3),
            "{:?}",
            time(true, 8)
        );
        assert!(time(false, 15) < Duration::from_mins(15));
    }
}
