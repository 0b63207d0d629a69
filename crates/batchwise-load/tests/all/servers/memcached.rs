//! The memcached client against a real memcached.

use std::process::Command;

use batchwise_load::memcached::{Config, run};
use clap::Parser;

use super::log;
use super::process::Server;

fn memcached(extra: &[&str]) -> Server {
    Server::start(|addr| {
        let mut command = Command::new("memcached");
        command.args(["-u", "root", "-U", "0", "-t", "1", "-l", "127.0.0.1", "-p"]);
        command.arg(addr.port().to_string()).args(extra);
        command
    })
}

fn config(server: &Server, options: &str) -> Config {
    let line = format!("memcached --addr {} --seed 1 {options}", server.addr);
    Config::parse_from(line.split_whitespace())
}

#[test]
fn gets_and_sets_are_answered_with_as_many_in_flight_as_asked_for() {
    let server = memcached(&[]);
    let folder = tempfile::tempdir().unwrap();
    for (in_flight, coalesce) in [(1, false), (8, false), (8, true)] {
        let mut config = config(&server, "--keys 100 --duration 300ms --connections 3");
        (config.in_flight, config.coalesce) = (in_flight, coalesce);
        let log = folder.path().join("truth.csv");
        config.options.log = Some(log.clone());
        let report = run(&config).unwrap();
        let connections = log::check(&report, &log, in_flight);
        let all: Vec<_> = connections.values().flatten().collect();
        // Each response but the last ones causes a request.
        assert!(
            report.triggers + 3 * in_flight as u64 >= report.requests,
            "{report:?}"
        );
        let gets = all.iter().filter(|line| line.request_bytes < 40).count();
        let (gets, all) = (gets as f64, all.len() as f64);
        // five times the deviation of as many throws of a coin
        assert!(
            (gets - all / 2.0).abs() < 2.5 * all.sqrt(),
            "{gets} of {all}"
        );
    }
}

#[test]
fn a_rate_leaves_most_requests_to_the_clock() {
    let server = memcached(&[]);
    let options = "--keys 100 --rate 200 --in-flight 64 --duration 3s";
    let report = run(&config(&server, options)).unwrap();
    assert_eq!(report.errors, 0, "{report:?}");
    assert!((60..720).contains(&report.requests), "{report:?}");
    assert!(report.triggers < report.requests / 2, "{report:?}");
}

#[test]
fn values_that_the_server_refuses_end_the_set_up_with_its_words() {
    let server = memcached(&["-I", "524288"]);
    let refused = run(&config(&server, "--value-size 600000")).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("refused set: "), "{refused}");
    assert!(refused.contains("too large"), "{refused}");
}

#[test]
fn a_server_that_forgets_values_makes_the_run_invalid() {
    let server = memcached(&["-m", "4"]);
    let options = "--keys 5000 --value-size 9000 --duration 300ms";
    let report = run(&config(&server, options)).unwrap();
    assert!(!report.valid && report.errors > 0, "{report:?}");
    assert!(
        report.why_invalid[0].contains("found nothing"),
        "{report:?}"
    );
}
