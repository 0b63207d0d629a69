//! Whole requests through two model endpoints: what the estimators say against what happened.

use batchwise_core::sense::estimate::is_two_sided;
use batchwise_core::sense::report::{Estimator, Side, Unit, View};
use batchwise_core::sense::sample::{Flow, Sample};
use batchwise_core::sense::service::ServiceSum;
use batchwise_core::sense::wire::{ITEMS, Item, QUEUES, Queue, Tuple};
use batchwise_reference::{Endpoint, MARKS, Segment, SockView};

const US: u64 = 1_000;

/// One end of a model connection: the endpoint under test and the socket it watches.
struct Host {
    endpoint: Endpoint,
    view: SockView,
    una: u32,
}

impl Host {
    fn new() -> Self {
        let view = SockView::default();
        Self {
            endpoint: Endpoint::new(0, &view, 0),
            view,
            una: 0,
        }
    }

    fn send(&mut self, at: u64, bytes: u32) {
        self.endpoint
            .on_send(at, &self.view, self.view.write_seq + bytes, false, 1448);
        self.view.write_seq += bytes;
    }

    /// Everything the peer has sent and acknowledged arrives.
    fn receive(&mut self, at: u64, from: &Host, push: bool) {
        let s = Segment {
            seq: self.view.rcv_nxt,
            end: from.view.write_seq,
            ack: from.view.rcv_wup,
            push,
            segs: 1,
        };
        self.endpoint.on_segment(at, &self.view, &s);
        self.view.rcv_nxt = from.view.write_seq;
        self.una = from.view.rcv_wup;
    }

    fn read(&mut self, at: u64) {
        self.view.copied_seq = self.view.rcv_nxt;
        self.endpoint.on_read(at, &self.view);
    }

    /// A segment leaves, and with it the acknowledgment of all that was received.
    fn transmit(&mut self, at: u64) {
        self.view.rcv_wup = self.view.rcv_nxt;
        self.view.last_tx = at;
    }

    /// With the ACK that has left, but that no event has noticed yet.
    fn settled(&self, at: u64) -> Endpoint {
        let mut e = self.endpoint.clone();
        e.on_read(at, &self.view);
        e
    }

    fn sample(&self, at: u64, peer: Option<&Host>, earlier: &Sample) -> Sample {
        let mut s = Sample {
            at,
            ..Sample::birth(0)
        };
        s.peer = earlier.peer;
        s.overlaps = self.endpoint.overlaps();
        let (here, there) = (self.settled(at), peer.map(|p| p.settled(at)));
        for item in ITEMS {
            for queue in QUEUES {
                s.local[item as usize][queue as usize] = *here.queue(item, queue);
                if let Some(there) = &there {
                    let q = there.queue(item, queue);
                    let q = if queue == Queue::AckDelay {
                        *q
                    } else {
                        q.at(at)
                    };
                    s.peer[item as usize][queue as usize].add(&Tuple::new(item, queue, &q));
                }
            }
        }
        s
    }
}

/// Stages of one request, ns.
#[derive(Clone, Copy)]
struct Stay {
    to_server: u64,
    unread_server: u64,
    turnaround: u64,
    to_client: u64,
    unread_client: u64,
}

impl Stay {
    fn total(&self) -> u64 {
        self.network() + self.turnaround
    }

    fn network(&self) -> u64 {
        self.to_server + self.unread_server + self.to_client + self.unread_client
    }
}

/// `n` requests one after the other, 1 ms apart, each carrying the ACK of the last response.
fn converse(n: u64, stay: Stay) -> (Host, Host, u64) {
    let (mut client, mut server) = (Host::new(), Host::new());
    let mut t = 0;
    for i in 0..n {
        t = (i + 1) * 1_000 * US;
        client.send(t, 64);
        client.transmit(t);
        t += stay.to_server;
        server.receive(t, &client, true);
        t += stay.unread_server;
        server.read(t);
        t += stay.turnaround;
        server.send(t, 5);
        server.transmit(t);
        t += stay.to_client;
        client.receive(t, &server, true);
        t += stay.unread_client;
        client.read(t);
    }
    // the last response's ACK, by the client's delayed-ACK timer
    t += 40_000 * US;
    client.transmit(t);
    server.receive(t + stay.to_server, &client, false);
    (client, server, t + 50_000 * US)
}

fn flows(n: u64, stay: Stay, exchange: bool) -> (Flow, Flow, u64) {
    let (client, server, end) = converse(n, stay);
    let birth = Sample::birth(0);
    let c = client
        .sample(end, exchange.then_some(&server), &birth)
        .since(&birth);
    let s = server
        .sample(end, exchange.then_some(&client), &birth)
        .since(&birth);
    (c, s, end)
}

fn estimate(
    flow: &Flow,
    unit: Unit,
    side: Side,
    end: u64,
) -> batchwise_core::sense::estimate::Estimate {
    let mut sum = ServiceSum::new(unit, side);
    sum.add(flow, end);
    sum.estimate(end)
}

const STAY: Stay = Stay {
    to_server: 8 * US,
    unread_server: 5 * US,
    turnaround: 11 * US,
    to_client: 9 * US,
    unread_client: 3 * US,
};

fn close(got: Option<u64>, want: u64, within: f64) {
    let got = got.expect("known") as f64;
    assert!(
        (got - want as f64).abs() <= want as f64 * within,
        "{got} is not {want}"
    );
}

#[test]
fn a_client_sees_the_total_that_its_requests_took() {
    let (client, _, end) = flows(100, STAY, true);
    for unit in [Unit::Sends, Unit::Bytes, Unit::Packets] {
        let e = estimate(&client, unit, Side::Client, end);
        assert_eq!(e.estimator, Estimator::TwoSided);
        close(e.latency.network, STAY.network(), 0.01);
        close(e.latency.turnaround, STAY.turnaround, 0.01);
        close(e.latency.total, STAY.total(), 0.01);
    }
}

#[test]
fn a_server_takes_the_clients_view_when_the_client_waits_longer() {
    let (_, server, end) = flows(100, STAY, true);
    let e = estimate(&server, Unit::Sends, Side::Server, end);
    assert_eq!(e.estimator, Estimator::TwoSided);
    close(e.latency.total, STAY.total(), 0.02);
    close(e.stages.unread_local, STAY.unread_server, 0.01);
    close(e.stages.unread_remote, STAY.unread_client, 0.01);
}

#[test]
fn both_ends_count_the_same_requests() {
    let (client, server, end) = flows(100, STAY, true);
    let seconds = end as f64 / 1e9;
    for (flow, side) in [(&client, Side::Client), (&server, Side::Server)] {
        let e = estimate(flow, Unit::Sends, side, end);
        assert!(
            (e.throughput * seconds - 100.0).abs() < 0.5,
            "{}",
            e.throughput
        );
    }
}

#[test]
fn a_delayed_ack_does_not_count_as_latency() {
    let mut stay = STAY;
    stay.turnaround = 100 * US;
    let (client, server, end) = flows(1, stay, true);
    for (flow, side) in [(&client, Side::Client), (&server, Side::Server)] {
        let e = estimate(flow, Unit::Sends, side, end);
        // although the last response waited 40 ms for its ACK
        close(e.latency.total, stay.total(), 0.05);
    }
}

#[test]
fn without_a_peer_a_server_is_local_and_says_what_it_does_not_know() {
    let (_, server, end) = flows(100, STAY, false);
    let e = estimate(&server, Unit::Sends, Side::Server, end);
    assert_eq!((e.estimator, e.view), (Estimator::Local, None));
    close(e.latency.turnaround, STAY.turnaround, 0.01);
    assert_eq!(
        (e.stages.unread_remote, e.stages.ackdelay_remote),
        (None, None)
    );
    assert!(e.confidence < 0.5);
}

#[test]
fn without_a_peer_a_client_gives_a_total_that_it_cannot_split() {
    let (client, _, end) = flows(100, STAY, false);
    let e = estimate(&client, Unit::Sends, Side::Client, end);
    assert_eq!(e.estimator, Estimator::Local);
    assert_eq!((e.latency.network, e.latency.turnaround), (None, None));
    close(e.latency.total, STAY.total(), 0.01);
}

#[test]
fn an_idle_service_has_no_latency() {
    let birth = Sample::birth(0);
    let idle = Sample {
        at: 1_000_000_000,
        ..birth
    }
    .since(&birth);
    for side in [Side::Server, Side::Client] {
        let e = estimate(&idle, Unit::Sends, side, 1_000_000_000);
        assert_eq!(e.latency.total, None);
        assert_eq!(e.throughput, 0.0);
        assert_eq!(e.confidence, 0.0);
    }
}

#[test]
fn a_lying_peer_is_not_believed() {
    let (client, _, end) = flows(100, STAY, true);
    assert!(is_two_sided(&client, Unit::Sends, Side::Client, end));
    let lies: [fn(&mut Flow); 3] = [
        |f| f.peer[Item::Calls as usize][Queue::Unread as usize].total = u64::MAX,
        |f| f.peer[Item::Calls as usize][Queue::Turnaround as usize].integral = u64::MAX,
        |f| f.peer[Item::Bytes as usize][Queue::AckDelay as usize].time = u64::MAX,
    ];
    for lie in lies {
        let mut flow = client;
        lie(&mut flow);
        let e = estimate(&flow, Unit::Sends, Side::Client, end);
        assert_eq!(e.estimator, Estimator::Local);
    }
}

#[test]
fn an_ack_delay_longer_than_the_wait_for_it_gives_no_negative_latency() {
    let (mut client, _, end) = flows(100, STAY, true);
    client.peer[Item::Calls as usize][Queue::AckDelay as usize].integral *= 1_000;
    let e = estimate(&client, Unit::Sends, Side::Client, end);
    close(e.latency.network, STAY.network(), 1.0);
}

#[test]
fn a_peer_that_falls_silent_makes_the_estimate_local() {
    let (client, server, end) = converse(50, STAY);
    let birth = Sample::birth(0);
    let heard = client.sample(end, Some(&server), &birth);
    let later = Sample {
        at: end + 1_000 * US,
        ..heard
    };
    assert!(is_two_sided(
        &heard.since(&birth),
        Unit::Sends,
        Side::Client,
        end
    ));
    assert!(!is_two_sided(
        &later.since(&heard),
        Unit::Sends,
        Side::Client,
        1_000 * US
    ));
}

#[test]
fn requests_that_nagle_coalesced_weigh_as_many_as_they_are() {
    // Ten calls in one segment that waits 100 µs at the server, then one alone that waits 1 µs.
    let (mut client, mut server) = (Host::new(), Host::new());
    for i in 0..10 {
        client.send(1_000 * US + i, 64);
    }
    client.transmit(1_010 * US);
    server.receive(1_010 * US, &client, true);
    server.read(1_110 * US);
    server.send(1_120 * US, 50);
    server.transmit(1_120 * US);
    client.receive(1_130 * US, &server, true);
    client.read(1_131 * US);
    client.send(2_000 * US, 64);
    client.transmit(2_000 * US);
    server.receive(2_010 * US, &client, true);
    server.read(2_011 * US);
    server.send(2_021 * US, 5);
    server.transmit(2_021 * US);
    client.receive(2_030 * US, &server, true);
    client.read(2_031 * US);
    let birth = Sample::birth(0);
    let flow = client
        .sample(3_000 * US, Some(&server), &birth)
        .since(&birth);
    let e = estimate(&flow, Unit::Sends, Side::Client, 3_000 * US);
    // by calls alone the two segments would weigh alike: 50.5 µs
    let per_request = (10.0 * 100.0 + 1.0) / 11.0;
    let unread = e.stages.unread_remote.unwrap() as f64 / 1e3;
    assert!(
        (unread - per_request).abs() < 10.0,
        "{unread} is not {per_request}"
    );
}

#[test]
fn a_service_weighs_every_request_alike() {
    let slow = Stay {
        turnaround: 1_000 * US,
        ..STAY
    };
    let (a, _, end) = flows(300, STAY, true);
    let (b, _, _) = flows(100, slow, true);
    let mut sum = ServiceSum::new(Unit::Sends, Side::Client);
    sum.add(&a, end);
    sum.add(&b, end);
    let e = sum.estimate(end);
    close(
        e.latency.turnaround,
        (300 * STAY.turnaround + 100 * slow.turnaround) / 400,
        0.01,
    );
}

#[test]
fn a_service_is_local_when_most_of_its_traffic_is() {
    let (with, _, end) = flows(10, STAY, true);
    let (without, _, _) = flows(100, STAY, false);
    let mut sum = ServiceSum::new(Unit::Sends, Side::Client);
    sum.add(&with, end);
    sum.add(&without, end);
    assert_eq!(sum.estimate(end).estimator, Estimator::Local);
}

#[test]
fn a_server_that_works_on_several_requests_at_once_is_trusted_less() {
    let (_, mut server, end) = flows(100, STAY, true);
    let alone = estimate(&server, Unit::Sends, Side::Server, end).confidence;
    server.overlaps = 100;
    let overlapping = estimate(&server, Unit::Sends, Side::Server, end).confidence;
    assert!(overlapping < 0.6 * alone);
}

#[test]
fn the_view_is_that_of_the_end_that_waits_longer() {
    // the client's Nagle holds requests back: only the client's unacked queue shows it
    let (mut client, mut server, end) = flows(100, STAY, true);
    for item in [Item::Calls, Item::Bytes] {
        let (i, q) = (item as usize, Queue::Unacked as usize);
        let held = client.local[i][q].total * 50 * US;
        client.local[i][q].integral += held;
        server.peer[i][q].integral += held;
    }
    let c = estimate(&client, Unit::Sends, Side::Client, end);
    let s = estimate(&server, Unit::Sends, Side::Server, end);
    assert_eq!((c.view, s.view), (Some(View::Local), Some(View::Remote)));
    close(c.latency.total, STAY.total() + 50 * US, 0.01);
    close(s.latency.total, STAY.total() + 50 * US, 0.02);
}

#[test]
fn a_full_list_of_marks_delays_items_but_loses_none() {
    let mut client = Host::new();
    let n = 3 * MARKS as u32;
    for i in 0..n {
        client.send(u64::from(i), 10);
    }
    let ack = Segment {
        ack: n * 10,
        ..Segment::default()
    };
    client.endpoint.on_segment(1_000, &client.view, &ack);
    let q = client.endpoint.queue(Item::Calls, Queue::Unacked);
    assert_eq!((q.size, q.total), (0, u64::from(n)));
}

#[test]
fn a_call_that_was_taken_in_parts_is_one_call() {
    let mut client = Host::new();
    // 100 bytes offered, 30 taken; the application comes again with the other 70
    client
        .endpoint
        .on_send(1_000, &client.view, 100, false, 1448);
    client.view.write_seq = 30;
    client
        .endpoint
        .on_send(2_000, &client.view, 100, false, 1448);
    // and again with less than it first wanted to send
    client
        .endpoint
        .on_send(3_000, &client.view, 90, false, 1448);
    client.view.write_seq = 90;
    let ack = Segment {
        ack: 90,
        ..Segment::default()
    };
    client.endpoint.on_segment(5_000, &client.view, &ack);
    let calls = client.endpoint.queue(Item::Calls, Queue::Unacked);
    assert_eq!((calls.size, calls.total, calls.integral), (0, 1, 4_000));
    let bytes = client.endpoint.queue(Item::Bytes, Queue::Unacked);
    assert_eq!((bytes.size, bytes.total), (0, 90));
}

#[test]
fn what_was_queued_before_counting_began_is_one_call() {
    let view = SockView {
        write_seq: 500,
        rcv_nxt: 900,
        copied_seq: 700,
        rcv_wup: 900,
        last_tx: 0,
    };
    let mut e = Endpoint::new(0, &view, 300);
    let size = |e: &Endpoint, q| e.queue(Item::Bytes, q).size;
    assert_eq!(
        (size(&e, Queue::Unacked), size(&e, Queue::Unread)),
        (200, 200)
    );
    e.on_read(
        10,
        &SockView {
            copied_seq: 900,
            ..view
        },
    );
    e.on_segment(
        20,
        &view,
        &Segment {
            seq: 900,
            end: 900,
            ack: 500,
            ..Segment::default()
        },
    );
    assert_eq!((size(&e, Queue::Unacked), size(&e, Queue::Unread)), (0, 0));
    assert_eq!(e.queue(Item::Calls, Queue::Unread).total, 1);
}

#[test]
fn segments_that_no_hook_showed_are_caught_up_with() {
    let mut server = Host::new();
    let mut client = Host::new();
    client.send(0, 64);
    server.receive(1_000, &client, true);
    // out-of-order data became in order without passing the hook
    server.view.rcv_nxt = 300;
    server.view.copied_seq = 300;
    server.endpoint.on_read(5_000, &server.view);
    let q = server.endpoint.queue(Item::Bytes, Queue::Unread);
    assert_eq!((q.size, q.total), (0, 300));
}
