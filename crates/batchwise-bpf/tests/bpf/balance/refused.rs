//! Packets that are not forwarded: each passes or is dropped, unchanged, and is counted by its name.

use batchwise_bpf::balance::Outcomes;

use super::setup::{Lb, XDP_DROP, XDP_PASS};
use super::tunnels::{to_v4, to_v6};
use crate::frames::{Segment, TCP, UDP, VLAN, ethernet, ethernet_of, kinds, v4, v6, with};

/// What becomes of frames that are not forwarded: none is changed.
#[test]
fn every_other_packet_passes_or_is_dropped_and_counted_by_its_name() {
    type Count = fn(&Outcomes) -> u64;
    type Frames = Vec<(&'static str, Vec<u8>)>;
    let tcp = Segment::default().bytes();
    let ipv4 = |proto, options, fragment, inside: &[u8]| {
        ethernet(&[], &v4(proto, options, fragment, inside))
    };
    let ipv6 =
        |extensions: &[_], proto, inside: &[u8]| ethernet(&[], &v6(extensions, proto, inside));
    let plain4 = || ipv4(TCP, 0, 0, &tcp);
    let plain6 = || ipv6(&[], TCP, &tcp);
    let elsewhere = |frame: Vec<u8>, last: usize| with(frame, last, 99);
    let passed: Frames = vec![
        ("another IPv4 address", elsewhere(plain4(), 33)),
        ("another IPv6 address", elsewhere(plain6(), 53)),
        ("ARP", ethernet_of(&[], 0x0806, &[0; 46])),
        ("a VLAN tag", ethernet(&[VLAN], &v4(TCP, 0, 0, &tcp))),
        ("nothing but Ethernet", ethernet_of(&[], 0x0800, &[])),
        (
            "a fragment to another address",
            elsewhere(ipv4(TCP, 0, 0x2000, &tcp), 33),
        ),
        (
            "malformed, to another address",
            with(elsewhere(plain4(), 33), 16, 0x70),
        ),
        (
            "neighbour discovery",
            ipv6(&[], 58, &[135, 0, 0, 0, 0, 0, 0, 0]),
        ),
    ];
    let no_service: Frames = vec![
        ("another port", with(plain4(), 37, 81)),
        ("another port over IPv6", with(plain6(), 57, 81)),
        ("another protocol", ipv4(47, 0, 0, &tcp)),
        ("another protocol over IPv6", ipv6(&[], 47, &tcp)),
    ];
    let fragment: Frames = vec![
        ("a first fragment", ipv4(TCP, 0, 0x2000, &tcp)),
        ("a later fragment", ipv4(UDP, 0, 0x0010, &tcp)),
        ("a fragment of ICMP", ipv4(1, 0, 0x2000, &tcp)),
        (
            "a first IPv6 fragment",
            with(ipv6(&[(44, 8)], TCP, &tcp), 57, 1),
        ),
        (
            "a later IPv6 fragment",
            with(ipv6(&[(44, 8)], TCP, &tcp), 57, 8),
        ),
    ];
    let options: Frames = vec![
        ("IPv4 options", ipv4(TCP, 4, 0, &tcp)),
        ("ICMP with IPv4 options", ipv4(1, 4, 0, &tcp)),
    ];
    let extensions: Frames = vec![
        ("IPv6 extension headers", ipv6(&[(60, 8)], TCP, &tcp)),
        ("more of them than are read", ipv6(&[(60, 8); 7], TCP, &tcp)),
        ("ICMPv6 behind one", ipv6(&[(0, 8)], 58, &tcp)),
    ];
    let malformed: Frames = vec![
        ("an IPv4 header of 16 bytes", with(plain4(), 14, 0x44)),
        ("longer than the frame", with(plain4(), 16, 0x10)),
        ("longer than the frame, over IPv6", with(plain6(), 18, 0x10)),
        ("a TCP header of 16 bytes", with(plain4(), 46, 0x40)),
        ("cut amid the TCP header", plain4()[..50].to_vec()),
        ("ICMP that is too short", ipv4(1, 0, 0, &[3, 4, 0])),
    ];
    let unknown: Frames = vec![
        ("an ICMP timestamp request", ipv4(1, 0, 0, &[13; 20])),
        ("an ICMPv6 node query", ipv6(&[], 58, &[139; 20])),
    ];
    let table: [(u32, Count, Frames); 7] = [
        (XDP_PASS, |o| o.passed, passed),
        (XDP_DROP, |o| o.no_service, no_service),
        (XDP_DROP, |o| o.fragment, fragment),
        (XDP_DROP, |o| o.options, options),
        (XDP_DROP, |o| o.extensions, extensions),
        (XDP_DROP, |o| o.malformed, malformed),
        (XDP_DROP, |o| o.icmp_unknown, unknown),
    ];
    let lb = Lb::to(&to_v4());
    for (verdict, count, frames) in table {
        for (name, frame) in frames {
            let before = lb.outcomes();
            assert_eq!(lb.run(&frame), (verdict, frame), "{name}");
            let after = lb.outcomes();
            assert_eq!(count(&after), count(&before) + 1, "{name}: {after:?}");
            assert_eq!(after.packets(), before.packets() + 1, "{name}");
        }
    }
    assert_eq!(lb.outcomes().unknown_flow, 0);
}

#[test]
fn a_frame_that_was_cut_anywhere_is_not_forwarded() {
    let lb = Lb::to(&to_v6());
    for frame in kinds() {
        for len in 14..frame.len() {
            let (verdict, out) = lb.run(&frame[..len]);
            assert!(
                [XDP_PASS, XDP_DROP].contains(&verdict),
                "{len} of {frame:?}"
            );
            assert_eq!(out, frame[..len]);
        }
    }
    assert_eq!(lb.outcomes().forwarded, 0);
}
