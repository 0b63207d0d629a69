//! What the controller is told of a backend, and what it answers.

use crate::balance::maglev::BackendId;

/// Effective weights are configured weights times this.
pub const UNIT: u32 = 1000;

/// A backend in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// Who.
    pub id: BackendId,
    /// Configured weight.
    pub base: u32,
    /// Healthy and not drained: may get connections.
    pub serving: bool,
    /// Mean response latency with the common mix of clients, ns.
    pub latency_ns: Option<f64>,
    /// Responses in the interval that the latency is the mean of.
    pub samples: u64,
    /// Connections that these responses were on: those of one wait in the same queue.
    pub flows: u64,
    /// Connections that are active at the interval's end.
    pub connections: u64,
    /// Connections that wait for an answer at the interval's end.
    pub busy: u64,
    /// A health check that looks at the application's answer has passed since the last interval.
    pub confirmed: bool,
}

/// Why a backend has its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Weights are the configured ones.
    Static,
    /// As fast as the others: nothing to do.
    Steady,
    /// Slower than the high watermark: weight was taken.
    Slow,
    /// Fast: it was given weight that slow ones lost.
    Takes,
    /// Fast, but with less freshness than a slow server.
    NotFresh,
    /// Was to get more than the cap, or is at the most.
    Capped,
    /// Slow, but has the least weight allowed already.
    Floor,
    /// Too few responses to judge it by.
    FewSamples,
    /// Nothing has been known for long.
    Stale,
    /// Nothing has been known for long, and connections wait for an answer.
    Unanswered,
    /// Moves back towards its configured share.
    Regress,
    /// Not healthy.
    Down,
    /// Drained, or its configured weight is 0.
    Drained,
    /// Has come back and is given more step by step.
    Returning,
    /// Far faster than before, and no health check has said that its answers are good.
    Suspicious,
    /// All are slow alike.
    AllSlow,
}

/// What was decided for a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Who.
    pub id: BackendId,
    /// From now on, configured weight times [`UNIT`]; 0: no new connections.
    pub weight: u32,
    /// Until now.
    pub before: u32,
    /// The reason.
    pub why: Why,
    /// Responses in the interval over connections at its end.
    pub freshness: Option<f64>,
}
