//! Windows for tests.

use crate::load::{LatencySummary, PhaseReport};

/// One that carried its load with this mean.
pub fn window(rps: f64, mean_us: f64) -> PhaseReport {
    let mean = mean_us * 1e3;
    let latency = LatencySummary {
        mean,
        p50: mean,
        p90: mean,
        p99: mean,
        p999: mean,
        max: mean,
    };
    PhaseReport {
        offered_rps: rps,
        achieved_rps: rps,
        requests: rps as u64,
        errors: 0,
        latency_ns: latency,
        latency_from_send_ns: latency,
        valid: true,
        why_invalid: Vec::new(),
        from_ts_ns: 0,
        to_ts_ns: 1_000_000_000,
    }
}
