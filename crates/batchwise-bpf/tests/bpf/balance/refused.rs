//! Packets that are not forwarded: each passes or is dropped, unchanged, and is counted by its name.

use batchwise_bpf::balance::Outcomes;

use super::setup::{Lb, XDP_DROP, XDP_PASS};
use super::tunnels::{to_v4, to_v6};
use crate::frames::{Segment, TCP, UDP, VLAN, ethernet, ethernet_of, kinds, v4, v6};

/// What becomes of frames that are not forwarded: none is changed.
#[test]
fn every_other_packet_passes_or_is_dropped_and_counted_by_its_name() {
    type Count = fn(&Outcomes) -> u64;
    let tcp = Segment::default().bytes();
    let elsewhere = |mut frame: Vec<u8>, last: usize| {
        frame[last] = 99;
        frame
    };
    let edit = |frame: Vec<u8>, at: usize, to: u8| elsewhere_at(frame, at, to);
    let ipv4 = || ethernet(&[], &v4(TCP, 0, 0, &tcp));
    let ipv6 = || ethernet(&[], &v6(&[], TCP, &tcp));
    let passed: Count = |o| o.passed;
    let no_service: Count = |o| o.no_service;
    let fragment: Count = |o| o.fragment;
    let options: Count = |o| o.options;
    let extensions: Count = |o| o.extensions;
    let malformed: Count = |o| o.malformed;
    let unknown: Count = |o| o.icmp_unknown;
    let table: Vec<(&str, Vec<u8>, u32, Count)> = vec![
        (
            "another IPv4 address",
            elsewhere(ipv4(), 33),
            XDP_PASS,
            passed,
        ),
        (
            "another IPv6 address",
            elsewhere(ipv6(), 53),
            XDP_PASS,
            passed,
        ),
        ("ARP", ethernet_of(&[], 0x0806, &[0; 46]), XDP_PASS, passed),
        (
            "a VLAN tag",
            ethernet(&[VLAN], &v4(TCP, 0, 0, &tcp)),
            XDP_PASS,
            passed,
        ),
        (
            "nothing but Ethernet",
            ethernet_of(&[], 0x0800, &[]),
            XDP_PASS,
            passed,
        ),
        (
            "a fragment to another address",
            elsewhere(ethernet(&[], &v4(TCP, 0, 0x2000, &tcp)), 33),
            XDP_PASS,
            passed,
        ),
        (
            "malformed, to another address",
            edit(elsewhere(ipv4(), 33), 16, 0x70),
            XDP_PASS,
            passed,
        ),
        (
            "neighbour discovery",
            ethernet(&[], &v6(&[], 58, &[135, 0, 0, 0, 0, 0, 0, 0])),
            XDP_PASS,
            passed,
        ),
        ("another port", edit(ipv4(), 37, 81), XDP_DROP, no_service),
        (
            "another port over IPv6",
            edit(ipv6(), 57, 81),
            XDP_DROP,
            no_service,
        ),
        (
            "another protocol",
            ethernet(&[], &v4(47, 0, 0, &tcp)),
            XDP_DROP,
            no_service,
        ),
        (
            "another protocol over IPv6",
            ethernet(&[], &v6(&[], 47, &tcp)),
            XDP_DROP,
            no_service,
        ),
        (
            "a first fragment",
            ethernet(&[], &v4(TCP, 0, 0x2000, &tcp)),
            XDP_DROP,
            fragment,
        ),
        (
            "a later fragment",
            ethernet(&[], &v4(UDP, 0, 0x0010, &tcp)),
            XDP_DROP,
            fragment,
        ),
        (
            "a fragment of ICMP",
            ethernet(&[], &v4(1, 0, 0x2000, &tcp)),
            XDP_DROP,
            fragment,
        ),
        (
            "a first IPv6 fragment",
            edit(ethernet(&[], &v6(&[(44, 8)], TCP, &tcp)), 57, 1),
            XDP_DROP,
            fragment,
        ),
        (
            "a later IPv6 fragment",
            edit(ethernet(&[], &v6(&[(44, 8)], TCP, &tcp)), 57, 8),
            XDP_DROP,
            fragment,
        ),
        (
            "IPv4 options",
            ethernet(&[], &v4(TCP, 4, 0, &tcp)),
            XDP_DROP,
            options,
        ),
        (
            "ICMP with IPv4 options",
            ethernet(&[], &v4(1, 4, 0, &tcp)),
            XDP_DROP,
            options,
        ),
        (
            "IPv6 extension headers",
            ethernet(&[], &v6(&[(60, 8)], TCP, &tcp)),
            XDP_DROP,
            extensions,
        ),
        (
            "more of them than are read",
            ethernet(&[], &v6(&[(60, 8); 7], TCP, &tcp)),
            XDP_DROP,
            extensions,
        ),
        (
            "ICMPv6 behind one",
            ethernet(&[], &v6(&[(0, 8)], 58, &tcp)),
            XDP_DROP,
            extensions,
        ),
        (
            "an IPv4 header of 16 bytes",
            edit(ipv4(), 14, 0x44),
            XDP_DROP,
            malformed,
        ),
        (
            "longer than the frame",
            edit(ipv4(), 16, 0x10),
            XDP_DROP,
            malformed,
        ),
        (
            "longer than the frame, over IPv6",
            edit(ipv6(), 18, 0x10),
            XDP_DROP,
            malformed,
        ),
        (
            "a TCP header of 16 bytes",
            edit(ipv4(), 46, 0x40),
            XDP_DROP,
            malformed,
        ),
        (
            "cut amid the TCP header",
            ipv4()[..50].to_vec(),
            XDP_DROP,
            malformed,
        ),
        (
            "ICMP that is too short",
            ethernet(&[], &v4(1, 0, 0, &[3, 4, 0])),
            XDP_DROP,
            malformed,
        ),
        (
            "an ICMP timestamp request",
            ethernet(&[], &v4(1, 0, 0, &[13; 20])),
            XDP_DROP,
            unknown,
        ),
        (
            "an ICMPv6 node query",
            ethernet(&[], &v6(&[], 58, &[139; 20])),
            XDP_DROP,
            unknown,
        ),
    ];
    let lb = Lb::to(&to_v4());
    for (name, frame, verdict, count) in table {
        let before = lb.outcomes();
        assert_eq!(lb.run(&frame), (verdict, frame), "{name}");
        let after = lb.outcomes();
        assert_eq!(count(&after), count(&before) + 1, "{name}: {after:?}");
        assert_eq!(after.packets(), before.packets() + 1, "{name}");
    }
    assert_eq!(lb.outcomes().unknown_flow, 0);
}

pub fn elsewhere_at(mut frame: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
    frame[at] = to;
    frame
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
