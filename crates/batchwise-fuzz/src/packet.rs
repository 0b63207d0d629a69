//! Frames from the wire: the BPF programs' parser, its reference, that of captures and etherparse read the
//! same, as far as each reads it.

use std::net::{IpAddr, SocketAddr};

use batchwise::fuzzing;
use batchwise_core::burst::mark::CodePoints;
use batchwise_reference::packet as reference;
use batchwise_twins::{bw_twin_burst_segments, packet as twin};
use etherparse::{NetSlice, SlicedPacket};

pub fn run(data: &[u8]) {
    // memory of its own: the sanitizer sees what reads beyond it
    let frame: Box<[u8]> = data.into();
    let read = twin::read(&frame);
    assert_eq!(read, reference::read(&frame));
    let segment = fuzzing::dissect(&frame);
    if let Some(read) = read {
        let segment = segment.expect("a capture is read more laxly");
        // IPv4 over IPv6, mapped, is IPv4 to the program
        let end = |at: SocketAddr| match at.ip() {
            IpAddr::V4(ip) => (ip.to_ipv6_mapped().octets(), at.port()),
            IpAddr::V6(ip) => (ip.octets(), at.port()),
        };
        assert_eq!(end(segment.from), (read.src, read.ports.0));
        assert_eq!(end(segment.to), (read.dst, read.ports.1));
        assert_eq!(segment.payload as usize, read.payload);
        let tcp = segment.tcp.map(|t| {
            let flags = [t.fin, t.syn, t.rst, t.ack];
            (t.sequence, t.acknowledged, flags)
        });
        assert_eq!(tcp, read.tcp);
    }
    let tos = twin::tos(&frame);
    if let (Some(twin), Some(other)) = (tos, other_tos(&frame)) {
        assert_eq!(twin, other);
    }
    for points in CodePoints::ALL {
        let twin = tos.map(|tos| bw_twin_burst_segments(tos, points.low().into()));
        let core = tos.map(|tos| points.segments(tos).unwrap_or(0));
        assert_eq!(twin, core);
    }
}

/// The TOS or traffic class that etherparse reads.
fn other_tos(frame: &[u8]) -> Option<u8> {
    match SlicedPacket::from_ethernet(frame).ok()?.net? {
        NetSlice::Ipv4(ip) => Some(ip.header().dcp().value() << 2 | ip.header().ecn().value()),
        NetSlice::Ipv6(ip) => Some(ip.header().traffic_class()),
        NetSlice::Arp(_) => None,
    }
}
