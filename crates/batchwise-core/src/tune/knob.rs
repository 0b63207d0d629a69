//! What can be switched.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Arm;
use super::report::Advice;

/// A way in which the kernel batches. With [`Arm::On`] it does, with [`Arm::Off`] everything leaves at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Knob {
    /// Nagle's algorithm: small segments wait for an acknowledgment.
    Nagle,
    /// Delayed acknowledgments: they wait for data to go with.
    Delack,
}

impl Knob {
    /// What an application does wrong for which this arm is better than its own.
    pub fn advice(self, better: Arm) -> Advice {
        match (self, better) {
            (Self::Nagle, Arm::On) => Advice::NodelayCosts,
            (Self::Nagle, Arm::Off) => Advice::NagleHolds,
            (Self::Delack, _) => Advice::DelackHolds,
        }
    }

    /// What an arm is called in a sentence.
    pub fn words(self, arm: Arm) -> &'static str {
        match (self, arm) {
            (Self::Nagle, Arm::On) => "Nagle's algorithm",
            (Self::Nagle, Arm::Off) => "TCP_NODELAY",
            (Self::Delack, Arm::On) => "acknowledging late",
            (Self::Delack, Arm::Off) => "acknowledging soon",
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nagle => "nagle",
            Self::Delack => "delack",
        })
    }
}

/// A text that names no knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadKnob;

impl fmt::Display for BadKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write nagle, delack, or auto")
    }
}

impl core::error::Error for BadKnob {}

impl FromStr for Knob {
    type Err = BadKnob;

    fn from_str(text: &str) -> Result<Self, BadKnob> {
        match text {
            "nagle" => Ok(Self::Nagle),
            "delack" => Ok(Self::Delack),
            _ => Err(BadKnob),
        }
    }
}
