//! `batchwise-load quic` and `quic-server`.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use batchwise_load::Distribution;
use batchwise_load::distribution::{parse_amounts, parse_times};
use batchwise_load::quic::{Config, Server, ServerConfig, run as run_load};
use batchwise_load::units::parse_duration;
use clap::Args;

use super::parse_addr;
use super::truth::TruthArgs;

pub const EXAMPLES: &str = "\
Examples:
  batchwise load quic-server --listen 10.0.0.1:4433 --work exp:200us
  Responses that fit into a packet, and responses that do not:
    batchwise load quic --addr 10.0.0.1:4433 --response-size 30..130 --log truth.csv
    batchwise load quic --addr 10.0.0.1:4433 --response-size 1600..15100 --log truth.csv";

/// A load of requests over QUIC.
#[derive(Debug, Args)]
pub struct QuicArgs {
    #[command(flatten)]
    truth: TruthArgs,
    /// Requests in flight on a connection, at most; of a range, each page draws one
    #[arg(long, default_value = "1..16", value_name = "DIST", value_parser = parse_amounts)]
    streams: Distribution,
    /// Bytes in a response: 500, or 1600..15100, each size equally likely
    #[arg(long, default_value = "30..130", value_name = "DIST", value_parser = parse_amounts)]
    response_size: Distribution,
    /// Pause between two pages: none, 20ms, 10ms..30ms, exp:20ms, lognormal:MEDIAN:SIGMA
    #[arg(long, value_name = "DIST", default_value = "none", value_parser = parse_times)]
    think: Distribution,
}

/// A server.
#[derive(Debug, Args)]
pub struct QuicServerArgs {
    /// Where to listen, such as 127.0.0.1:4433; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    listen: SocketAddr,
    /// How long the CPU works on each request: none, 200us, exp:200us, lognormal:MEDIAN:SIGMA
    #[arg(long, value_name = "DIST", default_value = "none", value_parser = parse_times)]
    work: Distribution,
    /// Of the work; random if left out
    #[arg(long)]
    seed: Option<u64>,
    /// End after this time; without it, when it is interrupted
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
}

/// Runs the load and prints its report.
pub fn run(args: &QuicArgs) -> anyhow::Result<()> {
    let config = Config {
        options: args.truth.options(),
        streams: args.streams,
        response_size: args.response_size,
        think: args.think,
    };
    args.truth.print(&run_load(&config)?)
}

/// Runs the server.
pub fn serve(args: &QuicServerArgs) -> anyhow::Result<()> {
    let server = Server::start(&ServerConfig {
        listen: args.listen,
        work: args.work,
        seed: args.seed.unwrap_or_else(batchwise_load::random_seed),
    })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {}", server.addr())?;
    out.flush()?;
    drop(out);
    server.serve(args.duration);
    Ok(())
}
