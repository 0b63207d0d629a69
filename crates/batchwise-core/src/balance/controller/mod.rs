//! Weights from latencies: the paper's §4 and what it leaves out (docs/balance.md, "Controller").

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

mod backend;
mod shift;
mod suspect;

use self::backend::Backend;
use super::maglev::BackendId;

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
    /// Connections that these responses were on: those of one wait in the same queue.
    pub flows: u64,
    /// Connections that are active at the interval's end.
    pub connections: u64,
    /// Connections that wait for an answer at the interval's end.
    pub busy: u64,
    /// Connections opened in the interval.
    pub opened: u64,
    /// A health check that looks at the application's answer has passed since the last interval.
    pub vouched: bool,
}

/// Why a backend has its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
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
            Self::Unanswered => "unanswered",
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
    known: BTreeMap<BackendId, Backend>,
}

impl Controller {
    /// One that has seen nothing.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            known: BTreeMap::new(),
        }
    }

    /// A backend had this weight before a restart, configured weight times [`UNIT`]. Before the
    /// first step.
    pub fn resume(&mut self, id: BackendId, weight: u32) {
        self.known.insert(id, Backend::resumed(weight));
    }

    /// The configured weight of a backend has changed, and nothing else of it: what is known of it
    /// stays. Its weight from now on, configured weight times [`UNIT`]; `None`: nothing is known.
    pub fn rebase(&mut self, id: BackendId, from: u32, to: u32) -> Option<u32> {
        Some(self.known.get_mut(&id)?.rebase(from, to))
    }

    /// Whether a backend, of this configured weight, gets connections is no longer what it was at the
    /// last step, and cannot wait for the next: what holds until then, as that will begin with it.
    pub fn turn(&mut self, id: BackendId, base: u32, serving: bool) -> Verdict {
        let begun = begun(&self.known);
        let backend = self.known.entry(id).or_default();
        backend.turn(serving && base > 0, base, begun, &self.params);
        backend.verdict(id)
    }

    /// Decides on an interval; one verdict for each backend, in the order given. Backends that are
    /// not mentioned are forgotten.
    pub fn step(&mut self, seen: &[Seen]) -> Vec<Verdict> {
        let before = core::mem::take(&mut self.known);
        let begun = begun(&before);
        for s in seen {
            let mut backend = before.get(&s.id).cloned().unwrap_or_default();
            backend.observe(s, begun, &self.params);
            self.known.insert(s.id, backend);
        }
        // In the order of ids from here on, so that sums do not depend on the order given.
        let mut serving: Vec<&mut Backend> =
            self.known.values_mut().filter(|b| b.serving).collect();
        suspect::judge(&mut serving, &self.params);
        shift::decide(&mut serving, &self.params);
        seen.iter()
            .filter_map(|s| Some(self.known.get_mut(&s.id)?.verdict(s.id)))
            .collect()
    }
}

fn begun(known: &BTreeMap<BackendId, Backend>) -> bool {
    known.values().any(Backend::has_begun)
}
