//! What is read from a frame: whose it is, its mark, and whether its checksum was made.

use std::hash::{BuildHasher, RandomState};

use batchwise_core::burst::Sender;
use batchwise_core::burst::mark::CodePoints;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// What a frame says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Who sent it and segments that are left of its burst, this one included, where it is marked.
    pub burst: Option<(Sender, u32)>,
    /// What its checksum was made of, of TCP and UDP.
    pub checksum: Checksum,
}

/// The checksum of TCP or UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// There is none, or one of a fragment.
    #[default]
    None,
    /// Over the segment, right or wrong.
    Made,
    /// Over the pseudo-header alone: the sender left the rest to its card, and there is none
    /// (`CHECKSUM_PARTIAL`).
    Left,
}

/// Reads a frame, whose mark is one of these code points. `keys` are for hashes that senders cannot choose.
pub fn read(frame: &[u8], points: CodePoints, keys: &RandomState) -> Seen {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else {
        return Seen::default();
    };
    let mut addresses = [0; 32];
    let (tos, protocol, fragment) = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            addresses[..4].copy_from_slice(&header.source());
            addresses[16..20].copy_from_slice(&header.destination());
            let tos = header.dcp().value() << 2 | header.ecn().value();
            (tos, header.protocol().0, header.is_fragmenting_payload())
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            addresses[..16].copy_from_slice(&header.source());
            addresses[16..].copy_from_slice(&header.destination());
            let fragment = ip.is_payload_fragmented();
            (header.traffic_class(), ip.payload().ip_number.0, fragment)
        }
        _ => return Seen::default(),
    };
    let transport = packet.transport.as_ref().filter(|_| !fragment);
    let (ports, checksum) = match transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let ports = [tcp.source_port(), tcp.destination_port()];
            (ports, Some((tcp.checksum(), tcp.slice().len())))
        }
        Some(TransportSlice::Udp(udp)) => {
            let ports = [udp.source_port(), udp.destination_port()];
            (ports, Some((udp.checksum(), udp.slice().len())))
        }
        _ => ([0; 2], None),
    };
    let burst = points.segments(tos).map(|segments| {
        let sender = Sender {
            source: keys.hash_one(&addresses[..16]),
            flow: keys.hash_one((addresses, ports, protocol)),
        };
        (sender, segments)
    });
    let checksum = checksum.map_or(Checksum::None, |(sum, length)| {
        match sum == pseudo_header(&addresses, protocol, length) {
            true => Checksum::Left,
            false => Checksum::Made,
        }
    });
    Seen { burst, checksum }
}

/// The sum over the pseudo-header (RFC 9293, section 3.1; RFC 8200, section 8.1), not inverted.
fn pseudo_header(addresses: &[u8; 32], protocol: u8, length: usize) -> u16 {
    let words = addresses.chunks_exact(2);
    let sum = words.map(|w| u64::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum = sum.sum::<u64>() + u64::from(protocol) + length as u64;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use etherparse::{IpDscp, PacketBuilder};

    use super::*;

    const POINTS: CodePoints = CodePoints::Pool2;
    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    fn frame(dscp: u8, source: u8, port: u16, payload: &[u8]) -> Vec<u8> {
        let mut ip = etherparse::Ipv4Header::new(
            (20 + payload.len()) as u16,
            64,
            etherparse::IpNumber::TCP,
            [10, 0, 0, source],
            [10, 0, 0, 9],
        )
        .expect("a header");
        ip.dscp = IpDscp::try_new(dscp).expect("six bits");
        let ip = etherparse::IpHeaders::Ipv4(ip, Default::default());
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ethernet2(MACS[0], MACS[1]).ip(ip);
        builder
            .tcp(port, 80, 1, 1000)
            .write(&mut bytes, payload)
            .expect("a frame");
        bytes
    }

    /// Where TCP's checksum is in a frame without IP options.
    const CHECKSUM: std::ops::Range<usize> = 14 + 20 + 16..14 + 20 + 18;

    #[test]
    fn a_mark_names_its_burst_its_flow_and_its_source() {
        let keys = RandomState::new();
        let marked = POINTS.mark(0, 10).expect("a class") >> 2;
        let read = |source, port| {
            let seen = read(&frame(marked, source, port, b"x"), POINTS, &keys);
            seen.burst.expect("a mark")
        };
        let (sender, segments) = read(1, 1000);
        assert_eq!(segments, 10);
        assert_eq!(read(1, 1000).0, sender);
        let other_flow = read(1, 1001).0;
        assert_eq!(other_flow.source, sender.source);
        assert_ne!(other_flow.flow, sender.flow);
        assert_ne!(read(2, 1000).0.source, sender.source);
    }

    #[test]
    fn what_is_not_marked_or_not_ip_is_of_no_burst() {
        let keys = RandomState::new();
        for dscp in [0, 46, 0b000001] {
            let seen = read(&frame(dscp, 1, 1000, b"x"), POINTS, &keys);
            assert_eq!(seen.burst, None, "{dscp}");
        }
        let chosen = read(&frame(0b000001, 1, 1000, b"x"), CodePoints::Pool3, &keys);
        assert_eq!(chosen.burst.map(|(_, segments)| segments), Some(2));
        assert_eq!(read(&[0; 60], POINTS, &keys), Seen::default());
        assert_eq!(read(&[], POINTS, &keys), Seen::default());
    }

    #[test]
    fn a_checksum_that_was_left_to_the_card_is_told_from_one_that_was_made() {
        let keys = RandomState::new();
        let mut bytes = frame(0, 1, 1000, b"a request");
        assert_eq!(read(&bytes, POINTS, &keys).checksum, Checksum::Made);
        bytes[CHECKSUM].copy_from_slice(&[0, 0]);
        assert_eq!(read(&bytes, POINTS, &keys).checksum, Checksum::Made);
        // 10.0 + 0.1 + 10.0 + 0.9, TCP, 20 + 9 bytes
        let left: u16 = 2 * 0x0a00 + 1 + 9 + 6 + 29;
        bytes[CHECKSUM].copy_from_slice(&left.to_be_bytes());
        assert_eq!(read(&bytes, POINTS, &keys).checksum, Checksum::Left);
    }
}
