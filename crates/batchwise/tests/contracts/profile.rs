//! The lines of `batchwise profile`.

use batchwise_testbed::stage::{Stage, scrape::METRICS};
use nix::sys::signal::Signal;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Running, batchwise, load};

#[test]
fn where_cpu_time_goes_and_what_the_traffic_was() {
    let stage = Stage::build("ct-profile");
    let _redis = stage.redis();
    let server = &stage.hosts.server;
    let options = format!("--interval 500ms --format jsonl --metrics {METRICS}");
    let profile = Running::start(server, batchwise(&format!("profile {options}")));
    let _load = load(&stage, "--closed --connections 4");
    hold("profile", || profile.lines());
    hold_metrics("profile-metrics", server);
    let (lines, code) = profile.end(Signal::SIGTERM);
    assert_eq!(code, Some(0));
    hold_now("profile", &lines);
}
