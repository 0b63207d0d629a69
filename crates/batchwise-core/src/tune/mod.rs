//! Which setting of Nagle's algorithm a service's sockets should have, found out while it runs (§5 of
//! the paper, "Dynamic Toggling").
//!
//! An application's own setting stays in force until a test has shown that the other one serves its
//! users better. A test is a [`Switchback`]: short slices of both settings in random order, neighbours
//! compared. [`Controller`] says when to test, and what follows. The whole service is switched, never
//! single sockets: connections share a CPU and a link, so two settings side by side disturb each other.
//!
//! Both read no clock and touch no socket: the agent does.

mod controller;
mod knob;
mod params;
mod policy;
pub mod report;
mod room;
mod slice;
mod switchback;

pub use controller::{Controller, Glimpse, InForce, Load, Next, OVERLAP, Reason, Recalled};
pub use knob::{Knob, Lever};
pub use params::Params;
pub use policy::{BadPolicy, Policy};
pub use room::Room;
pub use slice::Slice;
pub use switchback::{Outcome, Served, Switchback, Usual};

/// Nagle's algorithm on or off.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Small segments wait for the acknowledgment of the one before: batches form.
    On,
    /// TCP_NODELAY: everything leaves at once.
    Off,
}

impl Arm {
    /// The one other arm.
    pub fn other(self) -> Self {
        match self {
            Self::On => Self::Off,
            Self::Off => Self::On,
        }
    }
}
