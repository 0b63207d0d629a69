//! The ways that a packet is forwarded: frames in and frames out.

use batchwise_bpf::balance::{Backend, Options, Protocol};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket};

use super::setup::{
    ARRIVES, CLIENT_MAC, Lb, OWN_MAC, VIP, VIP_MAC, XDP_DROP, XDP_PASS, XDP_REDIRECT, XDP_TX,
    backend, key, mac, options, requests, routed, service, set_mac, veth,
};
use super::tunnels::{outer, to_v6};
use crate::frames::{CLIENT_PORT, SYN, Segment, tcp, tcp_frame, with};
use crate::kernel::{self, in_own_network, need_root};

/// A frame's packet in a frame to the backend on link.
fn rewritten(frame: &[u8]) -> Vec<u8> {
    [&mac(7)[..], &OWN_MAC, &routed(frame)].concat()
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
        kernel::ip("link del bw-b1");
        assert!(lb.0.follow_interfaces().unwrap().is_empty());
        assert_eq!(lb.sent_to(&to(changed)), 7);
        assert_eq!(lb.sent_to(&to([2, 0, 0, 0, 0, 7])), 7);
        assert_eq!(lb.run(&request()).0, XDP_PASS);
    });
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
    let all_ports = key(VIP, 0, Protocol::Tcp);
    lb.0.set_service(all_ports, service(9)).unwrap();
    lb.spread(9, &[6]);
    let frame = tcp_frame(tcp(CLIENT_PORT, SYN, 0));
    assert_eq!(lb.sent_to(&frame), 5);
    assert_eq!(lb.sent_to(&with(frame.clone(), 37, 81)), 6);
    lb.0.remove_service(&all_ports).unwrap();
    assert_eq!(lb.run(&with(frame.clone(), 37, 82)).0, XDP_DROP);
    assert!(lb.0.ring(9).unwrap().iter().all(|b| *b == 0));
    for (key, _) in lb.0.services().unwrap() {
        lb.0.remove_service(&key).unwrap();
    }
    assert_eq!(lb.run(&frame).0, XDP_PASS, "the address is nobody's again");
}
