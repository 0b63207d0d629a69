//! A status for the tests of this module.

use batchwise_core::balance::Why;
use batchwise_core::balance::report::{BackendLine, EventLine, Health, Policy, State, TotalsLine};
use batchwise_core::passive::report::LatencyQuantiles;

use super::status::{AgentLine, Status};

const TS: u64 = 1_760_000_001_000_000_000;

/// A backend of which all is known.
pub fn backend() -> BackendLine {
    BackendLine {
        ts_ns: TS,
        service: "web".to_owned(),
        backend: "s1".to_owned(),
        address: "10.79.0.21".to_owned(),
        state: State::Serving,
        health: Health::Up,
        health_why: None,
        base_weight: 100,
        weight: 92_500,
        share: 0.9254,
        connections: Some(12),
        leaves_ns: None,
        opened: 3,
        closed: 2,
        packets: 1_000,
        bytes: 640_000,
        latency_ns: LatencyQuantiles {
            mean: Some(1_010_000),
            p50: Some(980_000),
            p90: Some(1_400_000),
            p99: Some(2_300_000),
        },
        samples: 420,
        freshness: Some(35.0),
        confidence: Some(0.9),
        age_ns: Some(120_000_000),
        vantage: "path".to_owned(),
        estimator: "passive".to_owned(),
        why: Why::Takes,
        changed_ts_ns: Some(TS),
    }
}

/// One that serves and one that is down.
pub fn status() -> Status {
    let down = BackendLine {
        backend: "s2".to_owned(),
        address: "10.79.0.22".to_owned(),
        state: State::Down,
        health: Health::Down,
        health_why: Some("connecting: refused".to_owned()),
        weight: 0,
        share: 0.0,
        connections: None,
        opened: 0,
        latency_ns: LatencyQuantiles::default(),
        freshness: None,
        confidence: None,
        age_ns: None,
        why: Why::Down,
        ..backend()
    };
    Status {
        agent: AgentLine {
            kind: "agent".to_owned(),
            ts_ns: TS,
            name: "default".to_owned(),
            pid: 4242,
            policy: Policy::Latency,
            interfaces: vec!["eth0".to_owned()],
            detached: Vec::new(),
            config: "lb.toml".to_owned(),
            generation: 2,
            config_error: None,
            taken_over: false,
        },
        backends: vec![backend(), down],
        totals: TotalsLine {
            ts_ns: TS,
            outcomes: [("forwarded", 900), ("fragment", 1), ("options", 0)]
                .map(|(name, n)| (name.to_owned(), n))
                .into(),
            unknown_flows: 4,
            insert_failed: 0,
            flows_settled: 12,
            flows_young: 1,
            lost_events: 0,
        },
        events: vec![EventLine {
            ts_ns: TS,
            what: "health".to_owned(),
            service: Some("web".to_owned()),
            backend: Some("s2".to_owned()),
            detail: "down: refused".to_owned(),
        }],
        news: Vec::new(),
    }
}
