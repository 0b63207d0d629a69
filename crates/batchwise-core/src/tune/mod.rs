//! Which arm of Nagle's algorithm a service's sockets should use, decided from its end-to-end
//! latency while it runs (§5 of the paper, "Dynamic Toggling").
//!
//! The whole service is switched, never single sockets: connections share a CPU and a link, so two
//! arms side by side disturb each other. Time is therefore cut into windows of one arm each.
//! [`Controller`] is told about every tick and answers with the arm to use; it reads no clock and
//! touches no socket, so the same code runs in the agent and in a simulator.

mod budget;
mod controller;
mod event;
mod gradual;
mod memory;
mod policy;
mod probe;
mod tuning;

pub use budget::Budget;
pub use controller::{Command, Controller};
pub use event::{Event, Happened, Known};
pub use gradual::{Gradual, MOST_LIMIT};
pub use memory::{Context, Memory, Perf, Record};
pub use policy::{BadPolicy, Policy};
pub use tuning::Tuning;

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

/// What a window shows of a service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Mean end-to-end latency, ns.
    pub latency: f64,
    /// Messages a second.
    pub throughput: f64,
    /// Bytes of a request and its response.
    pub message_bytes: f64,
    /// How far to trust it, 0 to 1.
    pub confidence: f64,
}

/// The window that is being measured.
pub trait Meter {
    /// Forgets what was: the window begins now.
    fn restart(&mut self);
    /// What the window shows so far; `None` when nothing was completed in it.
    fn measure(&mut self) -> Option<Measurement>;
}

/// The queues at this end alone, in one tick: coarser than a [`Measurement`], but known at once,
/// without the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quick {
    /// Time that messages spent in this end's queues during the tick, summed over messages, ns.
    pub waited: f64,
    /// Messages that left them.
    pub done: u64,
}

impl Quick {
    /// Mean wait of a message, ns. When none left, what has been waited so far is a lower bound.
    pub fn latency(&self) -> f64 {
        self.waited / (self.done.max(1) as f64)
    }

    /// Adds another tick.
    pub fn add(&mut self, other: &Self) {
        self.waited += other.waited;
        self.done += other.done;
    }
}

/// What the other end's agent tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The arm of its own sockets.
    pub arm: Arm,
    /// It is trying an arm at this moment.
    pub probing: bool,
}

/// What is known at every tick, also while the queues are not being counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vitals {
    /// ns of any monotonic clock.
    pub now: u64,
    /// Connections that are open.
    pub connections: u64,
    /// What most of the applications asked for themselves.
    pub wish: Arm,
    /// Bytes acknowledged by the peers and received from them since the last tick.
    pub bytes: u64,
    /// Bytes handed over by the applications and not acknowledged yet, now.
    pub outstanding: u64,
    /// Segments sent again since the last tick.
    pub retransmits: u64,
    /// Smoothed round trip, ns.
    pub rtt: u64,
    /// Only while the queues are counted.
    pub quick: Option<Quick>,
    /// The other end's agent, when it was heard of lately.
    pub peer: Option<Peer>,
}
