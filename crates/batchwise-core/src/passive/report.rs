//! What `batchwise passive` prints: lines that other programs rely on. Field names are a contract;
//! fields may be added, never renamed. null is "not known", never 0.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

pub use super::server::LatencyQuantiles;
use super::server::Server;
use super::{Epoch, Transport};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// A server in an interval.
    Server(ServerLine),
    /// A flow's epoch that closed.
    Epoch(EpochLine),
    /// What was seen in all, at the end.
    Totals(TotalsLine),
}

/// All flows of a server in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerLine {
    /// End of the interval, ns since the Unix epoch.
    pub ts_ns: u64,
    /// Length of the interval, ns.
    pub interval_ns: u64,
    /// `address:port` of the server.
    pub server: String,
    /// What carries the requests.
    pub transport: Transport,
    /// Where the estimate was made: `path`, between client and server.
    pub vantage: String,
    /// How it was made: `passive`, from packets of one direction.
    pub estimator: String,
    /// How many flows closed an epoch.
    pub flows: u64,
    /// How many epochs closed.
    pub epochs: u64,
    /// How many batches of requests the latency is the mean of.
    pub batches: u64,
    /// 0 (guess) to 1: how far to trust the latency. null: there is no latency.
    pub confidence: Option<f64>,
    /// Response latency, ns.
    pub latency_ns: LatencyQuantiles,
    /// How many gaps were taken for timeouts, think or idle time.
    pub idle: u64,
    /// How many gaps came before a retransmission.
    pub resent: u64,
    /// How many flows had nothing but retransmissions and waiting: the server does not answer, or
    /// nobody asks.
    pub stalled_flows: u64,
    /// How many gaps no counter had room for.
    pub discarded: u64,
    /// How many events of the kernel were lost since the start.
    pub lost_events: u64,
}

impl ServerLine {
    /// The line of a server in the interval that ended at `ts_ns`.
    pub fn new(
        ts_ns: u64,
        interval_ns: u64,
        server: String,
        transport: Transport,
        sum: &Server,
        lost_events: u64,
    ) -> Self {
        Self {
            ts_ns,
            interval_ns,
            server,
            transport,
            vantage: "path".into(),
            estimator: "passive".into(),
            flows: sum.flows(),
            epochs: sum.epochs(),
            batches: sum.batches(),
            confidence: sum.confidence(),
            latency_ns: sum.latency(),
            idle: sum.idle,
            resent: sum.resent,
            stalled_flows: sum.stalled.len() as u64,
            discarded: sum.discarded,
            lost_events,
        }
    }
}

/// Gaps of about the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModeLine {
    /// Mean length, ns.
    pub mean_ns: u64,
    /// Smallest length, to a tenth of it, ns.
    pub min_ns: u64,
    /// Greatest length, to a tenth of it, ns.
    pub max_ns: u64,
    /// How many gaps.
    pub count: u64,
    /// Of these, how many may be pauses between batches.
    pub marked: u64,
}

/// A flow's epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EpochLine {
    /// When it was reported, ns since the Unix epoch.
    pub ts_ns: u64,
    /// When the epoch began, ns since the Unix epoch.
    pub start_ns: u64,
    /// When it ended, ns since the Unix epoch.
    pub end_ns: u64,
    /// `address:port` of the client. null: the event that named the flow was lost.
    pub client: Option<String>,
    /// `address:port` of the server. null: the event that named the flow was lost.
    pub server: Option<String>,
    /// What carries the requests. null: the event that named the flow was lost.
    pub transport: Option<Transport>,
    /// Mean response latency, ns. null: not known.
    pub latency_ns: Option<u64>,
    /// Mean pause between batches, ns. null: not known.
    pub ibg_ns: Option<u64>,
    /// How many batches the latency is the mean of.
    pub batches: u64,
    /// How many gaps were seen.
    pub gaps: u64,
    /// How many of these were taken for timeouts, think or idle time.
    pub idle: u64,
    /// How many of these came before a retransmission.
    pub resent: u64,
    /// How many of these no counter had room for.
    pub discarded: u64,
    /// Whether there was nothing but retransmissions and waiting.
    pub stalled: bool,
    /// 0 (guess) to 1: how far to trust the latency.
    pub confidence: f64,
    /// Gaps by their length, ascending.
    pub modes: Vec<ModeLine>,
}

impl EpochLine {
    /// The line of an epoch whose times are wall clock.
    pub fn new(ts_ns: u64, epoch: &Epoch) -> Self {
        let (e, tuple) = (&epoch.estimate, epoch.tuple);
        let modes = epoch.gaps.modes().iter().map(|m| ModeLine {
            mean_ns: m.mean_ns(),
            min_ns: m.min_ns(),
            max_ns: m.max_ns(),
            count: m.count.into(),
            marked: m.marked.into(),
        });
        Self {
            ts_ns,
            start_ns: epoch.start,
            end_ns: epoch.end,
            client: tuple.map(|t| t.client.to_string()),
            server: tuple.map(|t| t.server.to_string()),
            transport: tuple.map(|t| t.transport),
            latency_ns: e.latency,
            ibg_ns: e.ibg,
            batches: e.batches.into(),
            gaps: e.gaps.into(),
            idle: e.idle.into(),
            resent: epoch.gaps.resent.into(),
            discarded: epoch.gaps.discarded.into(),
            stalled: e.stalled,
            confidence: f64::from(e.confidence) / 1000.0,
            modes: modes.collect(),
        }
    }
}

/// What was seen in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TotalsLine {
    /// When it was counted, ns since the Unix epoch.
    pub ts_ns: u64,
    /// Packets of any kind.
    pub packets: u64,
    /// Packets that count: payload to a watched port.
    pub measured: u64,
    /// Pure acknowledgments.
    pub acks: u64,
    /// Fragments without a transport header.
    pub fragments: u64,
    /// Other protocols and ports.
    pub other: u64,
    /// Packets whose headers contradict themselves.
    pub malformed: u64,
    /// Flows that began to be followed.
    pub born: u64,
    /// Flows that gave way to others.
    pub evicted: u64,
    /// Packets not counted since another CPU held their flow.
    pub contended: u64,
    /// How many events of the kernel were lost since the start.
    pub lost_events: u64,
    /// How many flows are followed now.
    pub flows_live: u64,
    /// For how many flows there is room.
    pub flows_capacity: u64,
    /// Epochs that closed and are in no server's line: 1024 servers are told apart at a time.
    #[serde(default)]
    pub epochs_left_out: u64,
}
