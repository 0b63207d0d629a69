//! Weights from latencies.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::maglev::BackendId;

/// Effective weights are configured weights times this.
pub const UNIT: u32 = 1000;

/// What the controller is tuned by.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Params {
    /// Of the best latency: above it a server gives weight away.
    pub alpha_high: f64,
    /// Of the best latency: below it a server may take weight.
    pub alpha_low: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            alpha_high: 1.5,
            alpha_low: 1.2,
        }
    }
}

/// A backend in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
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
    /// Connections that are active at the interval's end.
    pub connections: u64,
    /// Connections opened in the interval.
    pub opened: u64,
    /// A health check that looks at the application's answer has passed since the last interval.
    pub vouched: bool,
}

/// Why a backend has its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Why {
    /// Weights are the configured ones.
    Static,
    /// Nothing to do.
    Steady,
    /// Slower than the high watermark: weight was taken.
    Slow,
    /// Fast: it was given weight that slow ones lost.
    Takes,
    /// Fast, but with less freshness than a slow server.
    NotFresh,
    /// Was to get more than the cap, or is at the most.
    Capped,
    /// Slow, and at the least already.
    Floor,
    /// Too few responses to judge it by.
    FewSamples,
    /// Nothing has been known for long.
    Stale,
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

impl Why {
    /// The word that lines use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Steady => "steady",
            Self::Slow => "slow",
            Self::Takes => "takes",
            Self::NotFresh => "not_fresh",
            Self::Capped => "capped",
            Self::Floor => "floor",
            Self::FewSamples => "few_samples",
            Self::Stale => "stale",
            Self::Regress => "regress",
            Self::Down => "down",
            Self::Drained => "drained",
            Self::Returning => "returning",
            Self::Suspicious => "suspicious",
            Self::AllSlow => "all_slow",
        }
    }
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

/// Decides once an interval.
#[derive(Clone, Debug)]
pub struct Controller {
    params: Params,
    weights: BTreeMap<BackendId, u32>,
}

impl Controller {
    /// One that has seen nothing.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            weights: BTreeMap::new(),
        }
    }

    /// A backend had this weight before a restart.
    pub fn resume(&mut self, id: BackendId, weight: u32) {
        self.weights.insert(id, weight);
    }

    /// Decides on an interval; one verdict for each backend, in their order.
    pub fn step(&mut self, seen: &[Seen]) -> Vec<Verdict> {
        let _ = self.params;
        let judge = |s: &Seen| {
            let weight = if s.serving {
                s.base.saturating_mul(UNIT)
            } else {
                0
            };
            let before = self.weights.insert(s.id, weight).unwrap_or(weight);
            Verdict {
                id: s.id,
                weight,
                before,
                why: if s.serving { Why::Steady } else { Why::Down },
                freshness: (s.connections > 0).then(|| s.samples as f64 / s.connections as f64),
            }
        };
        seen.iter().map(judge).collect()
    }
}
