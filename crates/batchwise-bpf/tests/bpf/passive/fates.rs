//! Which packets count, and as what.

use batchwise_bpf::passive::{Config, Counters};

use super::setup::{config, counters, pass, sensor};
use crate::frames::{
    self, ACK, CLIENT_PORT, FIN, QINQ, RST, SYN, Segment, TCP, UDP, VLAN, ethernet, ethernet_of,
    v4, v6, with,
};

#[test]
fn each_packet_meets_its_fate_and_passes_unchanged() {
    let tcp = Segment::default().bytes();
    let l4 = |l4: &[u8]| ethernet(&[], &v4(TCP, 0, 0, l4));
    let segment = |flags, payload| l4(&frames::tcp(CLIENT_PORT, flags, payload).bytes());
    let plain = || l4(&tcp);
    let ipv4 = |options, fragment| ethernet(&[], &v4(TCP, options, fragment, &tcp));
    let ipv6 = |extensions: &[(u8, usize)]| ethernet(&[], &v6(extensions, TCP, &tcp));
    let udp = frames::udp(30);
    let datagram = || ethernet(&[], &v4(UDP, 0, 0, &udp));
    let tagged = |tags: &[u16]| ethernet(tags, &v4(TCP, 0, 0, &tcp));
    type Fate = fn(&Counters) -> u64;
    type Frames = Vec<(&'static str, Vec<u8>)>;
    let measured: Frames = vec![
        ("TCP over IPv4", plain()),
        ("with IP options", ipv4(40, 0)),
        ("with padding", [plain(), vec![0; 30]].concat()),
        ("don't fragment", ipv4(0, 0x4000)),
        ("UDP over IPv4", datagram()),
        ("TCP over IPv6", ipv6(&[])),
        ("UDP over IPv6", ethernet(&[], &v6(&[], UDP, &udp))),
        ("a VLAN tag", tagged(&[VLAN])),
        (
            "two VLAN tags",
            ethernet(&[QINQ, VLAN], &v6(&[], TCP, &tcp)),
        ),
        ("extension headers", ipv6(&[(0, 8), (60, 24), (43, 8)])),
        ("an authentication header", ipv6(&[(51, 24)])),
        ("a fragment header of a whole", ipv6(&[(44, 8)])),
        ("data with FIN", segment(ACK | FIN, 100)),
        ("data with SYN", segment(SYN, 100)),
    ];
    let acks: Frames = vec![
        ("a pure ACK", segment(ACK, 0)),
        ("a SYN", segment(SYN, 0)),
        ("a FIN", segment(ACK | FIN, 0)),
        ("a RST", segment(RST, 0)),
        (
            "an empty datagram",
            ethernet(&[], &v4(UDP, 0, 0, &frames::udp(0))),
        ),
    ];
    let fragments: Frames = vec![
        ("a first fragment", ipv4(0, 0x2000)),
        ("a last fragment", ipv4(0, 0x0010)),
        ("an IPv6 fragment", with(ipv6(&[(44, 8)]), 14 + 40 + 3, 1)),
    ];
    let other: Frames = vec![
        ("a SYN-ACK", segment(SYN | ACK, 0)),
        ("ICMP", ethernet(&[], &v4(1, 0, 0, &tcp))),
        ("ARP", ethernet_of(&[], 0x0806, &[0; 28])),
        ("three VLAN tags", tagged(&[QINQ, VLAN, VLAN])),
        ("seven extension headers", ipv6(&[(60, 8); 7])),
        ("encrypted", ipv6(&[(50, 16)])),
    ];
    let malformed: Frames = vec![
        ("IPv4 of another version", with(plain(), 14, 0x55)),
        ("a header that is too short", with(plain(), 14, 0x44)),
        ("longer than the frame", with(plain(), 16, 0x10)),
        ("a TCP header that is too short", with(plain(), 46, 0x40)),
        (
            "a TCP header longer than the packet",
            with(segment(ACK, 0), 46, 0xf0),
        ),
        ("a datagram longer than its packet", with(datagram(), 38, 1)),
    ];
    let table: [(Fate, Frames); 5] = [
        (|c| c.measured, measured),
        (|c| c.acks, acks),
        (|c| c.fragments, fragments),
        (|c| c.other, other),
        (|c| c.malformed, malformed),
    ];
    let sensor = sensor(config());
    for (fate, frames) in table {
        for (name, frame) in frames {
            let before = counters(&sensor);
            pass(sensor.program(), &frame);
            let after = counters(&sensor);
            assert_eq!(after.packets, before.packets + 1, "{name}");
            assert_eq!(fate(&after), fate(&before) + 1, "{name}: {after:?}");
        }
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
