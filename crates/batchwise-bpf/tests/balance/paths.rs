//! The ways a packet can take: a table of frames in and frames out.

use std::collections::HashSet;

use batchwise_bpf::balance::{Backend, Method, Options, Outcomes, Protocol, Service};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket};

use crate::frames::{
    SYN, Segment, TCP, UDP, VLAN, ethernet, ethernet_of, kinds, tcp_frame, udp, v4, v6,
};
use crate::kernel::{self, in_own_network, need_root};
use crate::setup::{
    ARRIVES, CLIENT_MAC, Lb, OWN_MAC, VIP, VIP_MAC, XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX,
    backend, ip, key, mac, options, routed, set_mac, veth,
};

fn tunnel(address: &str, source: &str) -> Backend {
    Backend {
        address: ip(address),
        source: ip(source),
        method: Method::Ipip,
        ..backend(7)
    }
}

fn to_v4() -> Backend {
    tunnel("192.0.2.7", "192.0.2.1")
}

fn to_v6() -> Backend {
    tunnel("2001:db8::7", "2001:db8::1")
}

/// A frame's packet in a frame to the backend on link.
fn rewritten(frame: &[u8]) -> Vec<u8> {
    [&mac(7)[..], &OWN_MAC, &routed(frame)].concat()
}

/// What is in the outer header, after all of that was checked.
fn outer(out: &[u8], to: &Backend) -> Vec<u8> {
    assert_eq!(out[..12], [to.mac, to.own_mac].concat());
    let packet = SlicedPacket::from_ethernet(out).unwrap();
    match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            assert_eq!(header.source_addr(), to.source);
            assert_eq!(header.destination_addr(), to.address);
            let owned = header.to_header();
            assert_eq!(header.header_checksum(), owned.calc_header_checksum());
            assert_eq!((header.ttl(), header.dont_fragment()), (64, true));
            assert_eq!(14 + usize::from(header.total_len()), out.len());
            let inner = out[14 + 20] >> 4;
            assert_eq!(header.protocol().0, if inner == 4 { 4 } else { 41 });
            out[14 + 20..].to_vec()
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            assert_eq!(header.source_addr(), to.source);
            assert_eq!(header.destination_addr(), to.address);
            assert_eq!(header.hop_limit(), 64);
            assert_eq!(54 + usize::from(header.payload_length()), out.len());
            let inner = out[14 + 40] >> 4;
            assert_eq!(header.next_header().0, if inner == 4 { 4 } else { 41 });
            out[14 + 40..].to_vec()
        }
        other => panic!("{other:?}"),
    }
}

/// Of all four kinds that are balanced.
fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let tcp = Segment::default().bytes();
    vec![
        ("TCP over IPv4", ethernet(&[], &v4(TCP, 0, 0x4000, &tcp))),
        ("UDP over IPv4", ethernet(&[], &v4(UDP, 0, 0, &udp(30)))),
        ("TCP over IPv6", ethernet(&[], &v6(&[], TCP, &tcp))),
        ("UDP over IPv6", ethernet(&[], &v6(&[], UDP, &udp(30)))),
    ]
}

#[test]
fn on_link_the_mac_addresses_change_and_a_hop_is_taken() {
    let lb = Lb::to(&backend(7));
    for (name, frame) in requests() {
        assert_eq!(lb.run(&frame), (XDP_TX, rewritten(&frame)), "{name}");
    }
    assert_eq!(lb.outcomes().forwarded, 4);
    let tallies = lb.0.backend_tallies().unwrap();
    let [(7, tally)] = tallies[..] else {
        panic!("{tallies:?}");
    };
    let bytes: usize = requests().iter().map(|(_, f)| f.len() - 14).sum();
    assert_eq!((tally.packets, tally.bytes), (4, bytes as u64));
}

#[test]
fn the_ipv4_header_still_holds_after_the_hop() {
    let lb = Lb::to(&backend(7));
    for ttl in 2..=255 {
        for port in [1, 2, 3] {
            let mut frame = Vec::new();
            PacketBuilder::ethernet2(CLIENT_MAC, VIP_MAC)
                .ipv4([10, port, ttl, 77], [10, 0, 0, 1], ttl)
                .udp(port.into(), 80)
                .write(&mut frame, &[0; 20])
                .unwrap();
            let (verdict, out) = lb.run(&frame);
            assert_eq!(verdict, XDP_TX);
            let packet = SlicedPacket::from_ethernet(&out).unwrap();
            let Some(NetSlice::Ipv4(ip)) = packet.net else {
                panic!();
            };
            let header = ip.header().to_header();
            assert_eq!(header.time_to_live, ttl - 1);
            assert_eq!(header.header_checksum, header.calc_header_checksum());
        }
    }
    // the sums at the end of what they can be
    for sum in [0xfeff_u16, 0xfefe, 0xff00, 0xffff, 0] {
        let mut frame = tcp_frame(Segment::default());
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(lb.run(&frame), (XDP_TX, rewritten(&frame)), "{sum:#x}");
    }
}

#[test]
fn a_packet_that_may_take_no_further_hop_is_not_routed_on_link() {
    let hops = |mut frame: Vec<u8>, hops: u8| {
        let at = if frame[14] >> 4 == 4 { 22 } else { 21 };
        frame[at] = hops;
        frame
    };
    let lb = Lb::to(&backend(7));
    let mut expired = 0;
    for (name, frame) in requests() {
        for left in [0, 1] {
            let frame = hops(frame.clone(), left);
            assert_eq!(lb.run(&frame), (XDP_DROP, frame), "{name}");
            expired += 1;
            assert_eq!(lb.outcomes().expired, expired, "{name}");
        }
        assert_eq!(lb.run(&hops(frame, 2)).0, XDP_TX, "{name}");
    }
    let (_, tally) = lb.0.backend_tallies().unwrap()[0];
    assert_eq!(tally.packets, 4, "those that were not sent are not its");
    // the tunnel's far end is the next router
    let lb = Lb::to(&to_v6());
    for (name, frame) in requests() {
        let frame = hops(frame, 1);
        let (verdict, out) = lb.run(&frame);
        assert_eq!(verdict, XDP_TX, "{name}");
        assert_eq!(outer(&out, &to_v6()), frame[14..], "{name}");
    }
}

/// Of 200 connections, each twice, what `of` reads of the frame out; that it is the same both times.
fn told_apart<T: PartialEq + std::fmt::Debug>(lb: &Lb, of: impl Fn(&[u8]) -> T) -> Vec<T> {
    let one = |sport: u16, payload| {
        let segment = Segment {
            sport,
            payload,
            ..Segment::default()
        };
        let (verdict, out) = lb.run(&tcp_frame(segment));
        assert_eq!(verdict, XDP_TX);
        of(&out)
    };
    let read = |sport| {
        let told = one(sport, 10);
        assert_eq!(told, one(sport, 500), "all packets of a flow alike");
        told
    };
    (1000..1200).map(read).collect()
}

#[test]
fn the_outer_ipv6_header_tells_flows_apart_by_its_label() {
    let lb = Lb::to(&to_v6());
    let labels = told_apart(&lb, |out| {
        outer(out, &to_v6());
        u32::from_be_bytes([0, out[15] & 0xf, out[16], out[17]])
    });
    let different: HashSet<_> = labels.iter().collect();
    assert!(different.len() > 190, "{}", different.len());
    let low: HashSet<_> = labels.iter().map(|l| l % 16).collect();
    let high: HashSet<_> = labels.iter().map(|l| l >> 16).collect();
    assert_eq!((low.len(), high.len()), (16, 16));
}

#[test]
fn the_outer_ipv4_source_tells_flows_apart_if_that_is_wanted() {
    let source = |out: &[u8]| <[u8; 4]>::try_from(&out[26..30]).unwrap();
    let fixed = told_apart(&Lb::to(&to_v4()), source);
    assert!(fixed.iter().all(|s| *s == [192, 0, 2, 1]));
    for (bits, least) in [(4, 16), (8, 90), (16, 190)] {
        let to = Backend {
            source_bits: bits,
            ..tunnel("192.0.2.7", "10.20.30.40")
        };
        let lb = Lb::to(&to);
        assert_eq!(lb.0.backends().unwrap()[0].1, to);
        let prefix = |s: [u8; 4]| u32::from_be_bytes(s) >> bits;
        let sources = told_apart(&lb, |out| {
            let source = source(out);
            assert_eq!(prefix(source), prefix([10, 20, 30, 40]));
            let seen = Backend {
                source: source.into(),
                ..to
            };
            outer(out, &seen);
            source
        });
        let different: HashSet<_> = sources.iter().collect();
        assert!(different.len() >= least, "{bits}: {}", different.len());
    }
}

#[test]
fn frames_to_anothers_mac_address_pass() {
    let request = || tcp_frame(Segment::default());
    let to = |mac: [u8; 6]| [&mac, &request()[6..]].concat();
    need_root();
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        veth("bw-b1", [2, 0, 0, 0, 0, 7]);
        let mut lb = Lb::with(Options {
            interfaces: vec!["bw-b0".into(), "bw-b1".into()],
            ..options("test")
        });
        lb.have(&[7]);
        lb.all_to(7);
        assert_eq!(lb.sent_to(&request()), 7);
        assert_eq!(lb.sent_to(&to([2, 0, 0, 0, 0, 7])), 7);
        let others = [[2, 0, 0, 0, 0, 8], [1, 0, 0, 0, 0, 7], [2, 0, 0, 0, 1, 1]];
        for other in others.into_iter().chain([[0xff; 6], [0; 6], mac(7)]) {
            let frame = to(other);
            assert_eq!(lb.run(&frame), (XDP_PASS, frame), "{other:?}");
        }
        assert_eq!(lb.outcomes().passed, 6);

        // changes are followed; the address of an interface that is gone stays
        let changed = [2, 0, 0, 0, 0, 9];
        set_mac("bw-b0", changed);
        kernel::ip(&["link", "del", "bw-b1"]);
        lb.0.follow_macs().unwrap();
        assert_eq!(lb.sent_to(&to(changed)), 7);
        assert_eq!(lb.sent_to(&to([2, 0, 0, 0, 0, 7])), 7);
        assert_eq!(lb.run(&request()).0, XDP_PASS);
    });
}

#[test]
fn a_tunnel_carries_the_packet_untouched_in_a_header_that_holds() {
    for to in [to_v4(), to_v6()] {
        let lb = Lb::to(&to);
        for (name, frame) in requests() {
            let (verdict, out) = lb.run(&frame);
            assert_eq!(verdict, XDP_TX, "{name} to {}", to.address);
            assert_eq!(outer(&out, &to), frame[14..], "{name} to {}", to.address);
        }
    }
}

#[test]
fn the_outer_header_has_the_class_and_congestion_mark_of_the_packet() {
    for (name, mut frame) in requests() {
        match frame[14] >> 4 {
            4 => frame[15] = 0xb9,
            _ => (frame[14], frame[15]) = (0x6b, 0x90),
        }
        let (_, out) = Lb::to(&to_v4()).run(&frame);
        assert_eq!(out[15], 0xb9, "{name}");
        let (_, out) = Lb::to(&to_v6()).run(&frame);
        assert_eq!((out[14], out[15] & 0xf0), (0x6b, 0x90), "{name}");
        outer(&out, &to_v6());
    }
}

#[test]
fn padding_behind_the_packet_is_not_counted_into_the_outer_header() {
    let small = Segment {
        payload: 0,
        options: 0,
        ..Segment::default()
    };
    let mut frame = tcp_frame(small);
    frame.resize(60, 0);
    let (verdict, out) = Lb::to(&to_v4()).run(&frame);
    assert_eq!(verdict, XDP_TX);
    assert_eq!(u16::from_be_bytes([out[16], out[17]]), 20 + 40);
}

#[test]
fn a_backend_behind_another_interface_is_redirected_to() {
    let other = Backend {
        ifindex: ARRIVES + 1,
        ..backend(7)
    };
    let frame = tcp_frame(Segment::default());
    assert_eq!(
        Lb::to(&other).run(&frame),
        (XDP_REDIRECT, rewritten(&frame))
    );
}

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

fn elsewhere_at(mut frame: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
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

#[test]
fn a_service_that_nobody_serves_drops() {
    let lb = Lb::new();
    let frame = tcp_frame(Segment::default());
    assert_eq!(lb.run(&frame).0, XDP_DROP, "no ring");
    lb.all_to(0);
    assert_eq!(lb.run(&frame).0, XDP_DROP, "an empty ring");
    lb.all_to(5);
    assert_eq!(
        lb.run(&frame).0,
        XDP_DROP,
        "a ring of an index that is vacant"
    );
    assert_eq!(lb.outcomes().no_backend, 3);
}

#[test]
fn a_service_of_all_ports_serves_those_that_have_none_of_their_own() {
    let lb = Lb::among(&[5, 6]);
    lb.all_to(5);
    let service = Service {
        number: 9,
        by_client: false,
        two_choices: false,
    };
    lb.0.set_service(key(VIP, 0, Protocol::Tcp), service)
        .unwrap();
    let ring: Vec<_> = (0..65_537).map(|slot| (slot, 6)).collect();
    lb.0.write_ring(9, &ring).unwrap();
    let frame = tcp_frame(tcp_syn());
    assert_eq!(lb.sent_to(&frame), 5);
    assert_eq!(lb.sent_to(&elsewhere_at(frame.clone(), 37, 81)), 6);
    lb.0.remove_service(&key(VIP, 0, Protocol::Tcp)).unwrap();
    assert_eq!(lb.run(&elsewhere_at(frame.clone(), 37, 82)).0, XDP_DROP);
    assert!(lb.0.ring(9).unwrap().iter().all(|b| *b == 0));
    for (key, _) in lb.0.services().unwrap() {
        lb.0.remove_service(&key).unwrap();
    }
    assert_eq!(lb.run(&frame).0, XDP_PASS, "the address is nobody's again");
}

fn tcp_syn() -> Segment {
    Segment {
        flags: SYN,
        payload: 0,
        ..Segment::default()
    }
}
