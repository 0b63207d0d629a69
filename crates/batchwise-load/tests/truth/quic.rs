//! The QUIC client against its test server.

use std::time::Duration;

use batchwise_load::quic::{Config, Server, ServerConfig, run};
use batchwise_load::{Distribution, Options};

use crate::log;

fn server(work_ns: f64) -> Server {
    Server::start(&ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        work: Distribution::Constant(work_ns),
        seed: 1,
    })
    .unwrap()
}

fn config(server: &Server) -> Config {
    let mut options = Options::new(server.addr());
    options.duration = Duration::from_secs(1);
    Config::new(options)
}

fn sizes(low: f64, high: f64) -> Distribution {
    Distribution::Uniform { low, high }
}

#[test]
fn small_and_large_responses_come_whole_over_connections_of_their_own() {
    let server = server(0.0);
    let folder = tempfile::tempdir().unwrap();
    for (low, high) in [(30, 130), (1600, 15100)] {
        let mut config = Config {
            response_size: sizes(f64::from(low), f64::from(high)),
            ..config(&server)
        };
        config.options.connections = 2;
        config.options.log = Some(folder.path().join("truth.csv"));
        let report = run(&config).unwrap();
        let connections = log::check(&report, config.options.log.as_deref().unwrap(), 16);
        assert!(report.pages.unwrap() >= 2, "{report:?}");
        let range = low as u64..=high as u64;
        for line in connections.values().flatten() {
            assert!(range.contains(&line.response_bytes), "{line:?}");
            assert_eq!(line.request_bytes, 187);
        }
    }
}

#[test]
fn one_stream_at_a_time_makes_each_response_cause_the_next_request() {
    let server = server(0.0);
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config {
        streams: Distribution::Constant(1.0),
        ..config(&server)
    };
    config.options.log = Some(folder.path().join("truth.csv"));
    let report = run(&config).unwrap();
    log::check(&report, config.options.log.as_deref().unwrap(), 1);
    assert_eq!(report.triggers + 1, report.requests, "{report:?}");
}

#[test]
fn the_servers_work_is_part_of_the_latency() {
    let server = server(1e6);
    let report = run(&config(&server)).unwrap();
    assert_eq!(report.errors, 0, "{report:?}");
    assert!(report.latency_ns.p50 >= Some(1_000_000), "{report:?}");
}

#[test]
fn a_server_that_goes_away_leaves_an_invalid_report() {
    let server = server(0.0);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("truth.csv");
    let mut config = config(&server);
    config.options.duration = Duration::from_secs(60);
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
