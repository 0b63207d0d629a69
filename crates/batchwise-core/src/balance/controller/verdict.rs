//! What the controller is told of a backend, what it answers, and what it is tuned by.

use crate::balance::maglev::BackendId;

/// Effective weights are configured weights times this.
pub const UNIT: u32 = 1000;

/// What the controller is tuned by. Factors are of a backend's configured weight.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Params {
    /// Of the best latency: above it a server gives weight away (the paper's).
    pub alpha_high: f64,
    /// Of the best latency: below it a server may take weight (the paper's).
    pub alpha_low: f64,
    /// How strongly: a server that is x times as slow as the low watermark deserves x to the power of
    /// minus this, of its configured weight.
    pub give: f64,
    /// What a fast server takes in an interval, of its weight, at most.
    pub cap: f64,
    /// The least factor of a server that gets connections.
    pub floor: f64,
    /// The largest factor.
    pub most: f64,
    /// Of the way back to what it deserves, in an interval; the way down is gone at once.
    pub regress: f64,
    /// Changes of a factor below this are not made.
    pub deadband: f64,
    /// Responses below which a server is not judged.
    pub min_samples: u64,
    /// What an interval's responses count for in the next, 0 to 1.
    pub memory: f64,
    /// Standard errors that a difference must be beyond.
    pub certainty: f64,
    /// Intervals without a new estimate after which the last one is not used.
    pub stale_intervals: u32,
    /// Factor with which a server that has come back begins.
    pub start: f64,
    /// Of its own past and of the others' median: below both, a latency is not believed.
    pub suspicious: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            alpha_high: 1.5,
            alpha_low: 1.2,
            give: 0.8,
            cap: 0.25,
            floor: 0.02,
            most: 3.0,
            regress: 0.6,
            deadband: 0.01,
            min_samples: 20,
            memory: 0.6,
            certainty: 2.0,
            stale_intervals: 4,
            start: 0.1,
            suspicious: 0.3,
        }
    }
}

/// A backend in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed {
    /// Who.
    pub id: BackendId,
    /// What names it, see [`super::maglev::identity`].
    pub identity: u64,
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
    /// Connections opened in the interval.
    pub opened: u64,
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
