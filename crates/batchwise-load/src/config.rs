//! What a run is asked to do, and what is refused.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

/// The longest measurement.
const LONGEST: Duration = Duration::from_secs(7 * 86400);

/// Requests a second, climbing linearly over the measured time when the ends differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// At the start; also during the warm-up.
    pub from: f64,
    /// At the end.
    pub to: f64,
}

impl Rate {
    /// The same rate all the time.
    pub fn constant(per_second: f64) -> Self {
        Self {
            from: per_second,
            to: per_second,
        }
    }
}

/// How requests are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Exponential gaps: independent users.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
}

/// A part of a run with its own load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// How long it lasts.
    pub duration: Duration,
    /// Requests a second.
    pub rate: Rate,
    /// Bytes in a value.
    pub value_size: usize,
    /// Share of GETs, 0 to 1; that of the configuration if `None`.
    pub get_ratio: Option<f64>,
}

/// Who decides when the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// The schedule, whatever the server does.
    Open {
        /// How many requests a second.
        rate: Rate,
        /// How they are spaced.
        arrivals: Arrivals,
    },
    /// The server: a response triggers the next request.
    Closed {
        /// Requests in flight on each connection.
        pipeline: usize,
    },
}

/// A run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Redis server.
    pub addr: SocketAddr,
    /// Open or closed loop.
    pub mode: Mode,
    /// Length of the measurement, after the warm-up.
    pub duration: Duration,
    /// Load before the measurement, at the initial rate.
    pub warmup: Duration,
    /// Bytes in a value.
    pub value_size: usize,
    /// Share of GETs, 0 to 1; the rest are SETs.
    pub get_ratio: f64,
    /// Phases of an open loop, one after another. If there are any, they replace `duration`,
    /// `value_size` and the rate of `mode`.
    pub phases: Vec<Phase>,
    /// TCP connections, used round robin.
    pub connections: usize,
    /// TCP_NODELAY on the generator's sockets.
    pub nodelay: bool,
    /// Different keys.
    pub keys: u32,
    /// Of the arrival gaps, keys and commands.
    pub seed: u64,
    /// The client's own work on each response (the paper's c): the generator spins this long
    /// before it looks at the next response or sends again, and the response counts as
    /// received at the end of that.
    pub busy_per_response: Duration,
    /// The CPU to run on.
    pub cpu: Option<usize>,
    /// How often to report in between.
    pub progress: Option<Duration>,
}

impl Config {
    /// 10,000 Poisson requests a second of 64-byte SETs for 5 s over one connection.
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            mode: Mode::Open {
                rate: Rate::constant(10_000.0),
                arrivals: Arrivals::Poisson,
            },
            duration: Duration::from_secs(5),
            warmup: Duration::from_millis(500),
            value_size: 64,
            get_ratio: 0.0,
            phases: Vec::new(),
            connections: 1,
            nodelay: true,
            keys: 1000,
            seed: 1,
            busy_per_response: Duration::ZERO,
            cpu: None,
            progress: None,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.mode {
            Mode::Open { rate, .. } => check_rate(rate)?,
            Mode::Closed { pipeline } if !(1..=1 << 16).contains(&pipeline) => {
                return refuse("the pipeline must be 1 to 65536 requests deep");
            }
            Mode::Closed { .. } if !self.phases.is_empty() => {
                return refuse("a closed loop has no schedule: its rate is what the server gives");
            }
            Mode::Closed { .. } => {}
        }
        if self.phases.len() > 1000 {
            return refuse("a schedule has at most 1000 phases");
        }
        for phase in &self.phases {
            check_rate(phase.rate)?;
            check_duration(phase.duration)?;
            check_value_size(phase.value_size)?;
            check_get_ratio(phase.get_ratio.unwrap_or(self.get_ratio))?;
        }
        if self.phases.iter().map(|p| p.duration).sum::<Duration>() > LONGEST {
            return refuse("a schedule lasts at most 7 days");
        }
        check_duration(self.duration)?;
        check_value_size(self.value_size)?;
        check_get_ratio(self.get_ratio)?;
        if self.warmup > Duration::from_secs(86400) {
            return refuse("the warm-up must be at most a day");
        }
        if !(1..=60_000).contains(&self.connections) {
            return refuse("the number of connections must be 1 to 60000");
        }
        if !(1..=10_000_000).contains(&self.keys) {
            return refuse("the number of keys must be 1 to 10000000");
        }
        if self.busy_per_response > Duration::from_secs(1) {
            return refuse("the busy time per response must be at most 1s");
        }
        if self.progress.is_some_and(|p| p < Duration::from_millis(1)) {
            return refuse("progress intervals must be at least 1ms");
        }
        Ok(())
    }
}

fn refuse(text: &str) -> Result<(), Error> {
    Err(Error::Config(text.to_owned()))
}

fn check_rate(rate: Rate) -> Result<(), Error> {
    match [rate.from, rate.to].iter().all(|&r| r > 0.0 && r <= 50e6) {
        true => Ok(()),
        false => refuse("the rate must be above 0 and at most 50m requests/s"),
    }
}

fn check_duration(duration: Duration) -> Result<(), Error> {
    match (Duration::from_millis(1)..=LONGEST).contains(&duration) {
        true => Ok(()),
        false => refuse("the duration must be 1ms to 7 days"),
    }
}

fn check_value_size(bytes: usize) -> Result<(), Error> {
    match bytes <= 512 << 20 {
        true => Ok(()),
        false => refuse("a Redis value has at most 512 MiB"),
    }
}

fn check_get_ratio(share: f64) -> Result<(), Error> {
    match (0.0..=1.0).contains(&share) {
        true => Ok(()),
        false => refuse("the GET ratio must be 0 to 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_accepted_and_nonsense_is_not() {
        let good = Config::new("127.0.0.1:1".parse().unwrap());
        assert!(good.check().is_ok());
        let bad = [
            Config {
                connections: 0,
                ..good.clone()
            },
            Config {
                keys: 0,
                ..good.clone()
            },
            Config {
                get_ratio: f64::NAN,
                ..good.clone()
            },
            Config {
                get_ratio: 1.1,
                ..good.clone()
            },
            Config {
                duration: Duration::ZERO,
                ..good.clone()
            },
            Config {
                mode: Mode::Closed { pipeline: 0 },
                ..good.clone()
            },
            Config {
                progress: Some(Duration::ZERO),
                ..good.clone()
            },
        ];
        let phase = Phase {
            duration: Duration::from_secs(1),
            rate: Rate::constant(1.0),
            value_size: 64,
            get_ratio: None,
        };
        let bad_phases = [
            Phase {
                get_ratio: Some(2.0),
                ..phase
            },
            Phase {
                rate: Rate::constant(0.0),
                ..phase
            },
            Phase {
                duration: Duration::from_secs(8 * 86400),
                ..phase
            },
        ];
        let scheduled = |mode: Mode, phase: Phase| Config {
            mode,
            phases: vec![phase],
            ..good.clone()
        };
        assert!(scheduled(good.mode, phase).check().is_ok());
        let closed = scheduled(Mode::Closed { pipeline: 1 }, phase);
        let bad_phases = bad_phases.map(|bad| scheduled(good.mode, bad));
        for config in bad.into_iter().chain(bad_phases).chain([closed]) {
            assert!(
                matches!(config.check(), Err(Error::Config(_))),
                "{config:?}"
            );
        }
    }
}
