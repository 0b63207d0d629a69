//! What the user gets wrong.

use std::net::TcpListener;
use std::process::Output;

use batchwise_testbed::stage::refusal::{assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::{batchwise, turn};

fn passive(args: &[&str]) -> Output {
    let mut command = batchwise();
    command.arg("passive").args(args);
    run(&mut command)
}

#[test]
fn one_source_is_needed_and_no_more() {
    assert_refused(&passive(&[]), 2, &["--iface", "--pcap"]);
    let both = passive(&["--iface", "lo", "--pcap", "-"]);
    assert_refused(&both, 2, &["--iface", "--pcap", "cannot be used with"]);
    for live_only in [["--attach", "tc"], ["--then", "/sys/fs/bpf/x"]] {
        let output = passive(&[&["--pcap", "-"], &live_only[..]].concat());
        assert_refused(&output, 2, &["--pcap", live_only[0]]);
    }
}

#[test]
fn values_out_of_bounds_are_usage_errors_with_the_bounds() {
    for (option, value, word) in [
        ("--port", "0", "1"),
        ("--interval", "1ms", "10ms"),
        ("--epoch", "1m", "30s"),
        ("--idle", "5s", "3s"),
        ("--flows", "0", "1"),
        ("--estimator", "magic", "fixed:1ms"),
        ("--estimator", "fixed", "fixed:1ms"),
    ] {
        let output = passive(&["--iface", "lo", option, value]);
        assert_refused(&output, 2, &[option, word]);
    }
}

#[test]
fn the_papers_algorithm_needs_a_capture() {
    let output = passive(&["--iface", "lo", "--estimator", "paper"]);
    assert_refused(&output, 1, &["--estimator paper", "--pcap"]);
}

#[test]
fn an_interface_that_is_none_is_named() {
    let _turn = turn();
    let output = passive(&["--iface", "nosuch0", "--duration", "1s"]);
    assert_refused(&output, 1, &["nosuch0", "no interface"]);
}

#[test]
fn a_user_who_may_not_is_told_to_be_root() {
    let _turn = turn();
    let output = run_as_nobody(&["passive", "--iface", "lo", "--duration", "1s"]);
    assert_refused(&output, 1, &["run as root"]);
}

#[test]
fn metrics_on_an_address_in_use_are_refused_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let (_folder, path) = crate::synthetic::write(Vec::new(), 60);
    let mut command = batchwise();
    command.args(["passive", "--metrics", &address, "--pcap"]);
    let output = run(command.arg(path));
    assert_refused(&output, 1, &[&address, "in use"]);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let (_folder, path) = crate::synthetic::write(Vec::new(), 60);
    let mut command = batchwise();
    command.args(["passive", "--report", "/no/such/folder/r.html", "--pcap"]);
    let output = run(command.arg(path));
    assert_refused(&output, 1, &["/no/such/folder/r.html"]);
}

#[test]
fn a_capture_has_no_live_view() {
    let (_folder, path) = crate::synthetic::write(Vec::new(), 60);
    let mut command = batchwise();
    command.args(["passive", "--format", "live", "--pcap"]);
    assert_refused(&run(command.arg(path)), 1, &["--format text"]);
}
