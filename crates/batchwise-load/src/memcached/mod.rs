//! A memcached client in a closed loop: gets and sets, a fixed number in flight on each connection
//! (the paper's §5.7, where memtier does the same).

mod protocol;
mod session;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::causal::conclude::conclude;
use crate::causal::distribution::{Distribution, parse_amounts};
use crate::causal::driver::drive;
use crate::causal::options::check_load;
use crate::causal::pace::Pace;
use crate::causal::{Options, TruthReport};
use crate::setup::open_streams;
use crate::units::parse_constant_rate;
use session::{Session, prefill};

/// Bytes in a value, at most: memcached's own limit, less what an item needs besides.
const LARGEST: f64 = 1_000_000.0;

/// A run of the memcached client. By default it is the paper's mix: as many gets as sets, values of
/// 40 to 10000 B.
#[derive(Clone, Debug, Parser)]
pub struct Config {
    /// The server and the connections.
    #[command(flatten)]
    pub options: Options,
    /// Requests in flight on each connection
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub in_flight: usize,
    /// Bytes in a value: 500, or 40..10000, each size equally likely
    #[arg(long, default_value = "40..10000", value_name = "DIST", value_parser = parse_amounts)]
    pub value_size: Distribution,
    /// Share of gets, 0 to 1; the rest are sets
    #[arg(long, default_value_t = 0.5, value_name = "SHARE")]
    pub get_ratio: f64,
    /// Different keys; all are set before the load
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub keys: u32,
    /// Requests a second over all connections, as far as the requests in flight allow
    #[arg(long, value_parser = parse_constant_rate)]
    pub rate: Option<f64>,
    /// Write requests that become possible together with one call, not each with its own
    #[arg(long)]
    pub coalesce: bool,
}

impl Config {
    fn check(&self) -> Result<()> {
        self.options.check()?;
        check_load(self.rate, self.in_flight)?;
        ensure!(
            (0.0..=1.0).contains(&self.get_ratio),
            "the get ratio must be 0 to 1"
        );
        ensure!(
            (1..=10_000_000).contains(&self.keys),
            "the number of keys must be 1 to 10000000"
        );
        let bounds = self.value_size.bounds();
        ensure!(
            bounds.is_some(),
            "the value size must have bounds, such as 40..10000 or 500"
        );
        ensure!(
            bounds.is_some_and(|(low, high)| low >= 1.0 && high <= LARGEST),
            "values must have 1 to 1000000 bytes"
        );
        Ok(())
    }
}

/// Runs the memcached client. An overloaded or vanishing server is no error but an invalid report.
pub fn run(config: &Config) -> Result<TruthReport> {
    config.check()?;
    let options = &config.options;
    let mut streams = open_streams(options.addr, options.connections, true)?;
    prefill(config, &mut streams[0])?;
    let pace = config
        .rate
        .map(|rate| Pace::rate(rate, options.connections));
    let sessions = (0..).map(|number| Session::new(config, pace, options.seed ^ number));
    let links = streams.into_iter().zip(sessions).collect();
    let (_, measured) = drive(options, config.coalesce, links)?;
    conclude("memcached", options, config.rate, None, measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let check = |options: &str| {
            let line = format!("memcached --addr 127.0.0.1:1 {options}");
            Config::parse_from(line.split_whitespace()).check()
        };
        assert!(check("").is_ok());
        for bad in [
            "--value-size 0",
            "--value-size 2000000",
            "--value-size exp:100",
            "--get-ratio 1.5",
            "--keys 0",
            "--in-flight 0",
            "--rate 100m",
            "--connections 0",
            "--duration 0s",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
