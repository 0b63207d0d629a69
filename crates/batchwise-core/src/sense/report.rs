//! What batchwise says about a service in one interval: the line that `batchwise watch` prints,
//! which other programs rely on. Field names are a contract; fields may be added, never renamed.

use alloc::string::String;

use serde::{Deserialize, Serialize};

pub use super::process::Process;

/// Which end of the connections this machine's sockets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The sockets were accepted at the watched port.
    Server,
    /// The sockets were connected to the watched port.
    Client,
}

/// How an estimate was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// From both ends' queue states, the peer's learned through the exchange.
    TwoSided,
    /// From this end's queue states alone.
    Local,
    /// At a client alone: several requests at once, matched with their responses in order.
    Matched,
    /// From this end alone: from the first send of a request to the last read of its response, or what a server
    /// sees of that.
    Turns,
    /// From a queue state that the application keeps (§3.3 of the paper).
    Hint,
}

impl Estimator {
    /// From what this end's sockets show alone.
    pub fn is_one_sided(self) -> bool {
        matches!(self, Self::Local | Self::Matched | Self::Turns)
    }

    /// Where it looks from: `socket`, or `application` for a queue that the application keeps.
    pub fn vantage(self) -> &'static str {
        match self {
            Self::TwoSided | Self::Local | Self::Matched | Self::Turns => "socket",
            Self::Hint => "application",
        }
    }
}

/// What is counted as one item of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// One call of `send` or its like: the closest thing to a request that the kernel sees.
    Sends,
    /// One byte, as in the paper's prototype.
    Bytes,
    /// One MSS-sized segment.
    Packets,
}

/// Whose `unacked` and `ackdelay` queues the network latency was computed from: the paper takes
/// the larger of the two views (§3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// This end's unacked queue.
    Local,
    /// The peer's unacked queue.
    Remote,
}

/// The Nagle setting of a service's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Nagle {
    /// TCP_NODELAY is off on all of them.
    On,
    /// TCP_NODELAY is on on all of them.
    Off,
    /// Some of each.
    Mixed,
}

/// Mean latency of a request, ns, split by where it is spent. null is "not known", never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// The paper's L: both network stacks and the wire, without the application's own time, ns.
    /// null: not known.
    pub network: Option<u64>,
    /// From reading a request to sending its response, in the server application, ns. null: not
    /// known.
    pub turnaround: Option<u64>,
    /// `network` + `turnaround`: what the client feels, ns. null: not known.
    pub total: Option<u64>,
}

/// Mean delays, ns: those from which `network` was computed, and what waits to be sent. `unacked`, `ackdelay_remote`
/// belong to the end that `view` names and to its peer. null is "not known", never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stages {
    /// Handed over by the application, not yet acknowledged, ns. null: not known.
    pub unacked: Option<u64>,
    /// Handed over by the application here and not yet transmitted: how long in a message (a request or its answer,
    /// where turns are known; else a send) something waited for Nagle's algorithm, a cork, pacing or the window, ns.
    /// null: no message passed.
    #[serde(default)]
    pub unsent: Option<u64>,
    /// Of `unsent`, how long less than a segment waited for an acknowledgment: Nagle's algorithm, ns. null: no
    /// message passed.
    #[serde(default)]
    pub held_by_nagle: Option<u64>,
    /// How long in a message the other end waited for an acknowledgment that this end delayed, ns. null: no message
    /// passed.
    #[serde(default)]
    pub held_by_delack: Option<u64>,
    /// Received here, not yet read by the application here, ns. null: not known.
    pub unread_local: Option<u64>,
    /// Received by the peer, not yet read by its application, ns. null: not known.
    pub unread_remote: Option<u64>,
    /// Received, not yet acknowledged, at the end opposite to `unacked`, ns. null: not known.
    pub ackdelay_remote: Option<u64>,
}

/// Percentiles of the latency of requests, ns: of those that were counted and could be matched with
/// their responses, first in, first out. At a client from the send to the read of the response; at a
/// server from arrival to response, and the network's part added to it as far as it is known. Requests
/// that were not over when counting stopped are taken for what they are: at least so long. null: too few
/// of them were over to tell, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tails {
    /// Half of the requests took less, ns. null: not known.
    pub p50: Option<u64>,
    /// 90 % took less, ns. null: not known.
    pub p90: Option<u64>,
    /// 99 % took less, ns. null: not known.
    pub p99: Option<u64>,
    /// 99.9 % took less, ns. null: not known.
    pub p999: Option<u64>,
}

/// What to change, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Advice {
    /// Nagle's algorithm holds messages back: set TCP_NODELAY, or write each message at once.
    #[serde(rename = "BW-NAGLE-HOLDS")]
    NagleHolds,
    /// TCP_NODELAY sends so many small segments that all are served worse: leave it out, or write several messages at once.
    #[serde(rename = "BW-NODELAY-COSTS")]
    NodelayCosts,
    /// The other end holds messages back until this end acknowledges, which it delays: the other end is to set TCP_NODELAY.
    #[serde(rename = "BW-DELACK-HOLDS")]
    DelackHolds,
    /// The client leaves responses in its socket.
    #[serde(rename = "BW-CLIENT-READS-LATE")]
    ClientReadsLate,
    /// Requests wait in the server's socket until it reads them.
    #[serde(rename = "BW-SERVER-READS-LATE")]
    ServerReadsLate,
    /// The server's application takes the time, from reading a request to answering it.
    #[serde(rename = "BW-SERVER-WORKS")]
    ServerWorks,
    /// The other end takes no more: its receive window is full.
    #[serde(rename = "BW-WINDOW-FULL")]
    WindowFull,
    /// Segments are sent again.
    #[serde(rename = "BW-RETRANSMITS")]
    Retransmits,
    /// Connections wait for the server to accept them longer than its queue is.
    #[serde(rename = "BW-LISTEN-OVERFLOWS")]
    ListenOverflows,
}

/// What is wrong with a service, the worst that there is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// Its name on the page about [advice](advice.md).
    pub id: Advice,
    /// In words.
    pub text: String,
    /// How much of the latency, of the segments or of the time it takes, 0 to 1. null: it is counted in times or bytes.
    pub share: Option<f64>,
}

/// One service (or, with `--per-connection`, one connection) in one interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// End of the interval, ns since the Unix epoch.
    pub ts_ns: u64,
    /// Length of the interval, ns.
    pub interval_ns: u64,
    /// `address:port` of the server: the listener's, or the remote one at a client.
    pub service: String,
    /// Inode of the network namespace that the sockets here are in, as `lsns -t net` has it: an address means another
    /// service in another.
    #[serde(default)]
    pub netns: u32,
    /// Which end this is.
    pub side: Side,
    /// Whose the sockets here are. null: no process is known to have one.
    #[serde(default)]
    pub process: Option<Process>,
    /// The connection: `local -> remote`. Absent: the field is there with `--per-connection` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Where the estimate was made: `socket` is the queues of a TCP socket, `application` a queue
    /// that the client itself keeps.
    pub vantage: String,
    /// How the estimate was made.
    pub estimator: Estimator,
    /// From whose queues `network` was computed: those with the larger latency. null: the estimate is not two-sided.
    pub view: Option<View>,
    /// What is counted.
    pub unit: Unit,
    /// How many connections were open at any time in the interval.
    pub connections: u64,
    /// 0 (guess) to 1: how far to trust the latency.
    pub confidence: f64,
    /// A second: turns where `estimator` is `turns`, requests where it is `hint`, and otherwise items of `unit`, such as
    /// sends.
    pub throughput_per_s: f64,
    /// Mean latency of a request, ns.
    pub latency_ns: Latency,
    /// Why there is no total latency: `several requests at once`, `the shortest messages take longest`, `no
    /// request was seen whole`; or no percentile: `requests are not answered`. null: there is one, or nothing passed.
    #[serde(default)]
    pub why: Option<String>,
    /// What is wrong. null: nothing.
    #[serde(default)]
    pub advice: Option<Diagnosis>,
    /// Standard error of each, ns: requests that were not counted differ from those that were, and
    /// counting itself is a few percent off.
    #[serde(default)]
    pub stderr_ns: Latency,
    /// Mean delays at the stages of a message, ns.
    pub stages_ns: Stages,
    /// Percentiles of the latency of requests, ns. All null with `--per-connection`, and in units
    /// other than `sends`.
    #[serde(default)]
    pub tails_ns: Tails,
    /// How many requests the percentiles are of.
    #[serde(default)]
    pub matched: u64,
    /// Requests that are under way at the interval's end. null: which sends are requests is not known.
    #[serde(default)]
    pub under_way: Option<u64>,
    /// How long the oldest of them has been, ns. null: none is known to be.
    #[serde(default)]
    pub oldest_ns: Option<u64>,
    /// Nagle's algorithm on the sockets at this end; on one that has closed, as it was then.
    pub nagle: Nagle,
    /// What sensing cost in this interval, all services together: CPU time of the agent and of its
    /// hooks, as a share of one CPU.
    #[serde(default)]
    pub cost: f64,
    /// Share of the service's traffic that was counted, 0 to 1: the estimate is made from it.
    #[serde(default = "whole")]
    pub coverage: f64,
    /// How many events this agent has lost since it started, because a buffer was full.
    pub lost_events: u64,
}

/// Lines of versions that counted all the time.
fn whole() -> f64 {
    1.0
}
