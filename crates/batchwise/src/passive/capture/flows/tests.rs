//! What packets do to flows.

use std::net::SocketAddr;

use batchwise_core::passive::Transport;

use super::super::frame::Tcp;
use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const BEGIN: u64 = 1_760_000_000 * SECOND;

fn settings() -> Settings {
    Settings {
        params: Params::default(),
        paper: None,
        flows: NonZeroUsize::new(1_000).expect("not 0"),
        udp_acks: 0,
        forget_ns: 30 * SECOND,
    }
}

/// A client with one request under way at a time.
struct Client {
    port: u16,
    sequence: u32,
    acknowledged: u32,
}

impl Client {
    fn new(port: u16) -> Self {
        Self {
            port,
            sequence: u32::MAX - 500, // wraps soon
            acknowledged: 1,
        }
    }

    fn segment(&self, payload: u32) -> Segment {
        Segment {
            from: SocketAddr::from(([10, 0, 0, 2], self.port)),
            to: SocketAddr::from(([10, 0, 0, 1], 80)),
            ip_length: 40 + payload,
            payload,
            tcp: Some(Tcp {
                sequence: self.sequence,
                acknowledged: self.acknowledged,
                syn: false,
                ack: true,
                fin: false,
                rst: false,
            }),
        }
    }

    /// The next request, after an answer.
    fn request(&mut self) -> Frame {
        let segment = self.segment(100);
        self.sequence = self.sequence.wrapping_add(100);
        self.acknowledged = self.acknowledged.wrapping_add(1_000);
        Frame::Segment(segment)
    }

    fn with(&self, payload: u32, change: impl FnOnce(&mut Tcp)) -> Frame {
        let mut segment = self.segment(payload);
        if let Some(tcp) = &mut segment.tcp {
            change(tcp);
        }
        Frame::Segment(segment)
    }
}

#[test]
fn a_client_that_waits_for_each_answer_gives_the_time_of_answers() {
    let (mut flows, mut client) = (Flows::new(settings(), vec![80]), Client::new(40_000));
    for n in 0..=300 {
        flows.packet(BEGIN + n * 5 * MS, &client.request());
    }
    flows.finish(BEGIN + 2 * SECOND);
    let epochs = flows.closed();
    assert_eq!(epochs.len(), 2);
    for epoch in &epochs {
        assert_eq!(epoch.estimate.latency, Some(5 * MS));
    }
    assert_eq!(epochs[0].start, BEGIN);
    assert_eq!(epochs[0].end, BEGIN + SECOND);
    assert_eq!(epochs.iter().map(|e| e.estimate.batches).sum::<u32>(), 300);
}

#[test]
fn every_packet_is_counted_as_what_it_is() {
    let (mut flows, mut client) = (Flows::new(settings(), vec![80]), Client::new(40_000));
    let answer = |frame: Frame| match frame {
        Frame::Segment(s) => Frame::Segment(Segment {
            from: s.to,
            to: s.from,
            ..s
        }),
        other => other,
    };
    let frames = [
        client.request(),
        client.with(0, |_| {}),
        client.with(0, |tcp| tcp.fin = true),
        answer(client.request()),
        Frame::Fragment,
        Frame::Other,
        Frame::Malformed,
    ];
    for frame in frames {
        flows.packet(BEGIN, &frame);
    }
    let totals = flows.totals(7);
    assert_eq!((totals.ts_ns, totals.packets), (7, 7));
    assert_eq!((totals.measured, totals.acks), (1, 2));
    assert_eq!(
        (totals.fragments, totals.other, totals.malformed),
        (1, 2, 1)
    );
    assert_eq!((totals.flows_live, totals.flows_capacity), (0, 1_000));
}

#[test]
fn an_end_or_a_new_opening_closes_the_epoch_and_begins_another_flow() {
    type Change = fn(&mut Tcp);
    let ends: [Change; 3] = [
        |t| t.fin = true,
        |t| t.rst = true,
        |t| {
            (t.syn, t.ack) = (true, false);
        },
    ];
    for end in ends {
        let (mut flows, mut client) = (Flows::new(settings(), vec![]), Client::new(40_000));
        for n in 0..10 {
            flows.packet(BEGIN + n * MS, &client.request());
        }
        assert!(flows.closed().is_empty());
        flows.packet(BEGIN + 10 * MS, &client.with(0, end));
        assert_eq!(flows.closed().len(), 1);
        assert_eq!(flows.totals(0).flows_live, 0);
    }
}

#[test]
fn a_packet_that_comes_again_is_no_answer() {
    let (mut flows, mut client) = (Flows::new(settings(), vec![]), Client::new(40_000));
    flows.packet(BEGIN, &client.request());
    let again = client.request();
    for n in 1..5 {
        flows.packet(BEGIN + n * 300 * MS, &again);
    }
    flows.finish(BEGIN + 2 * SECOND);
    let epoch = flows.closed()[0];
    assert_eq!(epoch.gaps.resent, 3);
    assert_eq!(epoch.estimate.gaps, 4);
}

#[test]
fn idle_flows_are_closed_by_the_sweep_and_forgotten_later() {
    let (mut flows, mut client) = (Flows::new(settings(), vec![]), Client::new(40_000));
    for n in 0..10 {
        flows.packet(BEGIN + n * MS, &client.request());
    }
    flows.sweep(BEGIN + 100 * MS);
    assert!(flows.closed().is_empty(), "not idle yet");
    flows.sweep(BEGIN + 300 * MS);
    assert_eq!(flows.closed().len(), 1);
    flows.sweep(BEGIN + SECOND);
    assert!(flows.closed().is_empty(), "nothing new");
    assert_eq!(flows.totals(0).flows_live, 1);
    flows.sweep(BEGIN + 31 * SECOND);
    assert_eq!(flows.totals(0).flows_live, 0);
}

#[test]
fn the_least_recently_used_flow_gives_way() {
    let mut settings = settings();
    settings.flows = NonZeroUsize::new(2).expect("not 0");
    let mut flows = Flows::new(settings, vec![]);
    let mut clients = [1, 2, 3].map(|n| Client::new(40_000 + n));
    for index in [0, 1, 0, 1, 0, 2] {
        flows.packet(BEGIN, &clients[index].request());
    }
    let totals = flows.totals(0);
    assert_eq!((totals.evicted, totals.flows_live, totals.born), (1, 2, 2));
    let closed = flows.closed();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0].tuple.map(|t| t.client.port()), Some(40_002));
}

#[test]
fn small_datagrams_are_acknowledgments_where_that_is_said() {
    let mut settings = settings();
    settings.udp_acks = 40;
    let mut flows = Flows::new(settings, vec![80]);
    for payload in [40, 41] {
        let segment = Segment {
            tcp: None,
            ..Client::new(40_000).segment(payload)
        };
        assert_eq!(segment.transport(), Transport::Udp);
        flows.packet(BEGIN, &Frame::Segment(segment));
    }
    let totals = flows.totals(0);
    assert_eq!((totals.acks, totals.measured), (1, 1));
}

#[test]
fn the_papers_algorithm_can_be_asked_and_shows_its_modes() {
    let mut settings = settings();
    settings.paper = Some(10_000);
    let (mut flows, mut client) = (Flows::new(settings, vec![]), Client::new(40_000));
    for n in 0..100 {
        flows.packet(BEGIN + n * 2 * MS, &client.request());
    }
    flows.finish(BEGIN + SECOND);
    let epoch = flows.closed()[0];
    assert_eq!(epoch.estimate.latency, Some(2 * MS));
    assert_eq!(epoch.gaps.modes().len(), 1);
    assert_eq!(epoch.gaps.modes()[0].count, 99);
}

#[test]
fn time_that_steps_back_is_as_if_it_stood_still() {
    let (mut flows, mut client) = (Flows::new(settings(), vec![]), Client::new(40_000));
    for now in [BEGIN, BEGIN - SECOND, BEGIN + MS, 0, u64::MAX / 2] {
        flows.packet(now, &client.request());
        flows.sweep(now);
    }
    flows.finish(BEGIN);
    assert_eq!(flows.totals(0).measured, 5);
}

proptest::proptest! {
    #[test]
    fn whatever_packets_come_each_is_counted_once_and_every_epoch_is_sound(
        packets in proptest::collection::vec(
            (0u64..3 * SECOND, 0u16..6, proptest::num::u32::ANY, 0u32..70_000, 0u8..16),
            1..200,
        ),
        paper: bool,
    ) {
        let mut settings = settings();
        settings.paper = paper.then_some(10_000);
        settings.flows = NonZeroUsize::new(3).expect("not 0");
        let mut flows = Flows::new(settings, vec![]);
        let mut now = BEGIN;
        for (index, (later, port, number, payload, flags)) in packets.iter().enumerate() {
            now += later;
            let mut segment = Client::new(40_000 + port).segment(*payload);
            segment.tcp = (flags & 8 == 0).then_some(Tcp {
                sequence: *number,
                acknowledged: number.rotate_left(16),
                syn: flags & 1 != 0,
                ack: flags & 2 != 0,
                fin: flags & 4 != 0,
                rst: flags & 6 == 6,
            });
            flows.packet(now, &Frame::Segment(segment));
            if index % 7 == 0 {
                flows.sweep(now);
            }
        }
        let totals = flows.totals(now);
        let fates = totals.measured + totals.acks + totals.other;
        proptest::prop_assert_eq!(totals.packets, packets.len() as u64);
        proptest::prop_assert_eq!(fates, totals.packets);
        proptest::prop_assert!(totals.flows_live <= 3);
        flows.finish(now);
        for epoch in flows.closed() {
            proptest::prop_assert!(epoch.start <= epoch.end);
            proptest::prop_assert!(epoch.estimate.confidence <= 1000);
            proptest::prop_assert!(epoch.estimate.batches <= epoch.estimate.gaps);
        }
    }
}
