//! The load generators on the command line: a workload is a subcommand.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};

use batchwise_load::LatencySummary;
use clap::{Parser, Subcommand, ValueEnum};

mod memcached;
mod quic;
mod redis;
mod truth;
mod web;

const EXAMPLES: &str = "\
Examples:
  batchwise load redis --addr 127.0.0.1:6379 --rate 5000 --duration 5s --value-size 16384
      SET of 16 KiB values, Poisson arrivals
  batchwise load redis --addr 127.0.0.1:6379 --rate 5000 --duration 5s --value-size 64 \\
      --nodelay off --format json
      the same with Nagle's algorithm at the client, for programs";

/// Load a service and measure its latency honestly, from the intended send times
#[derive(Debug, Parser)]
#[command(version, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// SET and GET requests to a Redis server
    #[command(after_help = redis::EXAMPLES)]
    Redis(Box<redis::RedisArgs>),
    /// Pages of objects from a web server, as a browser asks for them
    #[command(after_help = web::EXAMPLES)]
    Web(Box<web::WebArgs>),
    /// Write the files that `load web` asks for
    WebSite(web::WebSiteArgs),
    /// Gets and sets to a memcached server, a fixed number in flight
    #[command(after_help = memcached::EXAMPLES)]
    Memcached(Box<memcached::MemcachedArgs>),
    /// Requests over QUIC to `load quic-server`
    #[command(after_help = quic::EXAMPLES)]
    Quic(Box<quic::QuicArgs>),
    /// The server for `load quic`
    QuicServer(quic::QuicServerArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// One object on a line; with --progress one more for each interval, before it
    #[value(alias = "jsonl")]
    Json,
    /// For people
    Text,
}

fn parse_addr(text: &str) -> Result<SocketAddr, String> {
    let mut found = text
        .to_socket_addrs()
        .map_err(|why| format!("{why}; write an address and a port, such as 127.0.0.1:6379"))?;
    found
        .next()
        .ok_or_else(|| format!("`{text}` has no address"))
}

/// Runs a load and prints its report. It is no error when the report says that it is not valid; it is
/// one if there is no report.
pub fn run() -> anyhow::Result<()> {
    match Cli::parse().workload {
        Workload::Redis(args) => redis::run(&args),
        Workload::Web(args) => web::run(&args),
        Workload::WebSite(args) => web::write_site(&args),
        Workload::Memcached(args) => memcached::run(&args),
        Workload::Quic(args) => quic::run(&args),
        Workload::QuicServer(args) => quic::serve(&args),
    }
}

fn write_latency(out: &mut impl Write, name: &str, latency: &LatencySummary) -> io::Result<()> {
    writeln!(
        out,
        "{name:<24} mean {:>9}  p50 {:>9}  p90 {:>9}  p99 {:>9}  p99.9 {:>9}  max {:>9}",
        human(latency.mean),
        human(latency.p50),
        human(latency.p90),
        human(latency.p99),
        human(latency.p999),
        human(latency.max)
    )
}

fn write_validity(out: &mut impl Write, valid: bool, why_invalid: &[String]) -> io::Result<()> {
    if valid {
        return writeln!(out, "valid");
    }
    writeln!(out, "NOT VALID:")?;
    why_invalid
        .iter()
        .try_for_each(|why| writeln!(out, "  - {why}"))
}

/// Nanoseconds for people.
fn human(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) if ns < 1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.2} s", ns as f64 / 1e9),
    }
}
