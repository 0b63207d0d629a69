//! The decisions of `batchwise tune`.

use std::fs;
use std::path::Path;

use batchwise_testbed::stage::{Stage, scrape::METRICS};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Running, json, load};

const TUNE: &str = "tune --port 6379 --format jsonl --budget 1";
/// There is always something to batch.
const LOAD: &str = "--closed --pipeline 32 --connections 4";

/// The whole lines of a log.
fn read(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    json(&text[..text.rfind('\n').map_or(0, |end| end + 1)])
}

#[test]
fn both_ends_that_test_settings_and_give_sockets_back() {
    let stage = Stage::build("ct-tune");
    let _redis = stage.redis();
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log");
    let at_server = Running::agent(&stage.hosts.server, TUNE);
    let options = format!("{TUNE} --metrics {METRICS} --log {}", log.display());
    let at_client = Running::agent(&stage.hosts.client, &options);
    let _load = load(&stage, LOAD);
    hold("tune", || read(&log));
    hold_metrics("tune-metrics", &stage.hosts.client);
    let (printed, code) = at_client.end(Signal::SIGTERM);
    assert_eq!(code, Some(0));
    let logged = read(&log);
    hold_now("tune-ended", &logged);
    assert_eq!(printed, logged);
    assert!(!at_server.lines().is_empty());
    assert_eq!(at_server.end(Signal::SIGINT).1, Some(0));
}

#[test]
fn a_dry_run() {
    let stage = Stage::build("ct-dry");
    let _redis = stage.redis();
    let folder = TempDir::new().expect("a folder");
    let log = folder.path().join("log");
    let options = format!("{TUNE} --dry-run --log {}", log.display());
    let dry = Running::agent(&stage.hosts.client, &options);
    let _load = load(&stage, LOAD);
    hold("tune-dry-run", || read(&log));
    assert_eq!(dry.end(Signal::SIGTERM).1, Some(0));
    hold_now("tune-dry-run-ended", &read(&log));
}
