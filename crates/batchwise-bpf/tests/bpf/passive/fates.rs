//! Which packets count, and as what.

use batchwise_bpf::passive::{Config, Counters};

use super::setup::{config, counters, pass, sensor};
use crate::frames::{
    self, ACK, FIN, QINQ, RST, SYN, Segment, TCP, UDP, VLAN, ethernet, ethernet_of, v4, v6,
};

#[test]
fn each_packet_meets_its_fate_and_passes_unchanged() {
    let data = Segment::default();
    let tcp = data.bytes();
    let with = |change: fn(&mut Segment)| {
        let mut s = data;
        change(&mut s);
        s.bytes()
    };
    let frame = |l4: &[u8]| ethernet(&[], &v4(TCP, 0, 0, l4));
    let edit = |at: usize, to: u8| {
        let mut f = frame(&tcp);
        f[at] = to;
        f
    };
    let udp = frames::udp(30);
    type Fate = fn(&Counters) -> u64;
    let measured: Fate = |c| c.measured;
    let acks: Fate = |c| c.acks;
    let fragments: Fate = |c| c.fragments;
    let other: Fate = |c| c.other;
    let malformed: Fate = |c| c.malformed;
    let table: Vec<(&str, Vec<u8>, Fate)> = vec![
        ("TCP over IPv4", frame(&tcp), measured),
        (
            "with IP options",
            ethernet(&[], &v4(TCP, 40, 0, &tcp)),
            measured,
        ),
        (
            "with padding",
            [frame(&tcp), vec![0; 30]].concat(),
            measured,
        ),
        (
            "don't fragment",
            ethernet(&[], &v4(TCP, 0, 0x4000, &tcp)),
            measured,
        ),
        (
            "UDP over IPv4",
            ethernet(&[], &v4(UDP, 0, 0, &udp)),
            measured,
        ),
        (
            "TCP over IPv6",
            ethernet(&[], &v6(&[], TCP, &tcp)),
            measured,
        ),
        (
            "UDP over IPv6",
            ethernet(&[], &v6(&[], UDP, &udp)),
            measured,
        ),
        (
            "a VLAN tag",
            ethernet(&[VLAN], &v4(TCP, 0, 0, &tcp)),
            measured,
        ),
        (
            "two VLAN tags",
            ethernet(&[QINQ, VLAN], &v6(&[], TCP, &tcp)),
            measured,
        ),
        (
            "extension headers",
            ethernet(&[], &v6(&[(0, 8), (60, 24), (43, 8)], TCP, &tcp)),
            measured,
        ),
        (
            "an authentication header",
            ethernet(&[], &v6(&[(51, 24)], TCP, &tcp)),
            measured,
        ),
        (
            "a fragment header of a whole",
            ethernet(&[], &v6(&[(44, 8)], TCP, &tcp)),
            measured,
        ),
        (
            "data with FIN",
            frame(&with(|s| s.flags = ACK | FIN)),
            measured,
        ),
        ("data with SYN", frame(&with(|s| s.flags = SYN)), measured),
        ("a pure ACK", frame(&with(|s| s.payload = 0)), acks),
        (
            "a SYN",
            frame(&with(|s| (s.flags, s.payload) = (SYN, 0))),
            acks,
        ),
        (
            "a FIN",
            frame(&with(|s| (s.flags, s.payload) = (ACK | FIN, 0))),
            acks,
        ),
        (
            "a RST",
            frame(&with(|s| (s.flags, s.payload) = (RST, 0))),
            acks,
        ),
        (
            "an empty datagram",
            ethernet(&[], &v4(UDP, 0, 0, &frames::udp(0))),
            acks,
        ),
        (
            "a SYN-ACK",
            frame(&with(|s| (s.flags, s.payload) = (SYN | ACK, 0))),
            other,
        ),
        (
            "a first fragment",
            ethernet(&[], &v4(TCP, 0, 0x2000, &tcp)),
            fragments,
        ),
        (
            "a last fragment",
            ethernet(&[], &v4(TCP, 0, 0x0010, &tcp)),
            fragments,
        ),
        (
            "an IPv6 fragment",
            {
                let mut f = ethernet(&[], &v6(&[(44, 8)], TCP, &tcp));
                f[14 + 40 + 3] = 1;
                f
            },
            fragments,
        ),
        ("ICMP", ethernet(&[], &v4(1, 0, 0, &tcp)), other),
        ("ARP", ethernet_of(&[], 0x0806, &[0; 28]), other),
        (
            "three VLAN tags",
            ethernet(&[QINQ, VLAN, VLAN], &v4(TCP, 0, 0, &tcp)),
            other,
        ),
        (
            "seven extension headers",
            ethernet(&[], &v6(&[(60, 8); 7], TCP, &tcp)),
            other,
        ),
        (
            "encrypted",
            ethernet(&[], &v6(&[(50, 16)], TCP, &tcp)),
            other,
        ),
        ("IPv4 of another version", edit(14, 0x55), malformed),
        ("a header that is too short", edit(14, 0x44), malformed),
        ("longer than the frame", edit(16, 0x10), malformed),
        (
            "a TCP header that is too short",
            edit(14 + 20 + 12, 0x40),
            malformed,
        ),
        (
            "a TCP header longer than the packet",
            {
                let mut s = data;
                s.payload = 0;
                let mut f = frame(&s.bytes());
                f[14 + 20 + 12] = 0xf0;
                f
            },
            malformed,
        ),
        (
            "a datagram longer than its packet",
            {
                let mut f = ethernet(&[], &v4(UDP, 0, 0, &udp));
                f[14 + 20 + 4] = 1;
                f
            },
            malformed,
        ),
    ];
    let sensor = sensor(config());
    for (name, frame, fate) in table {
        let before = counters(&sensor);
        pass(sensor.program(), &frame);
        let after = counters(&sensor);
        assert_eq!(after.packets, before.packets + 1, "{name}");
        assert_eq!(fate(&after), fate(&before) + 1, "{name}: {after:?}");
    }
}

#[test]
fn a_packet_that_was_cut_anywhere_is_malformed_and_passes_unchanged() {
    let sensor = sensor(config());
    let mut cut = 0;
    for frame in frames::kinds() {
        for len in 14..frame.len() {
            pass(sensor.program(), &frame[..len]);
            cut += 1;
        }
    }
    let c = counters(&sensor);
    assert_eq!((c.measured, c.acks), (0, 0), "{c:?}");
    assert_eq!(c.packets, cut);
}

#[test]
fn only_packets_to_the_ports_asked_for_count() {
    let sensor = sensor(Config {
        ports: vec![443, 65_535],
        ..config()
    });
    for (port, measured) in [(80_u16, 0), (443, 1), (442, 1), (65_535, 2), (0, 2)] {
        let mut frame = ethernet(&[], &v4(UDP, 0, 0, &frames::udp(30)));
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        pass(sensor.program(), &frame);
        assert_eq!(counters(&sensor).measured, measured, "port {port}");
    }
    assert_eq!(counters(&sensor).other, 3);
}

#[test]
fn small_datagrams_can_be_taken_for_acknowledgments() {
    let sensor = sensor(Config {
        udp_acks: 50,
        ..config()
    });
    for payload in [50, 51] {
        pass(
            sensor.program(),
            &ethernet(&[], &v4(UDP, 0, 0, &frames::udp(payload))),
        );
    }
    let c = counters(&sensor);
    assert_eq!((c.acks, c.measured), (1, 1));
}
