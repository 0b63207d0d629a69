//! What a run says about itself. Field names are a contract; fields may be added, never renamed.

use serde::Serialize;

use crate::arrival_check::ArrivalCheck;
use crate::rate::Arrivals;

/// Durations in ns; `None` where nothing was measured. The mean and the maximum are exact, the
/// quantiles within 0.1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Mean.
    pub mean: Option<u64>,
    /// Median.
    pub p50: Option<u64>,
    /// 90th percentile.
    pub p90: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    pub p999: Option<u64>,
    /// Maximum.
    pub max: Option<u64>,
}

/// How late requests were sent, ns: actual minus intended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatenessSummary {
    /// Mean.
    pub mean: Option<u64>,
    /// Median.
    pub p50: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// Maximum.
    pub max: Option<u64>,
}

/// The figures of a run's measured window, or of one phase of a schedule: the requests whose
/// intended send time lies in it, whenever they were answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Requests that the schedule asked for, per second.
    pub offered_rps: f64,
    /// Responses (errors left out) that arrived within the window, per second. Of a phase: those
    /// to its own requests.
    pub achieved_rps: f64,
    /// How many these are.
    #[serde(skip)]
    pub completed: u64,
    /// Requests.
    pub requests: u64,
    /// Those that failed: error replies, GETs without a value, lost with their connection, or
    /// unanswered a second after the end.
    pub errors: u64,
    /// Latency of the answered ones, from what `from` says.
    pub latency_ns: LatencySummary,
    /// Whether the figures may be believed. An invalid phase makes the run invalid.
    pub valid: bool,
    /// If not, why: a sentence each.
    pub why_invalid: Vec<String>,
    /// Whether the one reason is that requests were sent late: what was measured from the send holds.
    pub only_late: bool,
    /// Latency from the clock reading just before the `send` that took the first byte.
    pub latency_from_send_ns: LatencySummary,
    /// Actual minus intended send time.
    pub lateness_ns: LatenessSummary,
    /// Mean duration of the calls of `send`.
    pub send_call_ns: Option<u64>,
    /// How late, on average, the duration of these calls alone makes the requests of a single
    /// sender. Only lateness beyond that is held against the generator. Absent in a closed loop.
    pub expected_lateness_ns: Option<u64>,
    /// Requests that the socket did not take whole at the first try.
    pub backpressure: u64,
    /// The asked rate at the start; absent in a closed loop.
    pub target_rps: Option<f64>,
    /// The asked rate at the end; absent in a closed loop.
    pub target_end_rps: Option<f64>,
    /// Bytes in a value; of a schedule those of the first phase.
    pub value_size: u64,
    /// Share of GETs that was asked for.
    pub get_ratio: f64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Of the measured window, which begins at the end of the warm-up.
    #[serde(flatten)]
    pub whole: Figures,
    /// `intended`: from when the request was due, so that waiting in the generator counts too;
    /// `send`: from the call of `send` (closed loop).
    pub from: &'static str,
    /// How often the kernel took the CPU from the generator in the whole run: near 0 on a CPU of
    /// its own.
    pub preemptions: u64,
    /// For how long the generator had to wait for its CPU in the whole run; `None` where the
    /// kernel does not say.
    pub cpu_wait_ns: Option<u64>,
    /// Start of the window, ns since the Unix epoch.
    pub measured_from_ts_ns: u64,
    /// End of the window, ns since the Unix epoch.
    pub measured_to_ts_ns: u64,
    /// Length of the warm-up before it.
    pub warmup_ns: u64,
    /// The self-check of the arrival process; absent in a closed loop.
    pub arrival_check: Option<ArrivalCheck>,
    /// TCP_NODELAY on the generator's sockets.
    pub nodelay: bool,
    /// TCP connections.
    pub connections: u64,
    /// Different keys.
    pub keys: u64,
    /// The arrival process; absent in a closed loop.
    pub arrivals: Option<Arrivals>,
    /// Of the random numbers: the same seed repeats the schedule.
    pub seed: u64,
    /// Simulated work of the client on each response.
    pub busy_per_response_ns: u64,
    /// Whether responses triggered the requests.
    pub closed: bool,
    /// Requests in flight on each connection; closed loop only.
    pub pipeline: Option<u64>,
    /// The phases of a schedule that had begun; absent without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseReport>,
}

/// One phase of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseReport {
    /// Its own.
    #[serde(flatten)]
    pub figures: Figures,
    /// Start of the phase, ns since the Unix epoch.
    pub from_ts_ns: u64,
    /// End of the phase, ns since the Unix epoch.
    pub to_ts_ns: u64,
}

/// An interim report: the responses that arrived in one interval of the window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "interval")]
pub struct Interval {
    /// End of the interval, ns since the Unix epoch.
    pub ts_ns: u64,
    /// Its length.
    pub interval_ns: u64,
    /// The phase of the schedule in which it began, from 0. Intervals end where phases end.
    pub phase: u64,
    /// Requests that were due, per second.
    pub offered_rps: f64,
    /// Responses, per second.
    pub achieved_rps: f64,
    /// Mean latency from the intended send time (closed loop: from the send).
    pub mean_ns: Option<u64>,
    /// Its median.
    pub p50_ns: Option<u64>,
    /// Its 99th percentile.
    pub p99_ns: Option<u64>,
    /// Mean latency from the actual send.
    pub mean_from_send_ns: Option<u64>,
    /// Its 99th percentile.
    pub p99_from_send_ns: Option<u64>,
}
