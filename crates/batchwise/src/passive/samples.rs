//! Epochs and intervals for the tests of this module.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use batchwise_core::passive::report::{LatencyQuantiles, ServerLine, TotalsLine};
use batchwise_core::passive::{Epoch, Estimate, Gaps, Params, Transport, Tuple};

use super::interval::{Interval, Key};

/// A web server.
pub const KEY: Key = (
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80)),
    Transport::Tcp,
);

/// A flow to [`KEY`].
pub const TUPLE: Tuple = Tuple {
    client: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 40_000)),
    server: KEY.0,
    transport: KEY.1,
    backend: 0,
};

/// A client that asks for two things at a time, 20 µs apart, and has both after a millisecond.
pub fn epoch() -> Epoch {
    let params = Params::default();
    let mut gaps = Gaps::new(true);
    let mut now = 1_760_000_000_000_000_000;
    gaps.open(now);
    gaps.packet(&params, now, false, false);
    for n in 0..1_800 {
        now += if n % 2 == 0 { 990_000 } else { 20_000 };
        gaps.packet(&params, now, n % 2 == 0, false);
    }
    Epoch {
        tuple: Some(TUPLE),
        start: gaps.start,
        end: now,
        estimate: gaps.estimate(&params),
        gaps,
    }
}

/// The same, but known to have this latency, ns, in so many batches.
pub fn measured(latency: u64, batches: u32) -> Epoch {
    let estimate = Estimate {
        latency: Some(latency),
        batches,
        ..epoch().estimate
    };
    Epoch {
        estimate,
        ..epoch()
    }
}

/// A server with everything known.
pub fn server() -> ServerLine {
    ServerLine {
        ts_ns: 1_760_000_001_000_000_000,
        interval_ns: 1_000_000_000,
        server: KEY.0.to_string(),
        transport: KEY.1,
        vantage: "path".to_owned(),
        estimator: "passive".to_owned(),
        flows: 12,
        epochs: 12,
        batches: 9_000,
        confidence: Some(0.92),
        latency_ns: LatencyQuantiles {
            mean: Some(1_010_000),
            p50: Some(980_000),
            p90: Some(1_400_000),
            p99: Some(2_300_000),
        },
        idle: 1,
        resent: 2,
        stalled_flows: 0,
        discarded: 3,
        lost_events: 0,
    }
}

/// A server of whose answers nothing is known, and with troubles.
pub fn stalled() -> (Key, ServerLine) {
    let address = "[2001:db8::17]:443";
    let line = ServerLine {
        server: address.to_owned(),
        transport: Transport::Udp,
        flows: 3,
        epochs: 3,
        batches: 0,
        confidence: None,
        latency_ns: LatencyQuantiles::default(),
        stalled_flows: 3,
        lost_events: 7,
        ..server()
    };
    let key = address.parse().expect("an address");
    ((key, Transport::Udp), line)
}

/// Both, in one interval.
pub fn interval() -> Interval {
    Interval {
        place: "eth1, native XDP".to_owned(),
        epochs: Vec::new(),
        servers: vec![(KEY, server()), stalled()],
        totals: TotalsLine {
            ts_ns: 1_760_000_001_000_000_000,
            packets: 20_000,
            measured: 15_000,
            acks: 4_000,
            fragments: 1,
            other: 990,
            malformed: 9,
            born: 15,
            evicted: 2,
            contended: 0,
            lost_events: 7,
            flows_live: 15,
            flows_capacity: 60,
            epochs_left_out: 0,
        },
        over: false,
    }
}
