//! What the user of `batchwise tune` gets wrong.

use batchwise_testbed::stage::refusal::{assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::tune::Agent;
use batchwise_testbed::stage::{Stage, batchwise, turn};
use tempfile::TempDir;

/// A port that nobody serves.
const SILENT: &str = "17098";

fn tune(args: &[&str]) -> std::process::Output {
    run(batchwise().args(["tune", "--duration", "1s"]).args(args))
}

#[test]
fn a_second_agent_for_the_same_cgroup_is_refused() {
    let stage = Stage::build("second");
    let logs = TempDir::new().expect("a folder");
    let mut first = Agent::start(&stage.hosts.server, logs.path(), &[]);
    let cgroup = stage.hosts.server.cgroup().to_string_lossy();
    let second = tune(&["--port", "6379", "--cgroup", &cgroup]);
    assert_refused(
        &second,
        1,
        &["another `batchwise tune`", &cgroup, "stop it"],
    );
    first.assert_alive();
    first.finish();
    let third = tune(&["--port", "6379", "--cgroup", &cgroup]);
    assert!(third.status.success(), "{third:?}");
}

#[test]
fn wrong_arguments_are_usage_errors_that_say_what_is_right() {
    let _turn = turn();
    for policy in ["fast", "slo", "slo:5", "slo:0us", ""] {
        let output = tune(&["--port", SILENT, "--policy", policy]);
        assert_refused(&output, 2, &["--policy", "slo:500us"]);
    }
    for budget in ["-1", "1.5", "much"] {
        let output = tune(&["--port", SILENT, &format!("--budget={budget}")]);
        assert_refused(&output, 2, &["--budget", "0 to 1"]);
    }
    assert_refused(&tune(&[]), 2, &["--port"]);
}

#[test]
fn a_log_that_cannot_be_written_is_refused_with_its_name() {
    let _turn = turn();
    let output = tune(&["--port", SILENT, "--log", "/no/such/folder/log"]);
    assert_refused(&output, 1, &["/no/such/folder/log", "--log"]);
}

#[test]
fn metrics_on_no_address_are_refused_with_an_example() {
    let _turn = turn();
    let output = tune(&["--port", SILENT, "--metrics", "nowhere"]);
    assert_refused(&output, 1, &["--metrics nowhere", "127.0.0.1:9464"]);
}

#[test]
fn a_user_who_may_not_is_told_to_be_root() {
    let _turn = turn();
    let output = run_as_nobody(&["tune", "--port", SILENT, "--duration", "1s"]);
    assert_refused(&output, 1, &["run as root"]);
}
