//! The web client against a real nginx that compresses on the fly.

use std::process::Command;
use std::time::Duration;

use batchwise_load::Distribution;
use batchwise_load::web::{Config, Description, Site, run};
use clap::Parser;
use tempfile::TempDir;

use super::log;
use super::process::Server;

struct Nginx {
    server: Server,
    folder: TempDir,
}

/// An nginx with the standard site, and with `extra` in its configuration.
fn nginx(extra: &str) -> Nginx {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    Site::write(&Description::read(None).unwrap(), &path.join("www")).unwrap();
    let server = Server::start(|addr| {
        let config = path.join("nginx.conf");
        let text = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;
             events {{ worker_connections 256; }}
             http {{
               types {{ text/html html; text/css css; application/javascript js; }}
               access_log off; gzip on; gzip_types text/css application/javascript;
               client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2;
               fastcgi_temp_path {dir}/t3; uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
               {extra}
               server {{ listen {addr}; root {dir}/www; }}
             }}",
            dir = path.display(),
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(config).arg("-p").arg(path);
        command.arg("-e").arg(path.join("error.log"));
        command
    });
    Nginx { server, folder }
}

const ENDLESS: &str = "keepalive_requests 1000000000;";

fn config(nginx: &Nginx) -> Config {
    let log = nginx.folder.path().join("truth.csv");
    let (addr, log) = (nginx.server.addr, log.display());
    let line = format!("web --addr {addr} --seed 1 --duration 1s --think none --log {log}");
    Config::parse_from(line.split(' '))
}

#[test]
fn pages_of_a_real_nginx_are_walked_with_four_requests_in_flight() {
    let nginx = nginx(ENDLESS);
    for coalesce in [false, true] {
        let mut config = config(&nginx);
        config.coalesce = coalesce;
        config.options.connections = 3;
        let report = run(&config).unwrap();
        let connections = log::check(&report, config.options.log.as_deref().unwrap(), 4);
        assert!(report.pages.unwrap() > 0, "{report:?}");
        // Nobody pauses: all but the last responses and those that leave no more to ask for at
        // once cause a request.
        assert!(report.triggers * 2 > report.requests, "{report:?}");
        for lines in connections.values() {
            let root = lines[0].response;
            assert!(lines[1..].iter().all(|line| line.sent >= root));
        }
    }
}

#[test]
fn compressed_responses_are_shorter_and_plain_ones_have_the_length_of_the_file() {
    let nginx = nginx(ENDLESS);
    let per_request = [true, false].map(|gzip| {
        let config = Config {
            gzip,
            ..config(&nginx)
        };
        let report = run(&config).unwrap();
        assert_eq!(report.errors, 0, "{report:?}");
        report.bytes_received as f64 / report.requests as f64
    });
    assert!(per_request[0] < 0.8 * per_request[1], "{per_request:?}");
}

#[test]
fn a_person_who_looks_at_a_page_makes_a_pause_that_no_response_is_blamed_for() {
    let nginx = nginx(ENDLESS);
    let mut config = Config {
        think: Distribution::Constant(1e9),
        ..config(&nginx)
    };
    config.options.duration = Duration::from_millis(3500);
    let report = run(&config).unwrap();
    let connections = log::check(&report, config.options.log.as_deref().unwrap(), 4);
    assert!(report.pages.unwrap() >= 2, "{report:?}");
    for line in connections.values().flatten() {
        let think = line.triggered.map_or(0, |at| at - line.response);
        assert!(think < 1_000_000_000, "{line:?}");
    }
}

#[test]
fn a_rate_is_not_exceeded() {
    let nginx = nginx(ENDLESS);
    let mut config = Config {
        rate: Some(1000.0),
        ..config(&nginx)
    };
    config.options.connections = 4;
    config.options.duration = Duration::from_secs(2);
    let report = run(&config).unwrap();
    assert_eq!(report.errors, 0, "{report:?}");
    assert_eq!(report.offered_rps, 1000.0);
    // 2000 requests are about 50 pages, whose number varies by 15 %.
    assert!((1..3200).contains(&report.requests), "{report:?}");
}

#[test]
fn another_site_than_the_servers_is_an_error_that_says_what_to_do() {
    let nginx = nginx(ENDLESS);
    let other = Description {
        seed: 2,
        ..Description::read(None).unwrap()
    };
    let site = nginx.folder.path().join("other");
    Site::write(&other, &site).unwrap();
    let config = Config {
        gzip: false,
        site: Some(site.join("site.toml")),
        ..config(&nginx)
    };
    let report = run(&config).unwrap();
    assert!(report.errors > 0 && !report.valid, "{report:?}");
    assert!(report.why_invalid[0].contains("web-site"), "{report:?}");
}

#[test]
fn a_server_that_limits_the_requests_of_a_connection_is_named_as_that() {
    let nginx = nginx("keepalive_requests 10;");
    let report = run(&config(&nginx)).unwrap();
    assert!(!report.valid, "{report:?}");
    assert!(
        report.why_invalid[0].contains("keepalive_requests"),
        "{report:?}"
    );
}

#[test]
fn a_server_that_dies_leaves_an_invalid_report_and_none_a_plain_error() {
    let mut nginx = nginx(ENDLESS);
    let mut config = config(&nginx);
    config.options.duration = Duration::from_secs(60);
    let running = std::thread::spawn({
        let config = config.clone();
        move || run(&config)
    });
    log::begun(config.options.log.as_ref().unwrap());
    std::thread::sleep(Duration::from_millis(300));
    nginx.server.kill();
    let report = running.join().unwrap().unwrap();
    assert!(!report.valid && report.errors > 0, "{report:?}");
    let none = run(&config).unwrap_err().to_string();
    assert!(none.contains("cannot connect to"), "{none}");
}

#[test]
fn connections_that_last_for_a_few_pages_are_replaced_and_told_apart_in_the_log() {
    let nginx = nginx(ENDLESS);
    let config = Config {
        pages_per_connection: Some(2.0),
        ..config(&nginx)
    };
    let report = run(&config).unwrap();
    assert_eq!((report.errors, report.breaks.len()), (0, 0), "{report:?}");
    let connections = log::read(config.options.log.as_ref().unwrap());
    let opened = report.connections_opened;
    // The last one may not have got as far as an answer.
    assert!((opened - 1..=opened).contains(&(connections.len() as u64)));
    // every page is its connection's last by the throw of a coin: five times the deviation
    let (opened, pages) = (opened as f64, report.pages.unwrap() as f64);
    let off = (opened - pages / 2.0).abs();
    assert!(off < 2.0 + 2.5 * pages.sqrt(), "{opened} for {pages}");
}

#[test]
fn what_a_server_closes_between_requests_is_not_broken() {
    let nginx = nginx("keepalive_timeout 500ms;");
    let mut config = Config {
        pages_per_connection: Some(1000.0),
        think: Distribution::Constant(1.2e9),
        ..config(&nginx)
    };
    config.options.duration = Duration::from_secs(4);
    let report = run(&config).unwrap();
    assert_eq!(report.broken_connections, 0, "{:?}", report.breaks);
    assert!(report.connections_opened > 1, "{report:?}");
}

#[test]
fn what_a_dying_server_leaves_is_broken_and_what_it_then_refuses_is_told_apart() {
    let mut nginx = nginx(ENDLESS);
    let mut config = Config {
        pages_per_connection: Some(1000.0),
        ..config(&nginx)
    };
    config.options.duration = Duration::from_secs(2);
    let log = config.options.log.clone().unwrap();
    let running = std::thread::spawn(move || run(&config));
    log::begun(&log);
    std::thread::sleep(Duration::from_millis(500));
    nginx.server.kill();
    let report = running.join().unwrap().unwrap();
    assert_eq!(report.broken_connections, 1, "{:?}", report.breaks);
    assert!(report.connect_failures > 2 && !report.valid, "{report:?}");
}
