//! A memcached client in a closed loop: gets and sets, a fixed number in flight on each connection
//! (the paper's §5.7, where memtier does the same).

mod protocol;
mod session;

use crate::Error;
use crate::causal::distribution::Distribution;
use crate::causal::driver::{Driven, drive};
use crate::causal::options::{check_in_flight, check_rate};
use crate::causal::pace::Pace;
use crate::causal::report::{Context, conclude};
use crate::causal::{Options, TruthReport};
use crate::setup::open_streams;
use session::{Session, prefill};

/// Bytes in a value, at most: memcached's own limit, less what an item needs besides.
const LARGEST: f64 = 1_000_000.0;

/// A run of the memcached client.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server and the connections.
    pub options: Options,
    /// Requests in flight on each connection.
    pub in_flight: usize,
    /// Bytes in a value.
    pub value_size: Distribution,
    /// Share of gets, 0 to 1; the rest are sets.
    pub get_ratio: f64,
    /// Different keys; all are set before the load.
    pub keys: u32,
    /// Requests a second over all connections, at exponential gaps, as far as the requests in
    /// flight allow; without it each response is followed by a request at once.
    pub rate: Option<f64>,
    /// Write all requests that become possible together with one call.
    pub coalesce: bool,
}

impl Config {
    /// The paper's mix: as many gets as sets, values of 40 to 10000 B; one request in flight.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            in_flight: 1,
            value_size: Distribution::Uniform {
                low: 40.0,
                high: 10_000.0,
            },
            get_ratio: 0.5,
            keys: 1000,
            rate: None,
            coalesce: false,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Config(text.to_owned()));
        self.options.check()?;
        check_rate(self.rate)?;
        check_in_flight(self.in_flight)?;
        if !(0.0..=1.0).contains(&self.get_ratio) {
            return refuse("the get ratio must be 0 to 1");
        }
        if !(1..=10_000_000).contains(&self.keys) {
            return refuse("the number of keys must be 1 to 10000000");
        }
        match self.value_size.bounds() {
            Some((low, high)) if low >= 1.0 && high <= LARGEST => Ok(()),
            Some(_) => refuse("values must have 1 to 1000000 bytes"),
            None => refuse("the value size must have bounds, such as 40..10000 or 500"),
        }
    }
}

/// Runs the memcached client. An overloaded or vanishing server is no error but an invalid report.
pub fn run(config: &Config) -> Result<TruthReport, Error> {
    config.check()?;
    let options = &config.options;
    let mut streams = open_streams(options.addr, options.connections, true)?;
    prefill(config, &mut streams[0])?;
    let pace = config
        .rate
        .map(|rate| Pace::rate(rate, options.connections));
    let sessions = (0..).map(|number| Session::new(config, pace, options.seed ^ number));
    let links = streams.into_iter().zip(sessions).collect();
    let Driven {
        tally,
        clock,
        cpu,
        elapsed,
        ..
    } = drive(options, config.coalesce, links)?;
    let context = Context {
        workload: "memcached",
        connections: options.connections,
        target_rps: config.rate,
        pages: None,
        seed: options.seed,
    };
    Ok(conclude(&context, &tally, &clock, &cpu, elapsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_mix_is_accepted_and_nonsense_is_not() {
        let good = Config::new(Options::new("127.0.0.1:11211".parse().unwrap()));
        assert!(good.check().is_ok());
        let size = |value_size| Config {
            value_size,
            ..good.clone()
        };
        let bad = [
            size(Distribution::Constant(0.0)),
            size(Distribution::Constant(2e6)),
            size(Distribution::Exponential { mean: 100.0 }),
            Config {
                get_ratio: 1.5,
                ..good.clone()
            },
            Config {
                keys: 0,
                ..good.clone()
            },
        ];
        for config in bad {
            assert!(
                matches!(config.check(), Err(Error::Config(_))),
                "{config:?}"
            );
        }
    }
}
