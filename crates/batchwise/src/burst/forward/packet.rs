//! What is read from a frame: whose it is, its mark, and whether its checksum was made.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use batchwise_core::burst::Sender;
use batchwise_core::burst::mark::CodePoints;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;

/// What a frame says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Who sent it and segments that are left of its burst, this one included, where it is marked.
    pub burst: Option<(Sender, u32)>,
    /// Its source, where it is marked.
    pub source: Option<IpAddr>,
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

/// Reads marks and whose they are.
pub struct Reader {
    points: CodePoints,
    /// For hashes that senders cannot choose.
    keys: RandomState,
}

impl Reader {
    /// Of marks with these code points.
    pub fn new(points: CodePoints) -> Self {
        Self {
            points,
            keys: RandomState::new(),
        }
    }

    /// Reads a frame.
    pub fn read(&self, frame: &[u8]) -> Seen {
        let Ok(packet) = SlicedPacket::from_ethernet(frame) else {
            return Seen::default();
        };
        let mut addresses = [0; 32];
        let (source, tos, protocol, fragment) = match &packet.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                let source = IpAddr::from(header.source());
                addresses[..4].copy_from_slice(&header.source());
                addresses[16..20].copy_from_slice(&header.destination());
                let tos = header.dcp().value() << 2 | header.ecn().value();
                let fragment = header.is_fragmenting_payload();
                (source, tos, header.protocol().0, fragment)
            }
            Some(NetSlice::Ipv6(ip)) => {
                let header = ip.header();
                addresses[..16].copy_from_slice(&header.source());
                addresses[16..].copy_from_slice(&header.destination());
                let (source, fragment) = (header.source().into(), ip.is_payload_fragmented());
                let protocol = ip.payload().ip_number.0;
                (source, header.traffic_class(), protocol, fragment)
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
        let burst = self.points.segments(tos).map(|segments| {
            let sender = Sender {
                source: self.keys.hash_one(&addresses[..16]),
                flow: self.keys.hash_one((addresses, ports, protocol)),
            };
            (sender, segments)
        });
        let checksum = checksum.map_or(Checksum::None, |(sum, length)| {
            match sum == pseudo_header(&addresses, protocol, length) {
                true => Checksum::Left,
                false => Checksum::Made,
            }
        });
        Seen {
            burst,
            source: burst.map(|_| source),
            checksum,
        }
    }

    /// Takes a frame's mark off, if it has one; whether it had. Up to two VLAN tags are looked behind.
    pub fn unmark(&self, frame: &mut [u8]) -> bool {
        let is_tag = |kind: [u8; 2]| matches!(kind, [0x81, 0] | [0x88, 0xa8]);
        let kind = |at: usize| Some([*frame.get(at - 2)?, *frame.get(at - 1)?]);
        let ends = [ETHERNET, ETHERNET + VLAN_TAG, ETHERNET + 2 * VLAN_TAG];
        let Some(at) = ends.into_iter().find(|at| !kind(*at).is_some_and(is_tag)) else {
            return false;
        };
        let kind = kind(at);
        let Some(ip) = frame.get_mut(at..).filter(|ip| ip.len() >= 12) else {
            return false;
        };
        match kind {
            Some([8, 0]) => {
                let (tos, was) = (self.points.unmark(ip[1]), ip[1]);
                // RFC 1624, equation 3
                let sum = !u16::from_be_bytes([ip[10], ip[11]]);
                let sum = u32::from(sum) + u32::from(!u16::from(was)) + u32::from(tos);
                let sum = (sum & 0xffff) + (sum >> 16);
                let sum = !((sum + (sum >> 16)) as u16);
                if tos != was {
                    ip[1] = tos;
                    ip[10..12].copy_from_slice(&sum.to_be_bytes());
                }
                tos != was
            }
            Some([0x86, 0xdd]) => {
                let was = ip[0] << 4 | ip[1] >> 4;
                let tos = self.points.unmark(was);
                ip[0] = ip[0] & 0xf0 | tos >> 4;
                ip[1] = tos << 4 | ip[1] & 0xf;
                tos != was
            }
            _ => false,
        }
    }
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

    #[test]
    fn a_mark_that_is_taken_off_leaves_a_right_header_and_ecn() {
        let reader = Reader::new(POINTS);
        let marked = POINTS.mark(0b10, 10).expect("a class");
        let mut bytes = frame(marked >> 2, 1, 1000, b"x");
        bytes[15] |= 0b10;
        let header = etherparse::Ipv4HeaderSlice::from_slice(&bytes[14..]).expect("a header");
        let sum = header.to_header().calc_header_checksum();
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        let mut tagged = bytes.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        for (frame, at) in [(&mut bytes, 14), (&mut tagged, 18)] {
            assert!(reader.read(frame).burst.is_some());
            assert!(reader.unmark(frame));
            assert!(!reader.unmark(frame), "it is off");
            assert_eq!(reader.read(frame).burst, None);
            let header = etherparse::Ipv4HeaderSlice::from_slice(&frame[at..]).expect("a header");
            assert_eq!((header.dcp().value(), header.ecn().value()), (0, 0b10));
            let right = header.to_header().calc_header_checksum();
            assert_eq!(header.header_checksum(), right);
        }
        let mut v6 = vec![0; 14 + 40];
        v6[12..16].copy_from_slice(&[0x86, 0xdd, 0x60 | marked >> 4, marked << 4 | 0xf]);
        assert!(reader.unmark(&mut v6));
        assert_eq!(v6[14..16], [0x60, 0b10 << 4 | 0xf]);
        for mut short in [vec![], vec![0; 13], vec![0; 20]] {
            assert!(!reader.unmark(&mut short));
        }
    }

    /// Where TCP's checksum is in a frame without IP options.
    const CHECKSUM: std::ops::Range<usize> = 14 + 20 + 16..14 + 20 + 18;

    #[test]
    fn a_mark_names_its_burst_its_flow_and_its_source() {
        let reader = Reader::new(POINTS);
        let marked = POINTS.mark(0, 10).expect("a class") >> 2;
        let read = |source, port| {
            let seen = reader.read(&frame(marked, source, port, b"x"));
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
        let reader = Reader::new(POINTS);
        for dscp in [0, 46, 0b000001] {
            let seen = reader.read(&frame(dscp, 1, 1000, b"x"));
            assert_eq!(seen.burst, None, "{dscp}");
        }
        let chosen = Reader::new(CodePoints::Pool3);
        let chosen = chosen.read(&frame(0b000001, 1, 1000, b"x"));
        assert_eq!(chosen.burst.map(|(_, segments)| segments), Some(2));
        assert_eq!(reader.read(&[0; 60]), Seen::default());
        assert_eq!(reader.read(&[]), Seen::default());
    }

    #[test]
    fn a_checksum_that_was_left_to_the_card_is_told_from_one_that_was_made() {
        let reader = Reader::new(POINTS);
        let mut bytes = frame(0, 1, 1000, b"a request");
        assert_eq!(reader.read(&bytes).checksum, Checksum::Made);
        bytes[CHECKSUM].copy_from_slice(&[0, 0]);
        assert_eq!(reader.read(&bytes).checksum, Checksum::Made);
        // 10.0 + 0.1 + 10.0 + 0.9, TCP, 20 + 9 bytes
        let left: u16 = 2 * 0x0a00 + 1 + 9 + 6 + 29;
        bytes[CHECKSUM].copy_from_slice(&left.to_be_bytes());
        assert_eq!(reader.read(&bytes).checksum, Checksum::Left);
    }
}
