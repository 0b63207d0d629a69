//! ICMP: errors that find their connection's backend, and answers that the load balancer gives.

use std::net::IpAddr;

use batchwise_bpf::balance::{Backend, Method};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

use super::setup::{
    CLIENT, CLIENT_MAC, CLIENT6, Lb, VIP, VIP_MAC, VIP6, XDP_DROP, XDP_TX, backend, ip, mac, tcp,
};
use crate::frames::{
    ACK, CLIENT_PORT, SERVER_PORT, SYN, Segment, TCP, UDP, ethernet, tcp_frame, udp, v4, v6,
};

fn octets(address: &str) -> Vec<u8> {
    match ip(address) {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// The packet that the server sent to `sport` of the client, as far as errors repeat it.
fn sent(vip: &str, client: &str, protocol: u8, sport: u16, options: usize) -> Vec<u8> {
    let mut p = Vec::new();
    if ip(vip).is_ipv4() {
        let head = 20 + options;
        p.push(0x40 | (head / 4) as u8);
        p.extend([0, 5, 0xdc, 0, 7, 0x40, 0, 60, protocol, 0, 0]);
        p.extend(octets(vip));
        p.extend(octets(client));
        p.resize(head, 1);
    } else {
        p.extend([0x60, 0, 0, 0, 5, 0xb4, protocol, 60]);
        p.extend(octets(vip));
        p.extend(octets(client));
    }
    p.extend(SERVER_PORT.to_be_bytes());
    p.extend(sport.to_be_bytes());
    p.extend([0, 0, 0, 1]);
    p
}

/// An ICMP error from somewhere on the way to the service's address.
fn error(v6_: bool, kind: u8, code: u8, about: &[u8]) -> Vec<u8> {
    let icmp = [&[kind, code, 0, 0, 0, 0, 5, 0x14], about].concat();
    if v6_ {
        ethernet(&[], &v6(&[], 58, &icmp))
    } else {
        ethernet(&[], &v4(1, 0, 0, &icmp))
    }
}

#[test]
fn errors_go_to_the_backend_of_the_connection_that_they_are_about() {
    let lb = Lb::among(&[5, 6]);
    lb.all_to(5);
    let flows = [
        (VIP, CLIENT, TCP, tcp_frame(Segment::default())),
        (VIP, CLIENT, UDP, ethernet(&[], &v4(UDP, 0, 0, &udp(9)))),
        (
            VIP6,
            CLIENT6,
            TCP,
            ethernet(&[], &v6(&[], TCP, &Segment::default().bytes())),
        ),
        (VIP6, CLIENT6, UDP, ethernet(&[], &v6(&[], UDP, &udp(9)))),
    ];
    for settled in [false, true] {
        for (_, _, _, frame) in &flows {
            assert_eq!(lb.sent_to(frame), 5);
        }
        lb.all_to(6);
        for (vip, client, protocol, _) in &flows {
            let v6_ = ip(vip).is_ipv6();
            let kinds: &[(u8, u8)] = if v6_ {
                &[(2, 0), (1, 4), (3, 0), (4, 1)]
            } else {
                &[(3, 4), (3, 1), (11, 0), (12, 0)]
            };
            for &(kind, code) in kinds {
                let about = sent(vip, client, *protocol, CLIENT_PORT, 0);
                let frame = error(v6_, kind, code, &about);
                let to = lb.sent_to(&frame);
                assert_eq!(to, 5, "{vip} {protocol} {kind} settled {settled}");
            }
        }
        lb.all_to(5);
    }
    assert_eq!(lb.outcomes().icmp_forwarded, 32);
    lb.all_to(6);
    let options = sent(VIP, CLIENT, TCP, CLIENT_PORT, 8);
    assert_eq!(
        lb.sent_to(&error(false, 3, 4, &options)),
        5,
        "options inside"
    );
    let stranger = sent(VIP, CLIENT, TCP, 999, 0);
    assert_eq!(lb.sent_to(&error(false, 3, 4, &stranger)), 6, "by the ring");
    assert_eq!(
        lb.outcomes().unknown_flow,
        2,
        "the two TCP connections' first"
    );
}

#[test]
fn errors_are_carried_through_the_tunnel_too() {
    let lb = Lb::to(&Backend {
        method: Method::Ipip,
        ..backend(7)
    });
    let frame = error(false, 3, 4, &sent(VIP, CLIENT, TCP, CLIENT_PORT, 0));
    let (verdict, out) = lb.run(&frame);
    assert_eq!(verdict, XDP_TX);
    assert_eq!(out[..6], mac(7));
    assert_eq!(out[14 + 9], 4);
    assert_eq!(out[34..], frame[14..]);
}

#[test]
fn errors_about_no_connection_of_a_service_are_dropped() {
    let lb = Lb::to(&backend(7));
    let about = sent(VIP, CLIENT, TCP, CLIENT_PORT, 0);
    let edit = |at: usize, to: u8| {
        let mut about = about.clone();
        about[at] = to;
        error(false, 3, 4, &about)
    };
    let table = [
        ("another address inside", edit(15, 9)),
        ("a port without service", edit(21, 81)),
        ("another protocol inside", edit(9, 47)),
        ("not IPv4 inside", edit(0, 0x65)),
        ("a later fragment inside", edit(7, 9)),
        ("a header that is too short inside", edit(0, 0x44)),
        (
            "cut before the ports' end",
            error(false, 3, 4, &about[..27]),
        ),
        ("cut amid the header", error(false, 3, 4, &about[..10])),
        ("IPv4 in ICMPv6", error(true, 2, 0, &about)),
    ];
    for (count, (name, frame)) in table.into_iter().enumerate() {
        assert_eq!(lb.run(&frame), (XDP_DROP, frame), "{name}");
        assert_eq!(lb.outcomes().icmp_unknown, count as u64 + 1, "{name}");
    }
}

/// The ICMP message that the client is answered: from the service's address to its own, with sums that
/// hold.
fn answered(out: &[u8], v6_: bool) -> &[u8] {
    let (from, to) = if v6_ { (VIP6, CLIENT6) } else { (VIP, CLIENT) };
    assert_eq!(out[..12], [CLIENT_MAC, VIP_MAC].concat());
    let packet = SlicedPacket::from_ethernet(out).unwrap();
    match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(net) => {
            let header = net.header();
            assert_eq!(header.source_addr(), ip(from));
            assert_eq!(header.destination_addr(), ip(to));
            assert_eq!(header.ttl(), 64);
            let whole = header.to_header().calc_header_checksum();
            assert_eq!(header.header_checksum(), whole);
            assert_eq!(14 + usize::from(header.total_len()), out.len());
        }
        NetSlice::Ipv6(net) => {
            let header = net.header();
            assert_eq!(header.source_addr(), ip(from));
            assert_eq!(header.destination_addr(), ip(to));
            assert_eq!(header.hop_limit(), 64);
            assert_eq!(54 + usize::from(header.payload_length()), out.len());
        }
        other => panic!("{other:?}"),
    }
    match packet.transport.unwrap() {
        TransportSlice::Icmpv4(icmp) => {
            let whole = icmp.icmp_type().calc_checksum(icmp.payload());
            assert_eq!(icmp.checksum(), whole);
            &out[34..]
        }
        TransportSlice::Icmpv6(icmp) => {
            let [from, to] = [from, to].map(|a| octets(a).try_into().unwrap());
            assert!(icmp.is_checksum_valid(from, to));
            &out[54..]
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn echo_requests_are_answered() {
    let lb = Lb::new();
    let [from, to] = [CLIENT6, VIP6].map(|a| octets(a).try_into().unwrap());
    let link = || PacketBuilder::ethernet2(CLIENT_MAC, VIP_MAC);
    for payload in [0, 1, 56, 1400] {
        let data: Vec<u8> = (0..payload).map(|i| i as u8).collect();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        link()
            .ipv4([10, 0, 0, 2], [10, 0, 0, 1], 9)
            .icmpv4_echo_request(77, 8)
            .write(&mut v4, &data)
            .unwrap();
        link()
            .ipv6(from, to, 9)
            .icmpv6_echo_request(77, 8)
            .write(&mut v6, &data)
            .unwrap();
        for (v6_, frame, reply) in [(false, v4, 0), (true, v6, 129)] {
            let (verdict, out) = lb.run(&frame);
            assert_eq!((verdict, out.len()), (XDP_TX, frame.len()));
            let icmp = answered(&out, v6_);
            assert_eq!(icmp[..2], [reply, 0]);
            assert_eq!(icmp[4..8], [0, 77, 0, 8], "identifier and number");
            assert_eq!(icmp[8..], data);
        }
    }
    assert_eq!(lb.outcomes().icmp_answered, 8);
}

/// A request of so many bytes of IP.
fn sized(v6_: bool, bytes: usize) -> Vec<u8> {
    let payload = bytes - if v6_ { 40 } else { 20 } - 32;
    let tcp = Segment {
        payload,
        ..Segment::default()
    };
    let packet = if v6_ {
        v6(&[], TCP, &tcp.bytes())
    } else {
        v4(TCP, 0, 0x4000, &tcp.bytes())
    };
    ethernet(&[], &packet)
}

#[test]
fn the_client_is_told_what_fits_when_a_packet_is_too_big() {
    let via = |address: &str, method| Backend {
        address: ip(address),
        source: ip(address),
        method,
        ..backend(7)
    };
    for (to, fits) in [
        (via("192.0.2.7", Method::L2), 1500),
        (via("192.0.2.7", Method::Ipip), 1480),
        (via("2001:db8::7", Method::Ipip), 1460),
    ] {
        let lb = Lb::to(&to);
        for (v6_, too_big) in [(false, [3, 4]), (true, [2, 0])] {
            assert_eq!(lb.run(&sized(v6_, fits)).0, XDP_TX);
            let frame = sized(v6_, fits + 1);
            let (verdict, out) = lb.run(&frame);
            assert_eq!(verdict, XDP_TX);
            let icmp = answered(&out, v6_);
            assert_eq!(icmp[..2], too_big);
            assert_eq!(icmp[4..8], (fits as u32).to_be_bytes());
            assert_eq!(icmp[8..], frame[14..14 + 96]);
        }
        let outcomes = lb.outcomes();
        assert_eq!((outcomes.too_big, outcomes.forwarded), (2, 2));
        assert_eq!(outcomes.packets(), 4);
    }
}

#[test]
fn of_a_backend_with_an_mtu_that_no_way_has_the_client_is_told_nothing() {
    for (mtu, v6_) in [(0, false), (67, false), (0, true), (1239, true)] {
        let lb = Lb::to(&Backend { mtu, ..backend(7) });
        let frame = sized(v6_, 1300);
        assert_eq!(lb.run(&frame), (XDP_DROP, frame), "{mtu}");
        assert_eq!(lb.outcomes().no_backend, 1, "{mtu}");
    }
}

#[test]
fn errors_have_the_flow_label_of_the_connection_that_they_are_about() {
    let lb = Lb::to(&Backend {
        address: ip("2001:db8::7"),
        source: ip("2001:db8::1"),
        method: Method::Ipip,
        ..backend(7)
    });
    let (_, flow) = lb.run(&tcp_frame(Segment::default()));
    let (verdict, out) = lb.run(&error(false, 3, 4, &sent(VIP, CLIENT, TCP, CLIENT_PORT, 0)));
    assert_eq!(verdict, XDP_TX);
    assert_eq!(out[14..18], flow[14..18]);
}

#[test]
fn an_error_that_may_take_no_further_hop_is_not_routed_on_link() {
    let lb = Lb::to(&backend(7));
    for (v6_, vip, client, at) in [(false, VIP, CLIENT, 22), (true, VIP6, CLIENT6, 21)] {
        let mut frame = error(v6_, 3, 0, &sent(vip, client, TCP, CLIENT_PORT, 0));
        frame[at] = 1;
        assert_eq!(lb.run(&frame), (XDP_DROP, frame), "{vip}");
    }
    assert_eq!(lb.outcomes().expired, 2);
}

#[test]
fn a_packet_that_is_too_big_still_makes_its_connection_known() {
    let lb = Lb::among(&[5, 6]);
    lb.all_to(5);
    lb.segment(tcp(1, SYN, 0));
    let mut frame = sized(false, 1501);
    frame[34..36].copy_from_slice(&1u16.to_be_bytes());
    assert_eq!(lb.run(&frame).0, XDP_TX);
    lb.all_to(6);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
}
