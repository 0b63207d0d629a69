//! Tunnels: frames in, and what is in the outer header of those that come out.

use std::collections::HashSet;

use batchwise_bpf::balance::{Backend, Method};
use etherparse::{NetSlice, SlicedPacket};

use super::setup::{Lb, XDP_TX, backend, ip, requests};
use crate::frames::{ACK, Segment, tcp, tcp_frame};

fn tunnel(address: &str, source: &str) -> Backend {
    Backend {
        address: ip(address),
        source: ip(source),
        method: Method::Ipip,
        ..backend(7)
    }
}

pub fn to_v4() -> Backend {
    tunnel("192.0.2.7", "192.0.2.1")
}

pub fn to_v6() -> Backend {
    tunnel("2001:db8::7", "2001:db8::1")
}

/// What is in the outer header, after all of that was checked.
pub fn outer(out: &[u8], to: &Backend) -> Vec<u8> {
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

/// Of 200 connections, each twice, what `of` reads of the frame out; that it is the same both times.
fn told_apart<T: PartialEq + std::fmt::Debug>(lb: &Lb, of: impl Fn(&[u8]) -> T) -> Vec<T> {
    let one = |sport: u16, payload| {
        let (verdict, out) = lb.run(&tcp_frame(tcp(sport, ACK, payload)));
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
