//! What can be switched.

use serde::{Deserialize, Serialize};

use super::Arm;
use crate::sense::report::Advice;

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

/// How delayed acknowledgments are cut short, the finest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Lever {
    /// The service's sockets alone: acknowledgments wait two ticks of the kernel's clock at most.
    Socket,
    /// All connections to the service's address: a route of its own acknowledges at once.
    Route,
    /// All connections of the network namespace: acknowledgments do not wait for data to go with.
    Namespace,
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
