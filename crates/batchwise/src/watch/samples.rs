//! Lines for the tests of this module.

use batchwise_core::sense::report::{
    Estimator, Latency, Line, Nagle, Process, Side, Stages, Tails, Unit, View,
};

/// The machine's own network namespace, as it often is.
pub const NETNS: u32 = 4_026_531_840;

/// A server with everything known.
pub fn two_sided() -> Line {
    Line {
        ts_ns: 1_760_000_000_000_000_000,
        interval_ns: 1_000_000_000,
        service: "10.0.0.2:6379".to_owned(),
        netns: NETNS,
        side: Side::Server,
        process: Some(Process::new(
            712,
            "redis-server",
            "/system.slice/redis-server.service",
        )),
        connection: None,
        vantage: "socket".to_owned(),
        estimator: Estimator::TwoSided,
        view: Some(View::Local),
        unit: Unit::Sends,
        connections: 12,
        confidence: 0.92,
        throughput_per_s: 5_012.3,
        why: None,
        advice: None,
        stderr_ns: Latency::default(),
        latency_ns: Latency {
            network: Some(24_000),
            turnaround: Some(10_120),
            total: Some(34_120),
        },
        stages_ns: Stages {
            unsent: Some(400),
            held_by_nagle: Some(0),
            held_by_delack: Some(0),
            unacked: Some(19_200),
            unread_local: Some(3_100),
            unread_remote: Some(2_700),
            ackdelay_remote: Some(1_000),
        },
        tails_ns: Tails {
            p50: Some(31_000),
            p90: Some(44_200),
            p99: Some(61_500),
            p999: Some(90_300),
        },
        matched: 716,
        under_way: Some(2),
        oldest_ns: Some(31_000),
        nagle: Nagle::Off,
        cost: 0.0097,
        coverage: 0.143,
        lost_events: 0,
    }
}

/// A client whose peer says nothing: the peer's parts are not known.
pub fn local() -> Line {
    Line {
        service: "[2001:db8::17]:11211".to_owned(),
        side: Side::Client,
        process: None,
        estimator: Estimator::Local,
        view: None,
        connections: 3,
        confidence: 0.4,
        throughput_per_s: 812.0,
        why: None,
        stderr_ns: Latency::default(),
        latency_ns: Latency {
            network: None,
            turnaround: None,
            total: Some(43_500),
        },
        stages_ns: Stages {
            unacked: Some(41_000),
            unread_local: Some(2_500),
            ..Stages::default()
        },
        tails_ns: Tails::default(),
        matched: 0,
        under_way: Some(0),
        oldest_ns: None,
        nagle: Nagle::Mixed,
        lost_events: 7,
        ..two_sided()
    }
}
