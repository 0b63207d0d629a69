//! What `batchwise balance` prints and logs: lines that other programs rely on. Field names are a
//! contract; fields may be added, never renamed. null is "not known", never 0.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::controller::Why;
use crate::passive::report::LatencyQuantiles;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// A backend in an interval.
    Backend(Box<BackendLine>),
    /// What was decided for a service.
    Decision(DecisionLine),
    /// Something that happened.
    Event(EventLine),
    /// Packets by outcome since the name was first started.
    Totals(TotalsLine),
}

/// Whether a backend gets connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The configuration.
    Static,
    /// The configuration; what `latency` would decide is logged.
    Observe,
    /// The latency of backends.
    Latency,
}

/// A backend in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BackendLine {
    /// End of the interval, ns since the Unix epoch.
    pub ts_ns: u64,
    /// The service's name.
    pub service: String,
    /// The backend's name.
    pub backend: String,
    /// Its `address:port`.
    pub address: String,
    /// Whether it gets connections.
    pub state: State,
    /// What health checks say.
    pub health: Health,
    /// Why health checks say so. null: there is nothing to say.
    pub health_why: Option<String>,
    /// Configured weight.
    pub base_weight: u32,
    /// Weight in force: 1000 times that of the configuration, where nothing moved it.
    pub weight: u32,
    /// Its share of the slots, 0 to 1.
    pub share: f64,
    /// How many connections are active at the interval's end. Of a backend that was taken out: all
    /// that it keeps, idle and closing ones too. null: not known.
    pub connections: Option<u64>,
    /// Time that is left at most to a backend that was taken out of the configuration, ns. It is gone
    /// after its last connection. null: it is configured.
    pub leaves_ns: Option<u64>,
    /// How many connections were opened in the interval.
    pub opened: u64,
    /// How many connections were closed in the interval.
    pub closed: u64,
    /// Packets from clients in the interval.
    pub packets: u64,
    /// Bytes from clients in the interval.
    pub bytes: u64,
    /// Response latency, ns.
    pub latency_ns: LatencyQuantiles,
    /// How many responses the latency was computed from.
    pub samples: u64,
    /// Responses over active connections. null: not known.
    pub freshness: Option<f64>,
    /// 0 (guess) to 1: how far to trust the latency. null: there is no latency.
    pub confidence: Option<f64>,
    /// Age of the latency, ns. null: there is no latency.
    pub age_ns: Option<u64>,
    /// Where the latency was estimated: `path`, between client and server.
    pub vantage: String,
    /// How it was made: `passive`, from packets of one direction.
    pub estimator: String,
    /// Why it has its weight.
    pub why: Why,
    /// When its weight last changed, ns since the Unix epoch. null: never.
    pub changed_ts_ns: Option<u64>,
}

/// What was decided for a service at the end of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionLine {
    /// When it was decided, ns since the Unix epoch.
    pub ts_ns: u64,
    /// The service's name.
    pub service: String,
    /// Who decides.
    pub policy: Policy,
    /// Whether the table was changed accordingly; under `observe` it is not.
    pub applied: bool,
    /// How many slots changed their backend, or would have.
    pub moved_slots: u64,
    /// All backends of the service.
    pub backends: Vec<DecisionBackend>,
}

/// A backend in a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionBackend {
    /// Its name.
    pub backend: String,
    /// Latency with the common mix of clients, ns. null: not known.
    pub latency_ns: Option<u64>,
    /// How many responses the latency was computed from.
    pub samples: u64,
    /// How many connections are active at the interval's end.
    pub connections: u64,
    /// Responses over active connections. null: not known.
    pub freshness: Option<f64>,
    /// Weight until now, on the same scale as `weight`.
    pub before: u32,
    /// Weight from now on, on the same scale as `weight`.
    pub after: u32,
    /// The reason.
    pub why: Why,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventLine {
    /// When it happened, ns since the Unix epoch.
    pub ts_ns: u64,
    /// What kind of event, in a word: see below.
    pub what: String,
    /// The service's name. null: it is about none in particular.
    pub service: Option<String>,
    /// The backend's name. null: it is about none in particular.
    pub backend: Option<String>,
    /// What happened, in words.
    pub detail: String,
}

/// Packets' fates since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TotalsLine {
    /// When it was counted, ns since the Unix epoch.
    pub ts_ns: u64,
    /// Packets by their one fate.
    #[serde(flatten)]
    pub outcomes: BTreeMap<String, u64>,
    /// How many packets were of connections that no table knew.
    pub unknown_flows: u64,
    /// For how many flows there was no room.
    pub insert_failed: u64,
    /// How many flows are remembered.
    pub flows_settled: u64,
    /// How many flows have only begun.
    pub flows_young: u64,
    /// How many events of the kernel were lost since the start.
    pub lost_events: u64,
}
