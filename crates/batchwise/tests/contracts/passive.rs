//! The lines of `batchwise passive`, from a link and from a capture.

use batchwise_testbed::stage::{Stage, scrape::METRICS};
use batchwise_testbed::topology::LINK;
use nix::sys::signal::Signal;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Running, batchwise, fixture, json, load, run};

#[test]
fn a_link() {
    let stage = Stage::build("ct-link");
    let _redis = stage.redis();
    let server = &stage.hosts.server;
    let options = "--port 6379 --interval 200ms --epoch 200ms --per-flow --format jsonl";
    let command = format!("passive --iface {LINK} {options} --metrics {METRICS}");
    let passive = Running::start(server, batchwise(&command));
    let _load = load(&stage, "--rate 500 --connections 4");
    hold("passive", || passive.lines());
    hold_metrics("passive-metrics", server);
    let (lines, code) = passive.end(Signal::SIGINT);
    assert_eq!(code, Some(0));
    hold_now("passive-ended", &lines);
}

#[test]
fn a_capture_by_every_estimator() {
    // of requests to a Redis server, a SYN first
    let capture = fixture("redis.pcap");
    let options = "--port 6379 --epoch 200ms --per-flow --format jsonl";
    for (name, estimator) in [
        ("auto", "auto"),
        ("modes", "modes"),
        ("fixed", "fixed:100us"),
        ("paper", "paper:10us"),
    ] {
        let capture = capture.display();
        let output = run(&format!(
            "passive --pcap {capture} {options} --estimator {estimator}"
        ));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        hold_now(&format!("passive-pcap-{name}"), &json(&text));
    }
}
