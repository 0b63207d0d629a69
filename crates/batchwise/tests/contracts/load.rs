//! The reports of `batchwise load`, and the log of what closed loops know.

use std::fs;

use batchwise_testbed::memcached::{Memcached, PORT as MEMCACHED};
use batchwise_testbed::nginx::{Nginx, PORT as NGINX};
use batchwise_testbed::redis::PORT as REDIS;
use batchwise_testbed::stage::{Stage, generator::Load};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::SERVER_IP;
use serde_json::Value;
use tempfile::TempDir;

use crate::shape::{hold_all_now, hold_now};
use crate::site::{batchwise, json, run, set};

fn report(stage: &Stage, command: &str) -> Vec<Value> {
    json(&Load::spawn(&stage.hosts.client, batchwise(command)).output())
}

/// A closed loop's report and log.
fn truth(stage: &Stage, folder: &TempDir, name: &str, options: &str) {
    let log = folder.path().join(name);
    let command = format!(
        "load {name} {options} --connections 2 --duration 300ms --format json --log {}",
        log.display()
    );
    hold_now(&format!("load-{name}"), &report(stage, &command));
    let text = fs::read_to_string(&log).expect("a log");
    let mut lines = text.lines();
    hold_all_now("load-log", &set(lines.next()));
    let fields = lines.next().map(|l| l.split(',').count());
    assert_eq!(fields, Some(6), "{text}");
}

#[test]
fn redis_by_a_rate_and_by_a_schedule() {
    let stage = Stage::build("ct-open");
    let _redis = stage.redis();
    let redis = format!("load redis --addr {SERVER_IP}:{REDIS} --format json");
    let plain = format!(
        "{redis} --rate 2000 --duration 300ms --value-size 64 --get-ratio 0.05 --connections 2 \
         --nodelay off --arrivals constant"
    );
    hold_now("load-redis", &report(&stage, &plain));
    let phases = "--schedule 300ms:2000@64,300ms:1k..2k@512/0.5 --progress 100ms";
    let mut lines = report(&stage, &format!("{redis} {phases}"));
    let last = lines.pop().expect("a report");
    hold_now("load-redis-schedule", &[last]);
    hold_now("load-redis-progress", &lines);
    let closed = format!("{redis} --closed --pipeline 2 --duration 300ms");
    hold_now("load-redis-closed", &report(&stage, &closed));
    let tasks = redis.replace("load redis", "load multiplexed") + " --duration 300ms";
    hold_now("load-multiplexed", &report(&stage, &tasks));
}

#[test]
fn closed_loops_and_their_logs() {
    let stage = Stage::build("ct-truth");
    let folder = TempDir::new().expect("a folder");
    let (server, stop) = (&stage.hosts.server, Stop::default());
    let nginx = Nginx::start(server, &stop, |folder| {
        let output = run(&format!("load web-site --out {}", folder.display()));
        assert!(output.status.success(), "{output:?}");
        Ok(())
    });
    let _nginx = nginx.expect("nginx");
    let _memcached = Memcached::start(server, &stop).expect("memcached");
    let addr = |port: u16| format!("--addr {SERVER_IP}:{port}");
    let web = addr(NGINX) + " --think none --pages-per-connection 2";
    truth(&stage, &folder, "web", &web);
    truth(&stage, &folder, "memcached", &addr(MEMCACHED));

    let listen = format!("load quic-server --listen {SERVER_IP}:4433");
    let _server = Load::spawn(server, batchwise(&listen));
    truth(&stage, &folder, "quic", &addr(4433));
}
