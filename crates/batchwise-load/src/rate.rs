//! Requests a second, how they are spaced, and for how long; and the seed of what is random in that.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

/// A seed for a run that need not repeat another one.
pub fn random_seed() -> u64 {
    // 53 bits: JSON readers that know only floating-point numbers give it back unchanged.
    rand::random::<u64>() >> 11
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Exponential gaps: independent users
    Poisson,
    /// Equal gaps
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
