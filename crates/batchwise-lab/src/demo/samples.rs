//! Moments and lines for the tests of this experiment.

use batchwise_core::sense::report::{Estimator, Latency, Line, Nagle, Side, Stages, Unit, View};
use batchwise_testbed::load::{LoadInterval, saturated};
use batchwise_testbed::window::estimate_across;

use super::moment::Moment;
use crate::arm::Arm;

/// A second of the generator that ends at `ts_ns`.
pub fn interval(ts_ns: u64, offered_rps: f64, mean_ns: f64) -> LoadInterval {
    LoadInterval {
        ts_ns,
        interval_ns: 1_000_000_000,
        phase: 0,
        offered_rps,
        achieved_rps: offered_rps,
        mean_from_intended_ns: Some(mean_ns * 1.1),
        mean_from_send_ns: Some(mean_ns),
        p50_ns: Some(mean_ns),
        p99_ns: Some(mean_ns * 3.0),
    }
}

/// A fifth of a second of a watcher that ends at `ts_ns`.
pub fn line(side: Side, ts_ns: u64, total_ns: u64) -> Line {
    Line {
        ts_ns,
        interval_ns: 200_000_000,
        service: "10.77.0.1:6379".into(),
        side,
        connection: None,
        vantage: "socket".into(),
        estimator: Estimator::TwoSided,
        view: Some(View::Local),
        unit: Unit::Sends,
        connections: 1,
        confidence: 0.97,
        throughput_per_s: 100_000.0,
        latency_ns: Latency {
            network: Some(total_ns * 2 / 3),
            turnaround: Some(total_ns / 3),
            total: Some(total_ns),
        },
        stages_ns: Stages {
            unacked: Some(total_ns / 2),
            unread_local: Some(total_ns / 8),
            unread_remote: Some(total_ns / 8),
            ackdelay_remote: Some(total_ns / 12),
        },
        nagle: Nagle::Off,
        lost_events: 0,
    }
}

/// The second that ends after `at_s` seconds, estimated alike at both ends.
pub fn moment(at_s: u64, nodelay: bool, offered_rps: f64, mean_ns: f64, estimate: f64) -> Moment {
    let ts_ns = (at_s + 1000) * 1_000_000_000;
    let truth = interval(ts_ns, offered_rps, mean_ns);
    let end = |side| {
        let line = line(side, ts_ns, estimate as u64);
        estimate_across(&[line], side, Unit::Sends, 0, ts_ns)
    };
    Moment {
        at_s: at_s as f64,
        arm: if nodelay { Arm::Nodelay } else { Arm::Nagle },
        nagle: Some(if nodelay { Nagle::Off } else { Nagle::On }),
        offered_rps,
        saturated: saturated(offered_rps, truth.achieved_rps, mean_ns * 1.1, 0),
        truth,
        client: end(Side::Client),
        server: end(Side::Server),
    }
}
