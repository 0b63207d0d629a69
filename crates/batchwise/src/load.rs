//! `batchwise load`: the load generators of `batchwise-load` on the command line.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

use batchwise_load::LatencySummary;
use clap::{Args, Subcommand, ValueEnum};

mod memcached;
mod quic;
mod redis;
mod truth;
mod web;

/// Offer load whose latencies can be trusted.
#[derive(Debug, Args)]
pub struct LoadArgs {
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

/// Runs a load and prints its report. The exit code is 0 also when the report says that it is
/// not valid; it is an error if there is no report.
pub fn run(args: LoadArgs) -> anyhow::Result<ExitCode> {
    match args.workload {
        Workload::Redis(args) => redis::run(&args)?,
        Workload::Web(args) => web::run(&args)?,
        Workload::WebSite(args) => web::write_site(&args)?,
        Workload::Memcached(args) => memcached::run(&args)?,
        Workload::Quic(args) => quic::run(&args)?,
        Workload::QuicServer(args) => quic::serve(&args)?,
    }
    Ok(ExitCode::SUCCESS)
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
