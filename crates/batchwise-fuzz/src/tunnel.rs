//! Tunnels: `decap` takes off what etherparse calls an outer header, and only that. The first byte says
//! whether the packet is IPv6.

use std::net::{IpAddr, Ipv6Addr};

use batchwise_twins::packet::tunnel;
use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice};

pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    // memory of its own: the sanitizer sees what reads beyond it
    let packet: Box<[u8]> = rest.into();
    let v6 = first & 1 != 0;
    let expected = if v6 {
        over_v6(&packet)
    } else {
        over_v4(&packet)
    };
    assert_eq!(tunnel(&packet, v6), expected);
}

fn over_v4(packet: &[u8]) -> Option<[IpAddr; 3]> {
    let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
    // over the bytes: etherparse forgets the reserved flag
    let words = ip.slice().chunks_exact(2);
    let sum = words.map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum = sum.sum::<u32>();
    let is_whole = ip.options().is_empty()
        && !ip.is_fragmenting_payload()
        && (sum & 0xffff) + (sum >> 16) == 0xffff;
    let inside = packet.get(20..ip.total_len().into()).filter(|_| is_whole)?;
    let inner = inner(ip.protocol(), inside)?;
    Some([ip.source_addr().into(), ip.destination_addr().into(), inner])
}

fn over_v6(packet: &[u8]) -> Option<[IpAddr; 3]> {
    let ip = Ipv6HeaderSlice::from_slice(packet).ok()?;
    let inside = packet.get(40..40 + usize::from(ip.payload_length()))?;
    let inner = inner(ip.next_header(), inside)?;
    Some([own(ip.source_addr())?, own(ip.destination_addr())?, inner])
}

/// Where the packet inside goes.
fn inner(protocol: IpNumber, packet: &[u8]) -> Option<IpAddr> {
    match protocol {
        IpNumber::IPV4 => {
            let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
            let lengths = ip.slice().len()..=packet.len();
            lengths
                .contains(&ip.total_len().into())
                .then(|| ip.destination_addr().into())
        }
        IpNumber::IPV6 => {
            let ip = Ipv6HeaderSlice::from_slice(packet).ok()?;
            let fits = 40 + usize::from(ip.payload_length()) <= packet.len();
            own(ip.destination_addr()).filter(|_| fits)
        }
        _ => None,
    }
}

/// IPv4 addresses that are mapped are no packet's.
fn own(address: Ipv6Addr) -> Option<IpAddr> {
    address.to_ipv4_mapped().is_none().then_some(address.into())
}
