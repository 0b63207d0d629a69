//! The reports of `batchwise load`, and the log of what closed loops know.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::shape::{hold_all_now, hold_now};
use crate::site::{MEMCACHED, NGINX, Pair, REDIS, Running, SERVER_IP, batchwise, run, set};

fn report(pair: &Pair, command: &str) -> Vec<Value> {
    Running::application(&pair.hosts.client, batchwise(command)).finish()
}

/// A closed loop's report and log.
fn truth(pair: &Pair, folder: &TempDir, name: &str, options: &str) {
    let log = folder.path().join(name);
    let command = format!(
        "load {name} {options} --connections 2 --duration 300ms --format json --log {}",
        log.display()
    );
    hold_now(&format!("load-{name}"), &report(pair, &command));
    let text = fs::read_to_string(&log).expect("a log");
    let mut lines = text.lines();
    hold_all_now("load-log", &set(lines.next()));
    let fields = lines.next().map(|l| l.split(',').count());
    assert_eq!(fields, Some(6), "{text}");
}

#[test]
fn redis_by_a_rate_and_by_a_schedule() {
    let pair = Pair::build("open");
    let _redis = pair.redis();
    let redis = format!("load redis --addr {SERVER_IP}:{REDIS} --format json");
    let plain = format!(
        "{redis} --rate 2000 --duration 300ms --value-size 64 --get-ratio 0.05 --connections 2 \
         --nodelay off --arrivals constant"
    );
    hold_now("load-redis", &report(&pair, &plain));
    let phases = "--schedule 300ms:2000@64,300ms:1k..2k@512/0.5 --progress 100ms";
    let mut lines = report(&pair, &format!("{redis} {phases}"));
    let last = lines.pop().expect("a report");
    hold_now("load-redis-schedule", &[last]);
    hold_now("load-redis-progress", &lines);
    let closed = format!("{redis} --closed --pipeline 2 --duration 300ms");
    hold_now("load-redis-closed", &report(&pair, &closed));
}

#[test]
fn closed_loops_and_their_logs() {
    let pair = Pair::build("truth");
    let folder = TempDir::new().expect("a folder");
    let site = |folder: &Path| {
        let output = run(&format!("load web-site --out {}", folder.display()));
        assert!(output.status.success(), "{output:?}");
    };
    let _nginx = pair.nginx(site);
    let _memcached = pair.memcached();
    let addr = |port: u16| format!("--addr {SERVER_IP}:{port}");
    let web = addr(NGINX) + " --think none --pages-per-connection 2";
    truth(&pair, &folder, "web", &web);
    truth(&pair, &folder, "memcached", &addr(MEMCACHED));

    let listen = format!("load quic-server --listen {SERVER_IP}:4433");
    let server: Command = batchwise(&listen);
    let _server = Running::application(&pair.hosts.server, server);
    truth(&pair, &folder, "quic", &addr(4433));
}
