//! What the user gets wrong, and what comes out besides lines.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Output, Stdio};

use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::refusal::{assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::scrape::{METRICS, scrape};
use batchwise_testbed::stage::watch::{Watch, now_ns};
use batchwise_testbed::stage::{Stage, batchwise, eventually, turn};

/// A port that nobody serves.
const SILENT: &str = "17099";

fn watch(args: &[&str]) -> Output {
    let mut command = batchwise();
    command.arg("watch").args(args);
    run(&mut command)
}

#[test]
fn wrong_arguments_are_usage_errors() {
    for port in ["0", "70000", "abc", "-1"] {
        let output = watch(&[&format!("--port={port}")]);
        assert_refused(&output, 2, &["--port", port]);
    }
    for interval in ["1ms", "0s", "soon"] {
        let output = watch(&["--port", SILENT, "--interval", interval]);
        assert_refused(&output, 2, &["--interval", interval]);
    }
    assert_refused(&watch(&[]), 2, &["--port"]);
    let output = watch(&["--port", SILENT, "--exchange", "--exchange-period", "0s"]);
    assert_refused(&output, 2, &["--exchange-period"]);
}

#[test]
fn a_cgroup_that_is_none_is_refused_with_the_place_where_they_are() {
    let _turn = turn();
    let mount = batchwise_testbed::cgroup::mount_point().expect("cgroup v2");
    let mount = mount.to_string_lossy();
    for path in ["/tmp", "/no/such/directory"] {
        let output = watch(&["--port", SILENT, "--duration", "1s", "--cgroup", path]);
        assert_refused(&output, 1, &[path, &mount]);
    }
}

#[test]
fn a_user_who_may_not_is_told_to_be_root() {
    let _turn = turn();
    for exchange in [&[][..], &["--exchange"]] {
        let args = [&["watch", "--port", SILENT, "--duration", "1s"], exchange].concat();
        assert_refused(&run_as_nobody(&args), 1, &["run as root"]);
    }
}

#[test]
fn a_port_that_nobody_serves_gives_no_line_and_no_error() {
    let _turn = turn();
    let args = [
        "--port",
        SILENT,
        "--interval",
        "200ms",
        "--duration",
        "700ms",
    ];
    let output = watch(&[&args[..], &["--format", "jsonl"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn metrics_on_an_address_in_use_are_refused_with_the_remedy() {
    let _turn = turn();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let output = watch(&["--port", SILENT, "--duration", "1s", "--metrics", &address]);
    assert_refused(&output, 1, &[&address, "in use"]);
    let output = watch(&["--port", SILENT, "--duration", "1s", "--metrics", "nowhere"]);
    assert_refused(&output, 1, &["nowhere"]);
}

#[test]
fn a_reader_that_leaves_ends_the_watcher_quietly() {
    let stage = Stage::build("pipe");
    let _redis = stage.redis();
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    for format in ["jsonl", "text"] {
        let mut watcher = batchwise()
            .args([
                "watch",
                "--port",
                "6379",
                "--interval",
                "100ms",
                "--format",
                format,
            ])
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
