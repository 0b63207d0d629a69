//! The lines of `batchwise watch`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use batchwise_hint::{Hints, SOCKET_VARIABLE};
use batchwise_testbed::stage::{Stage, eventually, scrape::METRICS};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Asking, Running, at, batchwise, load};

const WATCH: &str = "watch --port 6379 --interval 200ms --format jsonl";

#[test]
fn a_server_alone_in_every_unit_and_its_connections() {
    let stage = Stage::build("ct-alone");
    let _redis = stage.redis();
    let server = &stage.hosts.server;
    let units = "--count sends --count bytes --count packets";
    let services = Running::agent(server, &format!("{WATCH} {units} --metrics {METRICS}"));
    let connections = Running::agent(server, &format!("{WATCH} --per-connection"));
    let _load = load(&stage, "--rate 2000 --connections 2");
    hold("watch-server", || services.lines());
    hold("watch-connections", || connections.lines());
    hold_metrics("watch-server-metrics", server);
    for (agent, signal) in [(services, Signal::SIGINT), (connections, Signal::SIGTERM)] {
        assert_eq!(agent.end(signal).1, Some(0));
    }
}

#[test]
fn a_server_that_counts_for_a_share_of_the_time() {
    let stage = Stage::build("ct-cost");
    let _redis = stage.redis();
    let server = &stage.hosts.server;
    let watch = Running::agent(server, &format!("{WATCH} --cost 0.1%"));
    let _load = load(&stage, "--closed --connections 4");
    let in_part = || {
        let mut lines = watch.lines();
        lines.retain(|line| line["coverage"].as_f64().is_some_and(|share| share < 1.0));
        (lines.len() > 1).then_some(lines)
    };
    let last = || format!("{:?}", watch.lines().last());
    let lines = eventually("lines of a part of the time", in_part, last);
    hold_now("watch-cost", &lines);
    assert_eq!(watch.end(Signal::SIGTERM).1, Some(0));
}

#[test]
fn both_ends_that_exchange() {
    let stage = Stage::build("ct-both");
    let _redis = stage.redis();
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let at_server = Running::agent(server, &format!("{WATCH} --exchange"));
    let exchange = format!("{WATCH} --exchange --exchange-period 1ms --metrics {METRICS}");
    let at_client = Running::agent(client, &exchange);
    let _load = load(&stage, "--rate 2000 --connections 2");
    hold("watch-exchange-server", || at_server.lines());
    hold("watch-exchange-client", || at_client.lines());
    hold_metrics("watch-exchange-metrics", client);
}

#[test]
fn a_client_whose_application_gives_hints() {
    let stage = Stage::build("ct-hints");
    let _redis = stage.redis();
    let folder = TempDir::new().expect("a folder");
    let socket = folder.path().join("hint.sock");
    // SAFETY: tests of a stage take turns, and nothing else reads this variable.
    unsafe { std::env::set_var(SOCKET_VARIABLE, &socket) };
    let mut watch = batchwise(&format!("{WATCH} --metrics {METRICS} --hints"));
    watch.arg(&socket);
    let watch = Running::start(&stage.hosts.client, watch);
    let address = stage.redis_address();
    let stream = at(&stage.hosts.client, || TcpStream::connect(address));
    let hints = Hints::for_service(address);
    let _asking = Asking::start(move || {
        let request = hints.request();
        (&stream).write_all(b"PING\r\n").expect("sent");
        (&stream).read_exact(&mut [0; 7]).expect("+PONG");
        drop(request);
        std::thread::sleep(Duration::from_millis(1));
    });
    hold("watch-hints", || watch.lines());
    hold_metrics("watch-hints-metrics", &stage.hosts.client);
}
