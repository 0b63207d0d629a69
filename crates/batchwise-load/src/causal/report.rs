//! What a closed-loop run with a truth log says about itself. Field names are a contract; fields
//! may be added, never renamed.

use serde::Serialize;

use super::tally::Break;
use crate::report::LatencySummary;

/// The result of a run, over all requests that it sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TruthReport {
    /// `web`, `memcached` or `quic`.
    pub workload: &'static str,
    /// Requests per second: what was asked for, or without a rate what was sent.
    pub offered_rps: f64,
    /// Responses (errors left out) that arrived before the end, per second.
    pub achieved_rps: f64,
    /// Requests that were sent.
    pub requests: u64,
    /// Those that failed: a wrong response, lost with their connection, or unanswered a second
    /// after the end.
    pub errors: u64,
    /// From just before the write of a request until the last byte of its response was read
    /// (the paper's req-to-res).
    pub latency_ns: LatencySummary,
    /// From just before the write of a request until just before the write of the first request
    /// that its response caused (the paper's req-to-req); only requests that have one.
    pub triggered_ns: LatencySummary,
    /// The client's own part of that: from the last byte of the response on.
    pub client_think_ns: LatencySummary,
    /// Requests whose response caused another request.
    pub triggers: u64,
    /// Pages that were completed; absent where there are none.
    pub pages: Option<u64>,
    /// Whether the figures may be believed.
    pub valid: bool,
    /// If not, why: a sentence each.
    pub why_invalid: Vec<String>,
    /// Share of the run that the generator's thread was on a CPU; `None` where the kernel does
    /// not say.
    pub cpu_share: Option<f64>,
    /// For how long it could have run but had to wait for its CPU.
    pub cpu_wait_ns: Option<u64>,
    /// How often the kernel took the CPU from it.
    pub preemptions: u64,
    /// Requests that a socket did not take whole at once.
    pub backpressure: u64,
    /// Bytes of all requests.
    pub bytes_sent: u64,
    /// Bytes of all responses, headers included.
    pub bytes_received: u64,
    /// Connections.
    pub connections: u64,
    /// Connections that were opened, where they do not last (`--pages-per-connection`).
    pub connections_opened: u64,
    /// Connections that were reset, on which a response did not come in time, or that ended with
    /// requests in flight; not those that the server closed between two requests.
    pub broken_connections: u64,
    /// Attempts to open a connection that failed.
    pub connect_failures: u64,
    /// Both one by one, the first thousand.
    pub breaks: Vec<Break>,
    /// The rate that was asked for, requests/s.
    pub target_rps: Option<f64>,
    /// Start of the window, ns since the Unix epoch.
    pub measured_from_ts_ns: u64,
    /// End of the window, ns since the Unix epoch.
    pub measured_to_ts_ns: u64,
    /// Of all that was drawn at random.
    pub seed: u64,
}
