//! A status and configurations for the tests of this module.

use std::path::Path;

use batchwise_core::balance::Why;
use batchwise_core::balance::report::{BackendLine, Health, State};
use batchwise_core::passive::report::LatencyQuantiles;

use super::config::Config;
use super::status::Status;

const BACKEND: &str = r#"{
    "ts_ns": 1760000001000000000, "service": "web", "backend": "s1", "address": "10.79.0.21",
    "state": "serving", "health": "up", "health_why": null,
    "base_weight": 100, "weight": 92500, "share": 0.9254,
    "connections": 12, "leaves_ns": null, "opened": 3, "closed": 2, "packets": 1000, "bytes": 640000,
    "latency_ns": {"mean": 1010000, "p50": 980000, "p90": 1400000, "p99": 2300000},
    "samples": 420, "freshness": 35.0, "confidence": 0.9, "age_ns": 120000000,
    "vantage": "path", "estimator": "passive",
    "why": "takes", "changed_ts_ns": 1760000001000000000 }"#;
const AGENT: &str = r#"{
    "kind": "agent", "ts_ns": 1760000001000000000, "name": "default", "pid": 4242,
    "policy": "latency", "interfaces": ["eth0"], "detached": [],
    "config": "lb.toml", "generation": 2, "config_error": null, "taken_over": false }"#;
const TOTALS: &str = r#"{
    "ts_ns": 1760000001000000000, "forwarded": 900, "fragment": 1, "options": 0,
    "unknown_flows": 4, "insert_failed": 0, "flows_settled": 12, "flows_young": 1, "lost_events": 0 }"#;
const EVENT: &str = r#"{
    "ts_ns": 1760000001000000000, "what": "health", "service": "web", "backend": "s2",
    "detail": "down: refused" }"#;

/// A configuration of services at port 80 of these addresses, each with backends at these.
pub fn config(services: &[(&str, &[&str])]) -> Config {
    let mut text = "interfaces = [\"eth0\"]\n".to_owned();
    for (n, (address, backends)) in services.iter().enumerate() {
        text += &format!("[[service]]\nname = \"w{n}\"\naddress = \"{address}\"\nport = 80\n");
        for backend in *backends {
            text +=
                &format!("[[service.backend]]\nname = \"s{backend}\"\naddress = \"{backend}\"\n");
        }
    }
    Config::parse(Path::new("t.toml"), &text).expect("it holds")
}

fn read<T: serde::de::DeserializeOwned>(line: &str) -> T {
    serde_json::from_str(line).expect("a line")
}

/// A backend of which all is known.
pub fn backend() -> BackendLine {
    read(BACKEND)
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
        agent: read(AGENT),
        backends: vec![backend(), down],
        totals: read(TOTALS),
        events: vec![read(EVENT)],
        news: Vec::new(),
    }
}
