//! The memcached client against a real memcached.

use std::process::Command;
use std::time::Duration;

use batchwise_load::memcached::{Config, run};
use batchwise_load::{Distribution, Error, Options};

use crate::log;
use crate::process::Server;

fn memcached(extra: &[&str]) -> Server {
    Server::start(|addr| {
        let mut command = Command::new("memcached");
        command.args(["-u", "root", "-U", "0", "-t", "1", "-l", "127.0.0.1", "-p"]);
        command.arg(addr.port().to_string()).args(extra);
        command
    })
}

fn config(server: &Server) -> Config {
    let mut options = Options::new(server.addr);
    options.duration = Duration::from_millis(300);
    Config {
        keys: 100,
        ..Config::new(options)
    }
}

#[test]
fn gets_and_sets_are_answered_with_as_many_in_flight_as_asked_for() {
    let server = memcached(&[]);
    let folder = tempfile::tempdir().unwrap();
    for (in_flight, coalesce) in [(1, false), (8, false), (8, true)] {
        let mut config = Config {
            in_flight,
            coalesce,
            ..config(&server)
        };
        config.options.connections = 3;
        config.options.log = Some(folder.path().join("truth.csv"));
        let report = run(&config).unwrap();
        let connections = log::check(&report, config.options.log.as_deref().unwrap(), in_flight);
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
    let mut config = Config {
        rate: Some(200.0),
        in_flight: 64,
        ..config(&server)
    };
    config.options.duration = Duration::from_secs(3);
    let report = run(&config).unwrap();
    assert_eq!(report.errors, 0, "{report:?}");
    assert!((60..720).contains(&report.requests), "{report:?}");
    assert!(report.triggers < report.requests / 2, "{report:?}");
}

#[test]
fn values_that_the_server_refuses_end_the_set_up_with_its_words() {
    let server = memcached(&["-I", "524288"]);
    let config = Config {
        value_size: Distribution::Constant(600_000.0),
        ..config(&server)
    };
    let refused = run(&config).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("too large"), "{refused}");
}

#[test]
fn a_server_that_forgets_values_makes_the_run_invalid() {
    let server = memcached(&["-m", "4"]);
    let config = Config {
        keys: 5000,
        value_size: Distribution::Constant(9_000.0),
        ..config(&server)
    };
    let report = run(&config).unwrap();
    assert!(!report.valid && report.errors > 0, "{report:?}");
    assert!(
        report.why_invalid[0].contains("found nothing"),
        "{report:?}"
    );
}
