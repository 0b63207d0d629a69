//! Many connections at once, and many one after the other.

use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use batchwise_core::sense::report::{Line, Side};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::close;
use batchwise_testbed::stage::generator::Load;
use batchwise_testbed::stage::request::ask;
use batchwise_testbed::stage::watch::{Watch, items, now_ns, of};
use batchwise_testbed::stage::{PATIENCE, Stage};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::SockRef;

use crate::tcp::watch::agreement::Measured;

/// Descriptors that the server and the generator need each.
const FILES: u64 = 12_000;
const CONNECTIONS: u64 = 10_000;
const MIB: u64 = 1 << 20;

#[test]
fn ten_thousand_connections_are_all_in_the_line_and_lose_nothing() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of open files");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(FILES), hard.max(FILES)).expect("a higher limit");
    let stage = Stage::build("many");
    let _redis = stage.redis();
    let mut admin = stage.connect(stage.redis_address());
    ask(&mut admin, b"CONFIG SET maxclients 11000\r\n", b"+OK\r\n");
    drop(admin);
    let watch = Watch::host(&stage.hosts.server, PORT, &[]);
    // it asks 2 times on each, so that a server that is not told can tell requests apart
    let options = "--rate 3500 --duration 6s --warmup 0s --keys 1 --value-size 64";
    let options = format!("{options} --connections {CONNECTIONS}");
    let all = |l: &&Line| l.connections == CONNECTIONS && l.throughput_per_s > 0.0;
    let (load, early) = thread::scope(|scope| {
        let client = &stage.hosts.client;
        let load = scope.spawn(|| Measured::run(client, stage.redis_address(), &options));
        watch.until("all connections, read several times", 0, |lines| {
            lines.iter().filter(all).count() >= 4
        });
        let early = watch.resident_bytes();
        (load.join().expect("the load ends"), early)
    });
    let late = watch.resident_bytes();
    let lines = load.lines(&watch, Side::Server);
    watch.finish();
    assert!(
        lines.iter().all(|l| l.lost_events == 0),
        "{:?}",
        lines.last()
    );
    assert!(lines.iter().all(|l| l.connections <= CONNECTIONS + 1));
    load.assert_counted(&lines, Side::Server);
    // a few KiB a connection, for what is read, what was read before and what is read next
    assert!(late < 160 * MIB, "{} MiB in use", late / MIB);
    assert!(late < early + 16 * MIB, "grew from {early} to {late} bytes");
}

/// Connections that end without a goodbye, some of them with unread data.
fn resets(stage: &Stage, count: usize) {
    for i in 0..count {
        let mut stream = stage.connect(stage.redis_address());
        let socket = SockRef::from(&stream);
        socket.set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
        if i % 2 == 0 {
            ask(&mut stream, b"PING\r\n", b"+PONG\r\n");
        } else {
            std::io::Write::write_all(&mut stream, b"PING\r\nPIN").expect("sent");
        }
    }
}

#[test]
fn requests_on_thousands_of_short_connections_are_counted() {
    const REQUESTS: u32 = 12_000;
    const RESETS: usize = 300;
    let stage = Stage::build("churn");
    let _redis = stage.redis();
    let mut watch = Watch::host(&stage.hosts.server, PORT, &["--exchange"]);
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "10.77.0.1", "-k", "0", "-c", "20", "-t", "set", "-q"]);
    command.args(["-n", &REQUESTS.to_string()]);
    let begin = now_ns();
    let load = Load::spawn(&stage.hosts.client, command);
    resets(&stage, RESETS);
    load.output();
    // a connection that stays shows that the watcher still counts
    let mut stream: TcpStream = stage.connect(stage.redis_address());
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let after = now_ns();
    for _ in 0..100 {
        ask(&mut stream, b"PING\r\n", b"+PONG\r\n");
    }
    watch.until("the last one", after, |l| !l.is_empty());
    watch.assert_alive();
    let lines = watch.finish();
    assert!(lines.iter().all(|l| l.ts_ns > begin));
    let counted = items(&of(&lines, Side::Server));
    let sent = f64::from(REQUESTS) + RESETS as f64 + 100.0;
    let lost = lines.last().expect("lines").lost_events;
    let told = format!("{counted} counted of {sent}; lost_events: {lost}");
    // what is not counted is owned up to; a reset may have come before its request was read
    assert!(close(counted + lost as f64, sent, 0.05), "{told}");
    assert!(close(counted, sent, 0.15), "{told}");
    // each is in the line of its interval, at least
    let connections: u64 = lines.iter().map(|l| l.connections).sum();
    let told = format!("{connections} connections; lost_events: {lost}");
    assert!(connections as f64 + lost as f64 > 0.95 * sent, "{told}");
}
