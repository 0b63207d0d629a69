//! `batchwise-load memcached`.

use batchwise_load::Distribution;
use batchwise_load::distribution::parse_amounts;
use batchwise_load::memcached::{Config, run as run_load};
use clap::Args;

use super::truth::{TruthArgs, parse_constant_rate};

pub const EXAMPLES: &str = "\
Examples:
  Ten connections, as many gets as sets, values of 40 to 10000 bytes:
    batchwise load memcached --addr 10.0.0.1:11211 --connections 10 --duration 30s --log truth.csv
  Eight requests in flight on each:
    batchwise load memcached --addr 10.0.0.1:11211 --connections 10 --in-flight 8";

/// A load of gets and sets.
#[derive(Debug, Args)]
pub struct MemcachedArgs {
    #[command(flatten)]
    truth: TruthArgs,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 1, value_name = "N")]
    in_flight: usize,
    /// Bytes in a value: 500, or 40..10000, each size equally likely
    #[arg(long, default_value = "40..10000", value_name = "DIST", value_parser = parse_amounts)]
    value_size: Distribution,
    /// Share of gets, 0 to 1; the rest are sets
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    get_ratio: f64,
    /// Different keys; all are set before the load
    #[arg(long, default_value_t = 1000, value_name = "N")]
    keys: u32,
    /// Requests a second over all connections, as far as the requests in flight allow
    #[arg(long, value_parser = parse_constant_rate)]
    rate: Option<f64>,
    /// Write requests that become possible together with one call, not each with its own
    #[arg(long)]
    coalesce: bool,
}

/// Runs the load and prints its report.
pub fn run(args: &MemcachedArgs) -> anyhow::Result<()> {
    let config = Config {
        options: args.truth.options(),
        in_flight: args.in_flight,
        value_size: args.value_size,
        get_ratio: args.get_ratio,
        keys: args.keys,
        rate: args.rate,
        coalesce: args.coalesce,
    };
    args.truth.print(&run_load(&config)?)
}
