//! ICMP errors, which quote a packet: the balancer's BPF program finds the same connection in them as
//! etherparse. The first byte says whether it is ICMPv6.

use std::net::{IpAddr, SocketAddr};

use batchwise_twins::packet::quoted;
use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice};

pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    // memory of its own: the sanitizer sees what reads beyond it
    let icmp: Box<[u8]> = rest.into();
    let v6 = first & 1 != 0;
    let expected = icmp.get(8..).and_then(|packet| match v6 {
        false => {
            let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
            let first = ip.fragments_offset().value() == 0;
            let ends = [ip.destination_addr().into(), ip.source_addr().into()];
            let payload = packet.get(ip.slice().len()..).filter(|_| first)?;
            ports(ends, ip.protocol(), payload)
        }
        true => {
            let ip = Ipv6HeaderSlice::from_slice(packet).ok()?;
            let ends = [ip.destination_addr(), ip.source_addr()].map(|ip| ip.to_canonical());
            ports(ends, ip.next_header(), packet.get(40..)?)
        }
    });
    assert_eq!(quoted(&icmp, v6), expected);
}

/// Client and server: the server sent what is quoted.
fn ports(ends: [IpAddr; 2], protocol: IpNumber, payload: &[u8]) -> Option<[SocketAddr; 2]> {
    let &[s0, s1, c0, c1, _, _, _, _] = payload.first_chunk()?;
    let known = [IpNumber::TCP, IpNumber::UDP].contains(&protocol);
    let port = |bytes| u16::from_be_bytes(bytes);
    known.then(|| {
        [
            SocketAddr::new(ends[0], port([c0, c1])),
            SocketAddr::new(ends[1], port([s0, s1])),
        ]
    })
}
