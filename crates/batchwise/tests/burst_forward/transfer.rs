//! TCP through the forwarder: whole, at the rate, within the limit; and what is left behind.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use batchwise_testbed::stage::{PATIENCE, connect, programs_of, until_freed};
use batchwise_testbed::topology::SERVER_IP;
use nix::sys::signal::Signal;

use crate::{Place, number};

/// Bytes that are sent.
const SIZE: usize = 2 << 20;

/// A byte stream in which every place is different for 64 KiB.
fn pattern() -> Vec<u8> {
    (0..SIZE as u32).map(|i| (i >> 8 ^ i) as u8).collect()
}

impl Place {
    /// Sends the pattern from the client to the server: how long it takes until all is there.
    fn transfer(&self) -> Duration {
        let hosts = &self.around.hosts;
        let listener = hosts
            .server
            .inside(|| Ok(TcpListener::bind((SERVER_IP, 0))?));
        let listener = listener.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let begin = Instant::now();
        let mut stream = connect(&hosts.client, address);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                stream.write_all(&pattern()).expect("all is sent");
            });
            let (mut peer, _) = listener.accept().expect("a connection");
            peer.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let mut got = Vec::new();
            peer.read_to_end(&mut got).expect("all is received");
            assert!(got == pattern(), "what arrived is not what was sent");
        });
        begin.elapsed()
    }
}

fn all_of(name: &str, admit: &str, limit: &str) {
    let mut place = Place::build(name, "20mbit", limit, admit);
    let took = place.transfer();
    let (line, _) = place.end();
    // what is still on the link at the end, and what the service may make up for, is a few packets
    let carried = took.as_secs_f64() * 20e6 / 8.0 + 10.0 * 1518.0;
    assert!(
        SIZE as f64 <= carried,
        "{SIZE} bytes in {took:?}: faster than the rate"
    );
    assert!(number(&line, "forwarded_bytes") >= SIZE as u64, "{line}");
    assert!(number(&line, "returned") > 0, "{line}");
    for lost in [
        "lost_ring_full",
        "lost_no_frame",
        "lost_other",
        "return_dropped",
    ] {
        assert_eq!(number(&line, lost), 0, "{lost} in {line}");
    }
    assert!(number(&line, "highest_packets") > 1, "{line}");
    match limit.strip_suffix("kb") {
        None => assert!(number(&line, "highest_packets") <= 30, "{line}"),
        Some(_) => assert!(number(&line, "highest_bytes") <= 40 * 1024, "{line}"),
    }
}

#[test]
fn drop_tail_in_packets_carries_tcp_whole_at_the_rate_within_the_limit() {
    all_of("bf-off", "off", "30p");
}

#[test]
fn drop_tail_in_bytes_does_so() {
    all_of("bf-bytes", "off", "40kb");
}

#[test]
fn admission_of_bursts_does_so() {
    all_of("bf-bursts", "bursts", "30p");
    all_of("bf-bursts", "bursts", "40kb");
}

#[test]
fn the_published_algorithm_does_so_with_room_for_its_longest_burst() {
    let mut place = Place::build("bf-published", "20mbit", "100p", "published");
    place.transfer();
    let (line, _) = place.end();
    // it holds every packet against the longest super-packet, so the last 64 places stay empty
    assert!(number(&line, "highest_packets") <= 100 - 64 + 1, "{line}");
}

#[test]
fn nothing_is_left_of_a_forwarder_that_is_killed() {
    let mut place = Place::build("bf-killed", "20mbit", "30p", "bursts");
    let programs = programs_of(place.forwarder.pid());
    assert!(!programs.is_empty());
    let status = place.forwarder.end(Signal::SIGKILL, PATIENCE);
    assert!(!status.expect("it ends").success());
    until_freed(&programs);
}

#[test]
fn nothing_is_left_of_a_forwarder_that_ends() {
    let mut place = Place::build("bf-ends", "20mbit", "30p", "bursts");
    let programs = programs_of(place.forwarder.pid());
    place.end();
    until_freed(&programs);
}
