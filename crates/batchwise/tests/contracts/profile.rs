//! The lines of `batchwise profile`.

use std::{env, fs};

use batchwise_testbed::stage::{Stage, eventually, scrape::METRICS};
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
    let enough = || (profile.lines().len() > 5).then_some(());
    eventually("intervals to compare", enough, || {
        profile.lines().len().to_string()
    });
    let (lines, code) = profile.end(Signal::SIGTERM);
    assert_eq!(code, Some(0));
    hold_now("profile", &lines);

    let files = ["before", "after"].map(|name| env::temp_dir().join(format!("bw-ct-{name}.jsonl")));
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    files
        .iter()
        .for_each(|file| fs::write(file, &text).expect("a temporary file"));
    let diff = batchwise("profile diff --json").args(&files).output();
    let diff = diff.expect("it runs");
    files
        .iter()
        .for_each(|file| fs::remove_file(file).expect("it was there"));
    let told = serde_json::from_slice(&diff.stdout).unwrap_or_else(|_| panic!("{diff:?}"));
    hold_now("profile-diff", &[told]);
}
