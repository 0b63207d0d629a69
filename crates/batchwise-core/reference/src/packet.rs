//! What a frame says, by another parser (etherparse): the reference for `lib/packet.h` of batchwise-bpf.

use etherparse::{EtherType, LinkExtSlice, NetSlice, SlicedPacket, TransportSlice, ether_type};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Of a TCP segment or a UDP datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Addresses; IPv4's are mapped.
    pub src: [u8; 16],
    /// As `src`.
    pub dst: [u8; 16],
    /// Of the source and of the destination.
    pub ports: (u16, u16),
    /// IP's number of it.
    pub protocol: u8,
    /// Bytes before the IP header.
    pub link: usize,
    /// Bytes.
    pub payload: usize,
    /// Sequence number, acknowledgment, FIN, SYN, RST, ACK.
    pub tcp: Option<(u32, u32, [bool; 4])>,
}

/// What etherparse reads, within the limits that packet.h states.
pub fn read(frame: &[u8]) -> Option<Read> {
    let sliced = SlicedPacket::from_ethernet(frame).ok()?;
    let tag = |kind: EtherType| {
        [ether_type::VLAN_TAGGED_FRAME, ether_type::PROVIDER_BRIDGING].contains(&kind)
    };
    let mut kind = EtherType(u16::from_be_bytes([frame[12], frame[13]]));
    for extension in &sliced.link_exts {
        let LinkExtSlice::Vlan(vlan) = extension else {
            return None;
        };
        if !tag(kind) {
            return None;
        }
        kind = vlan.ether_type();
    }
    if sliced.link_exts.len() > 2 {
        return None;
    }
    let (src, dst) = match sliced.net.as_ref()? {
        NetSlice::Ipv4(ip) if ip.extensions().auth.is_none() => (
            ip.header().source_addr().to_ipv6_mapped().octets(),
            ip.header().destination_addr().to_ipv6_mapped().octets(),
        ),
        NetSlice::Ipv6(ip)
            if ip.header().payload_length() > 0
                && ip.extensions().clone().into_iter().count() <= 6 =>
        {
            (ip.header().source(), ip.header().destination())
        }
        _ => return None,
    };
    let link = 14 + 4 * sliced.link_exts.len();
    match sliced.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => Some(Read {
            src,
            dst,
            ports: (tcp.source_port(), tcp.destination_port()),
            protocol: TCP,
            link,
            payload: tcp.payload().len(),
            tcp: Some((
                tcp.sequence_number(),
                tcp.acknowledgment_number(),
                [tcp.fin(), tcp.syn(), tcp.rst(), tcp.ack()],
            )),
        }),
        TransportSlice::Udp(udp) if udp.length() > 0 => Some(Read {
            src,
            dst,
            ports: (udp.source_port(), udp.destination_port()),
            protocol: UDP,
            link,
            payload: udp.payload().len(),
            tcp: None,
        }),
        _ => None,
    }
}
