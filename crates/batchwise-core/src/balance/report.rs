//! What `batchwise balance` prints and logs: lines that other programs rely on. Field names are a
//! contract; fields may be added, never renamed. `None` is "not known", never 0.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::controller::Why;
use crate::passive::report::LatencyQuantiles;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// A backend in an interval.
    Backend(Box<BackendLine>),
    /// What was decided for a service.
    Decision(DecisionLine),
    /// Something that happened.
    Event(EventLine),
    /// Packets' fates since the start.
    Totals(TotalsLine),
}

/// Whether a backend gets connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// New ones and old ones.
    Serving,
    /// Only those that it has.
    Draining,
    /// Not healthy; it keeps the ones that it has.
    Down,
}

/// What health checks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It answers as it should.
    Up,
    /// It does not.
    Down,
    /// No check has ended yet, or none is made any more.
    Unknown,
    /// Nothing is checked.
    Unchecked,
}

/// Who decides on weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The configuration.
    Static,
    /// The configuration; what latency would say is logged.
    Observe,
    /// Latency.
    Latency,
}

/// A backend in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendLine {
    /// End of the interval, ns since the Unix epoch.
    pub ts_ns: u64,
    /// The service's name.
    pub service: String,
    /// The backend's name.
    pub backend: String,
    /// Its address.
    pub address: String,
    /// Whether it gets connections.
    pub state: State,
    /// What health checks say.
    pub health: Health,
    /// Why they say it; null when there is nothing to say.
    pub health_why: Option<String>,
    /// Configured weight.
    pub base_weight: u32,
    /// Weight in force, times [`super::UNIT`].
    pub weight: u32,
    /// Of the slots, 0 to 1.
    pub share: f64,
    /// Active at the interval's end; of one that leaves all that it keeps, also idle and closing ones.
    pub connections: Option<u64>,
    /// It was taken out of the configuration, and is gone after its last connection or after so long
    /// from now, ns; null: it is configured.
    pub leaves_ns: Option<u64>,
    /// Opened in the interval.
    pub opened: u64,
    /// Closed in the interval.
    pub closed: u64,
    /// From clients in the interval.
    pub packets: u64,
    /// From clients in the interval.
    pub bytes: u64,
    /// Response latency.
    pub latency_ns: LatencyQuantiles,
    /// Responses that it is made from.
    pub samples: u64,
    /// Responses over active connections.
    pub freshness: Option<f64>,
    /// 0 (guess) to 1: how far to trust the latency.
    pub confidence: Option<f64>,
    /// Of the latency, ns.
    pub age_ns: Option<u64>,
    /// Where the latency was estimated: `path`, between client and server.
    pub vantage: String,
    /// How: `passive`, from packets of one direction.
    pub estimator: String,
    /// Why it has its weight.
    pub why: Why,
    /// When its weight last changed, ns since the Unix epoch.
    pub changed_ts_ns: Option<u64>,
}

/// What was decided for a service at the end of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionLine {
    /// ns since the Unix epoch.
    pub ts_ns: u64,
    /// The service's name.
    pub service: String,
    /// Who decides.
    pub policy: Policy,
    /// The table was changed accordingly; under `observe` it is not.
    pub applied: bool,
    /// Slots whose backend changed, or would have.
    pub moved_slots: u64,
    /// All backends.
    pub backends: Vec<DecisionBackend>,
}

/// A backend in a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionBackend {
    /// Its name.
    pub backend: String,
    /// With the common mix of clients, ns.
    pub latency_ns: Option<u64>,
    /// Responses in the interval.
    pub samples: u64,
    /// Active at the interval's end.
    pub connections: u64,
    /// Responses over active connections.
    pub freshness: Option<f64>,
    /// Weight until now, times [`super::UNIT`].
    pub before: u32,
    /// Weight from now on, times [`super::UNIT`].
    pub after: u32,
    /// The reason.
    pub why: Why,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// ns since the Unix epoch.
    pub ts_ns: u64,
    /// `health`, `reload`, `drain`, `takeover`, `config_error`, `neighbour` and so on.
    pub what: String,
    /// The service's name, if it is about one.
    pub service: Option<String>,
    /// The backend's name, if it is about one.
    pub backend: Option<String>,
    /// In words.
    pub detail: String,
}

/// Packets' fates since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsLine {
    /// ns since the Unix epoch.
    pub ts_ns: u64,
    /// Packets by their one fate.
    #[serde(flatten)]
    pub outcomes: BTreeMap<String, u64>,
    /// Packets of connections that no table knew.
    pub unknown_flows: u64,
    /// Flows for which there was no room.
    pub insert_failed: u64,
    /// Flows that are remembered.
    pub flows_settled: u64,
    /// Flows that have only begun.
    pub flows_young: u64,
    /// Events of the kernel that were lost.
    pub lost_events: u64,
}
