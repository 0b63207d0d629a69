//! The lines of `batchwise decap`.

use batchwise_testbed::stage::{Stage, scrape::METRICS};
use batchwise_testbed::topology::{CLIENT_IP, LINK};
use nix::sys::signal::Signal;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Running, batchwise};

#[test]
fn packets_by_fate() {
    let stage = Stage::build("ct-decap");
    let server = &stage.hosts.server;
    let options = format!("--from {CLIENT_IP} --format jsonl --metrics {METRICS}");
    let decap = Running::start(
        server,
        batchwise(&format!("decap --iface {LINK} {options}")),
    );
    hold("decap", || decap.lines());
    hold_metrics("decap-metrics", server);
    let (lines, code) = decap.end(Signal::SIGTERM);
    assert_eq!(code, Some(0));
    hold_now("decap", &lines);
}
