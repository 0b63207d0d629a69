//! One end watches, its peer does not: local estimates, which connections they cover, how they are
//! told apart.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use batchwise_core::sense::report::{Estimator, Line, Nagle, Side};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::Stage;
use batchwise_testbed::stage::request::ask;
use batchwise_testbed::stage::watch::{Watch, items, now_ns, of};

use crate::tcp::watch::agreement::{LIGHT, Measured, SINGLE, estimate};

#[test]
fn a_server_alone_times_its_turns_and_leaves_the_peers_half_unknown() {
    let stage = Stage::build("alone");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.server, PORT, &[]);
    let load = Measured::run(&stage.hosts.client, stage.redis_address(), SINGLE);
    let lines = load.lines(&watch, Side::Server);
    watch.finish();

    assert!(!lines.is_empty());
    for line in &lines {
        let known = [Estimator::Turns, Estimator::Local];
        assert!(known.contains(&line.estimator), "{line:?}");
        assert_eq!(line.side, Side::Server, "{line:?}");
        assert_eq!(line.service, "10.77.0.1:6379", "{line:?}");
        assert_eq!(line.stages_ns.unread_remote, None, "{line:?}");
        assert_eq!(line.stages_ns.ackdelay_remote, None, "{line:?}");
        assert_eq!((line.view, line.lost_events), (None, 0), "{line:?}");
        assert_eq!(line.connection, None, "{line:?}");
    }
    let estimate = estimate(&lines, Side::Server);
    assert!(
        estimate.turnaround_ns.is_some_and(|t| t > 0.0),
        "{estimate:?}"
    );
    assert!(estimate.total_ns > estimate.turnaround_ns, "{estimate:?}");
    assert!(estimate.confidence < 0.5, "{estimate:?}");
    load.assert_counted(&lines, Side::Server);
}

#[test]
fn a_client_alone_matches_its_requests_and_cannot_split_their_total() {
    let stage = Stage::build("cli-alone");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.client, PORT, &[]);
    let options = format!("{LIGHT} --nodelay off");
    let load = Measured::run(&stage.hosts.client, stage.redis_address(), &options);
    let lines = load.lines(&watch, Side::Client);
    watch.finish();

    let estimate = estimate(&lines, Side::Client);
    assert!(of(&lines, Side::Server).is_empty());
    assert_eq!((estimate.network_ns, estimate.turnaround_ns), (None, None));
    load.assert_agrees_by(Estimator::Matched, &lines, Side::Client);
    assert_eq!(estimate.nagle, Nagle::On);
}

/// Asks so often on each of these connections.
fn ask_on(streams: &mut [TcpStream], times: &[u32]) {
    for (stream, &times) in streams.iter_mut().zip(times) {
        for _ in 0..times {
            ask(stream, b"PING\r\n", b"+PONG\r\n");
        }
    }
}

/// Waits for a line of an interval in which nothing happened: what happens from now on is in the
/// lines after it. Gives its time.
fn quiet(watch: &Watch, side: Side) -> u64 {
    let idle = |l: &Line| l.side == side && l.throughput_per_s == 0.0;
    let lines = watch.until("a quiet interval", now_ns(), |lines| lines.iter().any(idle));
    lines.iter().rfind(|l| idle(l)).expect("it came").ts_ns
}

/// Whether these lines of one connection, or of some, count what was asked. A server that is not told
/// sees the request come and the reply leave, and takes the larger number: a request that is under
/// way between two lines may be in both.
fn count(lines: &[&Line], asked: u32, connections: u64) -> bool {
    let twice = lines.len() as u64 * connections;
    (f64::from(asked)..=f64::from(asked) + twice as f64).contains(&items(lines).round())
}

/// Waits until the lines after `since_ns` count `asked` requests; gives these lines.
fn counted(watch: &Watch, side: Side, since_ns: u64, asked: u32) -> Vec<Line> {
    let own = |lines: &[Line]| -> Vec<Line> {
        let own = |l: &&Line| l.side == side && l.ts_ns > since_ns;
        lines.iter().filter(own).cloned().collect()
    };
    let sum = |lines: &[Line]| items(&own(lines).iter().collect::<Vec<_>>()).round();
    let lines = watch.until("all requests", 0, |lines| sum(lines) >= f64::from(asked));
    let lines = own(&lines);
    let connections = lines.iter().map(|l| l.connections).max().unwrap_or(0);
    let all: Vec<&Line> = lines.iter().collect();
    assert!(count(&all, asked, connections), "{asked} asked: {lines:#?}");
    lines
}

#[test]
fn connections_open_before_watch_starts_are_found_also_in_another_network_namespace() {
    let stage = Stage::build("adopt");
    let _redis = stage.redis();
    let mut streams = [0, 1, 2].map(|_| stage.connect(stage.redis_address()));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    // in use while watchers come
    let asking = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            ask_on(&mut streams, &[1; 3]);
        }
        streams
    });
    let before = Watch::start(&stage.hosts.client, PORT, None, &[]);
    before.until("traffic", 0, |l| !l.is_empty());

    let server = stage.hosts.server.cgroup();
    let there = Watch::start(&stage.hosts.client, PORT, Some(server), &[]);
    let here = Watch::host(&stage.hosts.server, PORT, &[]);
    for watch in [&there, &here] {
        watch.until("the three open connections", 0, |lines| {
            lines.iter().any(|l| {
                l.side == Side::Server
                    && l.service == "10.77.0.1:6379"
                    && l.connections == 3
                    && l.throughput_per_s > 0.0
                    && l.latency_ns.total.is_some()
            })
        });
    }
    drop(before);
    stop.store(true, Ordering::Relaxed);
    let mut streams = asking.join().expect("every answer came");
    let since = [&there, &here].map(|watch| quiet(watch, Side::Server));
    ask_on(&mut streams, &[500; 3]);
    for (watch, since) in [there, here].into_iter().zip(since) {
        counted(&watch, Side::Server, since, 3 * 500);
        watch.finish();
    }
}

#[test]
fn an_ipv6_service_is_shown_in_brackets() {
    let stage = Stage::build("v6");
    let _redis = stage.redis();
    let address: SocketAddr = "[fd77::1]:6379".parse().expect("an address");
    let server = Watch::host(&stage.hosts.server, PORT, &["--per-connection"]);
    let client = Watch::host(&stage.hosts.client, PORT, &[]);
    let load = Measured::run(&stage.hosts.client, address, SINGLE);
    for (watch, side) in [(server, Side::Server), (client, Side::Client)] {
        let lines = load.lines(&watch, side);
        watch.finish();
        for line in &lines {
            assert_eq!((line.service.as_str(), line.side), ("[fd77::1]:6379", side));
        }
        load.assert_counted(&lines, side);
        if side == Side::Server {
            let ends = lines[0].connection.as_deref().unwrap_or_default();
            assert!(ends.starts_with("[fd77::1]:6379 -> [fd77::2]:"), "{ends}");
        }
    }
}

#[test]
fn per_connection_lines_add_up_to_the_service() {
    const TIMES: [u32; 2] = [500, 1500];
    let stage = Stage::build("percon");
    let _redis = stage.redis();
    let service = Watch::host(&stage.hosts.server, PORT, &[]);
    let each = Watch::host(&stage.hosts.server, PORT, &["--per-connection"]);
    let mut streams = [0, 1].map(|_| stage.connect(stage.redis_address()));
    let since = now_ns();
    ask_on(&mut streams, &TIMES);

    let whole = counted(&service, Side::Server, since, TIMES.iter().sum());
    assert!(whole.iter().all(|l| l.connection.is_none()), "{whole:#?}");
    let each_lines = counted(&each, Side::Server, since, TIMES.iter().sum());
    let mut by_connection: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in &each_lines {
        let ends = line.connection.as_deref().expect("`connection` is set");
        by_connection.entry(ends).or_default().push(line);
        assert_eq!(line.connections, 1, "{line:?}");
        assert_eq!(line.service, "10.77.0.1:6379");
    }
    assert_eq!(by_connection.len(), 2, "{each_lines:#?}");
    for (stream, times) in streams.iter().zip(TIMES) {
        let client = stream.local_addr().expect("connected");
        let lines = &by_connection[format!("10.77.0.1:6379 -> {client}").as_str()];
        assert!(count(lines, times, 1), "{times} asked: {lines:#?}");
    }
    service.finish();
    each.finish();
}
