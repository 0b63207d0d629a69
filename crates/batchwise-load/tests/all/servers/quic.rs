//! The QUIC client against its test server.

use std::time::Duration;

use batchwise_load::experiments::quic::{Config, Server, ServerConfig, run};
use clap::Parser;

use super::log;

fn server(work: &str) -> Server {
    let line = [
        "quic-server",
        "--listen",
        "127.0.0.1:0",
        "--seed",
        "1",
        "--work",
        work,
    ];
    Server::start(&ServerConfig::parse_from(line)).unwrap()
}

fn config(server: &Server, options: &str) -> Config {
    let line = format!("quic --addr {} --seed 1 {options}", server.addr());
    Config::parse_from(line.split_whitespace())
}

#[test]
fn small_and_large_responses_come_whole_over_connections_of_their_own() {
    let server = server("none");
    let folder = tempfile::tempdir().unwrap();
    for (low, high) in [(30, 130), (1600, 15100)] {
        let options = format!("--response-size {low}..{high} --connections 2 --duration 1s");
        let mut config = config(&server, &options);
        let log = folder.path().join("truth.csv");
        config.options.log = Some(log.clone());
        let report = run(&config).unwrap();
        let connections = log::check(&report, &log, 16);
        assert!(report.pages.unwrap() >= 2, "{report:?}");
        let range = low..=high;
        for line in connections.values().flatten() {
            assert!(range.contains(&line.response_bytes), "{line:?}");
            assert_eq!(line.request_bytes, 187);
        }
    }
}

#[test]
fn one_stream_at_a_time_makes_each_response_cause_the_next_request() {
    let server = server("none");
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&server, "--streams 1 --duration 1s");
    let log = folder.path().join("truth.csv");
    config.options.log = Some(log.clone());
    let report = run(&config).unwrap();
    log::check(&report, &log, 1);
    assert_eq!(report.triggers + 1, report.requests, "{report:?}");
}

#[test]
fn the_servers_work_is_part_of_the_latency() {
    let server = server("1ms");
    let report = run(&config(&server, "--duration 1s")).unwrap();
    assert_eq!(report.errors, 0, "{report:?}");
    assert!(report.latency_ns.p50 >= Some(1_000_000), "{report:?}");
}

#[test]
fn a_server_that_goes_away_leaves_an_invalid_report() {
    let server = server("none");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("truth.csv");
    let mut config = config(&server, "--duration 60s");
    config.options.log = Some(log.clone());
    let running = std::thread::spawn(move || run(&config));
    log::begun(&log);
    std::thread::sleep(Duration::from_millis(300));
    drop(server);
    let report = running.join().unwrap().unwrap();
    assert!(!report.valid && report.errors > 0, "{report:?}");
    assert!(
        report.why_invalid[0].contains("connections were lost"),
        "{report:?}"
    );
}
