//! What a controller did and why: one line of the decision log.

use alloc::string::String;

use super::{Arm, Peer};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// The first time that the service's latency is known.
    Start,
    /// The other arm is tried.
    Probe,
    /// The other arm is tried because it was better under this load before.
    Recall,
    /// A trial was ended early: it hurt.
    Abort,
    /// A trial was ended early: the other end's agent is trying an arm of its own.
    Yield,
    /// The arm that was tried stays.
    Adopt,
    /// The arm from before the trial is back.
    Keep,
    /// The same arm under the same load is not what it was: what was learned is forgotten.
    Reset,
    /// The applications' own settings are back: nothing is better than them, or nothing is known.
    GiveBack,
    /// A dry run would now have tried the other arm.
    WouldProbe,
    /// Latency is not known well enough to decide.
    Undecided,
    /// The batching limit is twice or half of what it was.
    Limit,
}

/// What is known of an arm under the present load.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Known {
    /// Mean latency of a request, ns.
    pub latency_ns: u64,
    /// Requests a second when it was last seen.
    pub throughput_per_s: f64,
    /// 0 (guess) to 1: how far to trust the latency.
    pub confidence: f64,
    /// Time since it was last seen, ns.
    pub age_ns: u64,
}

/// A decision and all that it was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// ns of the clock of [`super::Vitals`].
    pub at: u64,
    /// What happened.
    pub happened: Happened,
    /// The arm in force from now on.
    pub arm: Arm,
    /// It is what the applications asked for themselves: their sockets are as they set them.
    pub is_wish: bool,
    /// What most of the applications asked for.
    pub wish: Arm,
    /// Messages a second.
    pub load: f64,
    /// Bytes of a request and its response.
    pub message_bytes: f64,
    /// Nagle on, under this load.
    pub on: Option<Known>,
    /// Nagle off, under this load.
    pub off: Option<Known>,
    /// What exploration may still cost, ns of waiting summed over messages.
    pub budget_left: f64,
    /// What the other end's agent does.
    pub peer: Option<Peer>,
    /// Bytes that may be held back, where a limit moves gradually.
    pub limit: Option<u32>,
    /// For people.
    pub why: String,
}
