//! From a captured frame to what the estimator needs of it: who sends to whom, how much payload, and
//! what TCP says of it.

use std::net::{IpAddr, SocketAddr};

use batchwise_core::passive::Transport;
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_file::DataLink;

/// A segment or datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub from: SocketAddr,
    pub to: SocketAddr,
    /// Bytes of the IP packet on the wire.
    pub ip_length: u32,
    /// Of these, payload.
    pub payload: u32,
    /// What TCP says; `None` for UDP.
    pub tcp: Option<Tcp>,
}

impl Segment {
    pub const fn transport(&self) -> Transport {
        match self.tcp {
            Some(_) => Transport::Tcp,
            None => Transport::Udp,
        }
    }
}

/// Of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    pub sequence: u32,
    pub acknowledged: u32,
    pub syn: bool,
    pub ack: bool,
    pub fin: bool,
    pub rst: bool,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// TCP or UDP.
    Segment(Segment),
    /// A piece of an IP packet.
    Fragment,
    /// Neither TCP nor UDP over IP.
    Other,
    /// Its headers are cut off or contradict each other.
    Malformed,
}

/// Whether frames of this link type can be read.
pub const fn is_known(link: DataLink) -> bool {
    use DataLink::{ETHERNET, IPV4, IPV6, LINUX_SLL, LINUX_SLL2, LOOP, NULL, RAW};
    matches!(
        link,
        ETHERNET | LINUX_SLL | LINUX_SLL2 | RAW | IPV4 | IPV6 | NULL | LOOP
    ) || is_old_raw(link)
}

/// DLT_RAW has other numbers on some systems, which old programs put into files.
const fn is_old_raw(link: DataLink) -> bool {
    matches!(link, DataLink::Unknown(12 | 14))
}

/// Takes a frame apart. `length` is its length on the wire.
pub fn dissect(link: DataLink, data: &[u8], length: u32) -> Frame {
    let sliced = match link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok(),
        DataLink::LINUX_SLL => cooked(data, 14, 16),
        DataLink::LINUX_SLL2 => cooked(data, 0, 20),
        DataLink::NULL | DataLink::LOOP => data.get(4..).and_then(ip),
        _ => ip(data),
    };
    let Some(sliced) = sliced else {
        return Frame::Malformed;
    };
    let payload = sliced.net.as_ref().and_then(LaxNetSlice::ip_payload_ref);
    let Some(payload) = payload else {
        return match sliced.stop_err {
            Some(_) => Frame::Malformed,
            None => Frame::Other,
        };
    };
    if payload.fragmented {
        return Frame::Fragment;
    }
    let cut = (length as usize).saturating_sub(data.len());
    let Some(ip) = Ip::of(&sliced, cut).filter(|ip| ip.length <= length as usize) else {
        return Frame::Malformed;
    };
    let (from, to, header, tcp) = match &sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let said = Tcp {
                sequence: tcp.sequence_number(),
                acknowledged: tcp.acknowledgment_number(),
                syn: tcp.syn(),
                ack: tcp.ack(),
                fin: tcp.fin(),
                rst: tcp.rst(),
            };
            let length = tcp.header_slice().len();
            (
                tcp.source_port(),
                tcp.destination_port(),
                length,
                Some(said),
            )
        }
        Some(TransportSlice::Udp(udp)) => {
            let length = udp.header_slice().len();
            (udp.source_port(), udp.destination_port(), length, None)
        }
        _ if sliced.stop_err.is_some() => return Frame::Malformed,
        _ => return Frame::Other,
    };
    // a datagram may end before its packet does (RFC 9868)
    let rest = ip.length - ip.headers;
    let declared = match &sliced.transport {
        Some(TransportSlice::Udp(udp)) if udp.length() > 0 => usize::from(udp.length()),
        _ => rest,
    };
    let payload = declared.checked_sub(header);
    let Some(payload) = payload.filter(|_| declared <= rest) else {
        return Frame::Malformed;
    };
    Frame::Segment(Segment {
        from: SocketAddr::new(ip.from, from),
        to: SocketAddr::new(ip.to, to),
        // both at most `length`
        ip_length: ip.length as u32,
        payload: payload as u32,
        tcp,
    })
}

fn ip(data: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    LaxSlicedPacket::from_ip(data).ok()
}

/// Linux's cooked captures: a header with an EtherType in it.
fn cooked(data: &[u8], protocol: usize, header: usize) -> Option<LaxSlicedPacket<'_>> {
    let rest = data.get(header..)?;
    let protocol = u16::from_be_bytes([data[protocol], data[protocol + 1]]);
    Some(LaxSlicedPacket::from_ether_type(EtherType(protocol), rest))
}

/// What the IP headers say. A capture may hold fewer bytes (snap length), Ethernet more (padding).
struct Ip {
    from: IpAddr,
    to: IpAddr,
    /// Bytes, headers included.
    length: usize,
    /// Bytes of headers and extension headers; at most `length`.
    headers: usize,
}

impl Ip {
    /// `cut`: bytes that were not captured.
    fn of(sliced: &LaxSlicedPacket<'_>, cut: usize) -> Option<Self> {
        let net = sliced.net.as_ref()?;
        let captured = net.ip_payload_ref()?.payload.len();
        let (from, to, declared, headers) = match net {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                let extension = ip.extensions().auth.map_or(0, |auth| auth.slice().len());
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                    usize::from(header.total_len()),
                    header.slice().len() + extension,
                )
            }
            LaxNetSlice::Ipv6(ip) => {
                let (header, length) = (ip.header(), ip.header().payload_length());
                let fixed = header.slice().len();
                (
                    header.source_addr().into(),
                    header.destination_addr().into(),
                    if length == 0 {
                        0
                    } else {
                        fixed + usize::from(length)
                    },
                    fixed + ip.extensions().slice().len(),
                )
            }
            LaxNetSlice::Arp(_) => return None,
        };
        // Linux gives packets of 64 KiB and more no length.
        let length = match declared {
            0 => headers + captured + cut,
            declared => declared,
        };
        (headers <= length).then_some(Self {
            from,
            to,
            length,
            headers,
        })
    }
}

#[cfg(test)]
mod tests;
