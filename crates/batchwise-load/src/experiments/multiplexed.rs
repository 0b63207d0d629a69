//! SETs and GETs through `redis`, the client that Rust applications use: tasks that await their responses share
//! few connections, on one thread that sleeps while there is nothing to do.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{ArgAction, Parser};
use futures_util::future::{join, join_all};
use rand::Rng as _;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncCommands as _, Client, IntoConnectionInfo as _, RedisResult};
use serde::Serialize;
use tokio::runtime::Builder;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};

use crate::clock::Clock;
use crate::report::{Interval, LatencySummary};
use crate::samples::Samples;
use crate::units::{on_off, parse_addr, parse_duration};

/// A load of tasks.
#[derive(Clone, Debug, Parser)]
pub struct Config {
    /// The server's address, such as 127.0.0.1:6379
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Connections, each shared by as many tasks as any other
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// Tasks, each with one request in flight
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub tasks: usize,
    /// Time from a request of a task to its next, if the response is there; 0ns: as soon as it is
    #[arg(long, default_value = "0ns", value_name = "DURATION", value_parser = parse_duration)]
    pub every: Duration,
    /// Bytes in a value
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub value_size: usize,
    /// Share of GETs, 0 to 1; the rest are SETs
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub get_ratio: f64,
    /// TCP_NODELAY on this end's sockets; off lets Nagle's algorithm batch requests
    /// (the library's own default)
    #[arg(long, default_value = "off", value_parser = on_off(), action = ArgAction::Set)]
    pub nodelay: bool,
    /// Length of the measurement, after the warm-up
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Load before the measurement
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    pub warmup: Duration,
    /// Threads that tokio runs tasks on, as in most programs; 0: all on the main thread
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Also report every so often in between
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub progress: Option<Duration>,
}

/// What a run says about itself: of the requests that were sent in the measured window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Responses per second (errors left out).
    pub achieved_rps: f64,
    /// Requests.
    pub requests: u64,
    /// Those that failed.
    pub errors: u64,
    /// From the call to the value that it gives, as the application sees it.
    pub latency_ns: LatencySummary,
    /// TCP connections.
    pub connections: u64,
    /// Tasks that shared them.
    pub tasks: u64,
    /// Start of the window, ns since the Unix epoch.
    pub measured_from_ts_ns: u64,
    /// End of the window, ns since the Unix epoch.
    pub measured_to_ts_ns: u64,
}

/// Of one task.
#[derive(Default)]
struct Tally {
    /// ns.
    latencies: Vec<u64>,
    errors: u64,
}

impl Config {
    fn check(&self) -> Result<()> {
        ensure!(
            (1..=60_000).contains(&self.connections),
            "the number of connections must be 1 to 60000"
        );
        ensure!(
            (self.connections..=1_000_000).contains(&self.tasks),
            "there must be a task for each connection, and at most 1000000"
        );
        ensure!(
            (0.0..=1.0).contains(&self.get_ratio),
            "the share of GETs must be 0 to 1"
        );
        ensure!(
            self.progress.is_none_or(|p| p >= Duration::from_millis(1)),
            "progress intervals must be at least 1ms"
        );
        ensure!(!self.duration.is_zero(), "the duration must not be 0");
        Ok(())
    }
}

/// Runs it; `on_interval` gets an interim report every `config.progress`. An error is a server that
/// cannot be reached, or the callback's.
pub fn run(config: &Config, on_interval: impl FnMut(&Interval) -> Result<()>) -> Result<Report> {
    config.check()?;
    let runtime = match config.threads {
        0 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build(),
    };
    let runtime = runtime.context("cannot start the client's runtime")?;
    runtime.block_on(drive(config, on_interval))
}

async fn drive(
    config: &Config,
    on_interval: impl FnMut(&Interval) -> Result<()>,
) -> Result<Report> {
    let connections = connect(config).await?;
    let clock = Clock::start();
    let from = nanos(config.warmup);
    let window = (from, from + nanos(config.duration));
    let shared: Option<Arc<Mutex<Samples>>> = config.progress.map(|_| Arc::default());
    let of_tasks = (0..config.tasks).map(|task| {
        let connection = connections[task % connections.len()].clone();
        let shared = shared.clone();
        tokio::spawn(work(
            config.clone(),
            connection,
            task,
            clock,
            window,
            shared,
        ))
    });
    let (mut latency, mut errors) = (Samples::default(), 0);
    let of_tasks = join_all(of_tasks.collect::<Vec<_>>());
    let told = async {
        match (config.progress, &shared) {
            (Some(every), Some(shared)) => tell(every, shared, clock, window, on_interval).await,
            _ => Ok(()),
        }
    };
    let (of_tasks, told) = join(of_tasks, told).await;
    told?;
    for tally in of_tasks {
        let tally = tally.context("a task of the client failed")?;
        tally.latencies.iter().for_each(|&ns| latency.record(ns));
        errors += tally.errors;
    }
    Ok(Report {
        achieved_rps: latency.count() as f64 / config.duration.as_secs_f64(),
        requests: latency.count() + errors,
        errors,
        latency_ns: latency.latency(),
        connections: config.connections as u64,
        tasks: config.tasks as u64,
        measured_from_ts_ns: clock.wall(window.0),
        measured_to_ts_ns: clock.wall(window.1),
    })
}

/// Reports on each interval of the window.
async fn tell(
    every: Duration,
    shared: &Mutex<Samples>,
    clock: Clock,
    (from, to): (u64, u64),
    mut on_interval: impl FnMut(&Interval) -> Result<()>,
) -> Result<()> {
    let mut begin = from;
    while begin < to {
        let end = (begin + nanos(every)).min(to);
        tokio::time::sleep(Duration::from_nanos(end.saturating_sub(clock.now()))).await;
        let now = clock.now();
        let samples = std::mem::take(&mut *shared.lock().expect("no task panicked"));
        let interval_ns = now.saturating_sub(begin).max(1);
        let achieved_rps = samples.count() as f64 * 1e9 / interval_ns as f64;
        on_interval(&Interval {
            ts_ns: clock.wall(now),
            interval_ns,
            phase: 0,
            offered_rps: achieved_rps,
            achieved_rps,
            mean_ns: samples.mean(),
            p50_ns: samples.quantile(0.5),
            p99_ns: samples.quantile(0.99),
            mean_from_send_ns: samples.mean(),
            p99_from_send_ns: samples.quantile(0.99),
        })?;
        begin = now;
    }
    Ok(())
}

async fn connect(config: &Config) -> Result<Vec<MultiplexedConnection>> {
    let connecting = || format!("connecting to {}", config.addr);
    let server = (config.addr.ip().to_string(), config.addr.port());
    let server = server.into_connection_info().with_context(connecting)?;
    let settings = TcpSettings::default().set_nodelay(config.nodelay);
    let client = Client::open(server.set_tcp_settings(settings)).with_context(connecting)?;
    let mut connections = Vec::with_capacity(config.connections);
    for _ in 0..config.connections {
        let connection = client.get_multiplexed_async_connection().await;
        connections.push(connection.with_context(connecting)?);
    }
    Ok(connections)
}

/// A task's requests until the window ends.
async fn work(
    config: Config,
    mut connection: MultiplexedConnection,
    task: usize,
    clock: Clock,
    (from, to): (u64, u64),
    shared: Option<Arc<Mutex<Samples>>>,
) -> Tally {
    let mut tally = Tally::default();
    let (key, value) = (format!("task:{task:04}"), vec![b'x'; config.value_size]);
    let mut turns = (!config.every.is_zero()).then(|| {
        // at a time of its own, lest all ask at once
        let first = Instant::now() + config.every.mul_f64(rand::rng().random());
        let mut turns = interval_at(first, config.every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        turns
    });
    if config.get_ratio > 0.0 {
        // there is something to get; a server that is gone is noticed below
        let _: RedisResult<()> = connection.set(&key, &value).await;
    }
    let end = Instant::now() + Duration::from_nanos(to.saturating_sub(clock.now()));
    while Instant::now() < end {
        if let Some(turns) = &mut turns
            && timeout_at(end, turns.tick()).await.is_err()
        {
            break;
        }
        let sent = clock.now();
        let gets = config.get_ratio > 0.0 && rand::rng().random::<f64>() < config.get_ratio;
        let answer: RedisResult<()> = match gets {
            true => connection.get(&key).await.map(|_: Option<Vec<u8>>| ()),
            false => connection.set(&key, &value).await,
        };
        let latency = clock.now() - sent;
        match answer {
            _ if sent < from => {}
            Ok(()) => {
                tally.latencies.push(latency);
                if let Some(shared) = &shared {
                    shared.lock().expect("no task panicked").record(latency);
                }
            }
            Err(_) => tally.errors += 1,
        }
        if answer.is_err() {
            // a lost connection fails at once, and would for ever
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    tally
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let check = |options: &str| {
            let line = format!("multiplexed --addr 127.0.0.1:1 {options}");
            Config::parse_from(line.split_whitespace()).check()
        };
        assert!(check("").is_ok());
        for bad in [
            "--connections 0",
            "--tasks 0",
            "--tasks 2 --connections 3",
            "--duration 0s",
            "--get-ratio 1.1",
            "--progress 0s",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
