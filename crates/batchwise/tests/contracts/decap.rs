//! The lines of `batchwise decap`.

use nix::sys::signal::Signal;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{CLIENT_IP, LINK, METRICS, Pair, Running, batchwise};

#[test]
fn packets_by_fate() {
    let pair = Pair::build("decap");
    let server = &pair.hosts.server;
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
