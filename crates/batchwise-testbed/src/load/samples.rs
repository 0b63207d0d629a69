//! Figures of a load, for tests.

use super::{LatencySummary, PhaseReport};

/// Every request took this long, ns.
pub fn latency(ns: f64) -> LatencySummary {
    LatencySummary {
        mean: ns,
        p50: ns,
        p90: ns,
        p99: ns,
        p999: ns,
        max: ns,
    }
}

/// A window that carried its load with this mean.
pub fn window(rps: f64, mean_us: f64) -> PhaseReport {
    let latency = latency(mean_us * 1e3);
    PhaseReport {
        offered_rps: rps,
        achieved_rps: rps,
        requests: rps as u64,
        errors: 0,
        latency_ns: latency,
        latency_from_send_ns: latency,
        valid: true,
        why_invalid: Vec::new(),
        only_late: false,
        from_ts_ns: 0,
        to_ts_ns: 1_000_000_000,
    }
}
