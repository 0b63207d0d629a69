//! What comes out besides lines, and what happens when nobody reads these.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::scrape::{METRICS, scrape};
use batchwise_testbed::stage::watch::{Watch, now_ns};
use batchwise_testbed::stage::{Stage, batchwise, eventually};

#[test]
fn a_reader_that_leaves_ends_the_watcher_quietly() {
    let stage = Stage::build("pipe");
    let _redis = stage.redis();
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    for format in ["jsonl", "text"] {
        let mut watcher = batchwise()
            .args(["watch", "--port", "6379", "--interval", "100ms"])
            .args(["--format", format])
            .arg("--cgroup")
            .arg(stage.hosts.server.cgroup())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a watcher");
        let mut output = BufReader::new(watcher.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert!(!line.is_empty());
        drop(output);
        let ended = eventually(
            "the watcher to end",
            || watcher.try_wait().expect("its state"),
            || "it runs on".to_owned(),
        );
        let mut errors = String::new();
        let mut stderr = watcher.stderr.take().expect("its errors");
        stderr.read_to_string(&mut errors).expect("text");
        assert_eq!((ended.code(), errors.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn metrics_hold_the_latency_of_the_service_while_it_is_loaded() {
    let stage = Stage::build("metrics");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.server, PORT, &["--metrics", METRICS]);
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    watch.until("the service", now_ns(), |lines| !lines.is_empty());
    let mut scraped = String::new();
    eventually(
        "batchwise_latency_seconds of the service",
        || {
            scraped = scrape(&stage.hosts.server, METRICS);
            let found = scraped.lines().any(|l| {
                l.starts_with("batchwise_latency_seconds") && l.contains("10.77.0.1:6379")
            });
            found.then_some(())
        },
        String::new,
    );
    assert!(scraped.starts_with("HTTP/1.1 200"), "{scraped}");
    assert!(scraped.trim_end().ends_with("# EOF"), "{scraped}");
    watch.finish();
}
