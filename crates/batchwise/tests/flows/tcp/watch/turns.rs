//! Where a send is not a request: the lines of both ends against what the client measured.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use batchwise_core::sense::report::{Line, Side};
use batchwise_testbed::stage::{Stage, connect, listen, watch::Watch};

const PORT: u16 = 17021;

/// A client and the server's end of its connection, and a watcher of both.
fn connected(stage: &Stage) -> (TcpStream, TcpStream, Watch) {
    let address = stage.hosts.server_address(PORT);
    let listener = listen(&stage.hosts.server, address);
    let watch = Watch::start(&stage.hosts.server, PORT, None, &[]);
    let client = connect(&stage.hosts.client, address);
    let (server, _) = listener.accept().expect("the client");
    client.set_nodelay(true).expect("TCP_NODELAY");
    (client, server, watch)
}

/// Lines of a side in which requests passed, after the first: that may be of a part of the load.
fn told(lines: &[Line], side: Side) -> Vec<Line> {
    let mine = lines
        .iter()
        .filter(|l| l.side == side && l.throughput_per_s > 0.0);
    mine.skip(1).cloned().collect()
}

fn median(lines: &[Line], of: impl Fn(&Line) -> Option<u64>) -> f64 {
    let mut values: Vec<_> = lines.iter().map(of).collect();
    values.sort_unstable();
    values[values.len() / 2].expect("messages passed") as f64
}

/// As many of both sides.
fn enough(watch: &Watch) -> Vec<Line> {
    watch.until("lines of both ends", 0, |lines| {
        [Side::Client, Side::Server]
            .iter()
            .all(|&side| told(lines, side).len() > 3)
    })
}

#[test]
fn a_second_small_write_that_waits_for_a_delayed_ack_is_in_the_latency_of_both_ends() {
    let stage = Stage::build("stall");
    let (mut client, mut server, watch) = connected(&stage);
    // the server leaves Nagle's algorithm on
    let answers = std::thread::spawn(move || {
        let mut request = [0; 50];
        while server.read_exact(&mut request).is_ok() {
            for part in [[b'a'; 10], [b'b'; 10]] {
                server.write_all(&part).expect("sent");
            }
        }
    });
    let (mut times, began) = (Vec::new(), Instant::now());
    while began.elapsed() < Duration::from_secs(4) {
        let since = Instant::now();
        client.write_all(&[b'x'; 50]).expect("sent");
        client.read_exact(&mut [0; 20]).expect("the answer");
        times.push(since.elapsed());
    }
    let lines = enough(&watch);
    watch.finish();
    drop(client);
    answers.join().expect("the server ends");

    times.sort_unstable();
    let truth = times[times.len() / 2].as_nanos() as f64;
    assert!(truth > 20e6, "it does not stall here: {truth} ns");
    for side in [Side::Client, Side::Server] {
        let total = median(&told(&lines, side), |line| line.latency_ns.total);
        assert!(
            (total / truth - 1.0).abs() < 0.1,
            "{side:?}: {total} of {truth} ns"
        );
    }
    // a line counts some seven messages, and one that is held across its edge is a seventh of them
    let held = median(&told(&lines, Side::Server), |line| {
        line.stages_ns.held_by_nagle
    });
    assert!((held / truth - 1.0).abs() < 0.1, "{held} of {truth} ns");
}

#[test]
fn a_request_that_nobody_answers_is_under_way_at_both_ends_for_as_long_as_it_is() {
    let stage = Stage::build("hang");
    let (mut client, mut server, watch) = connected(&stage);
    for _ in 0..20 {
        client.write_all(&[b'x'; 50]).expect("sent");
        server.read_exact(&mut [0; 50]).expect("a request");
        std::thread::sleep(Duration::from_millis(20));
        server.write_all(&[b'a'; 20]).expect("sent");
        client.read_exact(&mut [0; 20]).expect("the answer");
    }
    let began = Instant::now();
    client.write_all(&[b'x'; 50]).expect("sent");
    server.read_exact(&mut [0; 50]).expect("a request");
    let hangs = |line: &&Line| line.oldest_ns.is_some_and(|age| age > 1_000_000_000);
    let lines = watch.until("lines of both ends", 0, |lines| {
        [Side::Client, Side::Server]
            .iter()
            .all(|side| lines.iter().filter(hangs).any(|line| line.side == *side))
    });
    let waited = began.elapsed().as_nanos() as u64;
    watch.finish();
    for line in lines.iter().filter(hangs) {
        assert_eq!(line.under_way, Some(1), "{line:?}");
        assert!(line.oldest_ns < Some(waited), "{waited} ns: {line:?}");
        let said = line.why.as_deref() == Some("requests are not answered");
        assert!(said && line.tails_ns.p50.is_none(), "{line:?}");
    }
}

#[test]
fn requests_that_wait_for_each_other_at_a_server_are_timed_as_their_client_times_them_or_not_at_all()
 {
    const UNDER_WAY: usize = 4;
    let stage = Stage::build("serial");
    let (mut client, mut server, watch) = connected(&stage);
    server.set_nodelay(true).expect("TCP_NODELAY");
    let answers = std::thread::spawn(move || {
        let mut request = [0; 50];
        while server.read_exact(&mut request).is_ok() {
            std::thread::sleep(Duration::from_micros(500));
            if server.write_all(&[b'a'; 20]).is_err() {
                break;
            }
        }
    });
    let (mut sent, mut times, began) = (VecDeque::new(), Vec::new(), Instant::now());
    while began.elapsed() < Duration::from_secs(4) {
        while sent.len() < UNDER_WAY {
            client.write_all(&[b'x'; 50]).expect("sent");
            sent.push_back(Instant::now());
        }
        client.read_exact(&mut [0; 20]).expect("an answer");
        times.push(sent.pop_front().expect("it was asked for").elapsed());
    }
    let lines = enough(&watch);
    watch.finish();
    drop(client);
    answers.join().expect("the server ends");

    let truth = times.iter().sum::<Duration>().as_nanos() as f64 / times.len() as f64;
    let both = [Side::Client, Side::Server].map(|side| told(&lines, side));
    for line in both.concat() {
        let off = line
            .latency_ns
            .total
            .map(|ns| (ns as f64 / truth - 1.0).abs());
        let silent = off.is_none() && line.why.is_some() && line.confidence < 0.3;
        assert!(
            silent || off.is_some_and(|off| off < 0.1),
            "{truth} ns: {line:?}"
        );
    }
}
