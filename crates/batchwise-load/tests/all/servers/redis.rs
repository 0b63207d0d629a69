//! Whole runs against a real Redis.

use std::process::Command;
use std::time::Duration;

use batchwise_load::experiments::multiplexed;
use batchwise_load::{Config, run};
use clap::Parser;

use super::process::Server;

fn redis() -> Server {
    Server::start(|addr| {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--port", &addr.port().to_string()]);
        command
    })
}

fn config(server: &Server, options: &str) -> Config {
    let line = format!("redis --addr {} --seed 1 {options}", server.addr);
    Config::parse_from(line.split_whitespace())
}

#[test]
fn a_real_redis_answers_sets_and_gets_on_one_and_on_many_connections() {
    let redis = redis();
    for more in ["--nodelay on", "--nodelay off --connections 50"] {
        let options =
            format!("--rate 2000 --value-size 16384 --get-ratio 0.5 --duration 300ms {more}");
        let report = run(&config(&redis, &options), |_| Ok(())).unwrap().report;
        assert_eq!(report.whole.errors, 0, "{report:?}");
        assert!(report.whole.requests > 400, "{report:?}");
    }
}

#[test]
fn a_real_redis_that_is_killed_mid_run_is_reported() {
    let mut redis = redis();
    let mut config = config(&redis, "--rate 10k --warmup 0s --progress 20ms");
    config.duration = Duration::from_secs(3600);
    let kill = |_: &_| {
        redis.kill();
        Ok(())
    };
    let report = run(&config, kill).unwrap().report.whole;
    assert!(!report.valid, "{report:?}");
    assert!(report.why_invalid[0].contains("lost"), "{report:?}");
}

#[test]
fn tasks_share_connections_and_are_all_answered() {
    let redis = redis();
    for more in ["--connections 2 --tasks 8", "--tasks 4 --every 20ms"] {
        let line = format!("multiplexed --addr {} --warmup 0s {more}", redis.addr);
        let config = multiplexed::Config {
            duration: Duration::from_millis(300),
            ..multiplexed::Config::parse_from(line.split_whitespace())
        };
        let report = multiplexed::run(&config, |_| Ok(())).unwrap();
        assert_eq!(report.errors, 0, "{report:?}");
        assert!(report.requests > 4, "{report:?}");
        assert_eq!(report.tasks, config.tasks as u64);
    }
}
