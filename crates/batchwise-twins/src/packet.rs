//! What `lib/packet.h`, `lib/icmp.h`, `lib/tos.h` and `decap/tunnel.h` read, asked as the programs ask it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use batchwise_reference::packet::Read;

use crate::types::{bw_packet, bw_tuple};

/// As aligned as the C side has it: the generated type does not know of it.
#[repr(align(8))]
struct Aligned<T>(T);

/// What it reads from a frame that is all there.
pub fn read(frame: &[u8]) -> Option<Read> {
    let mut packet = Aligned(bw_packet::default());
    // SAFETY: so many bytes can be read, and `packet` is aligned.
    let parsed =
        unsafe { crate::bw_twin_packet(frame.as_ptr(), frame.len() as u32, &mut packet.0) };
    let p = &packet.0;
    let whole = parsed == 0 && (p.link + p.length) as usize <= frame.len();
    // FIN, SYN, RST, ACK
    let flags = [0x01, 0x02, 0x04, 0x10].map(|bit| p.flags & bit != 0);
    whole.then_some(Read {
        src: p.tuple.src,
        dst: p.tuple.dst,
        ports: (p.tuple.sport, p.tuple.dport),
        protocol: p.tuple.proto,
        link: p.link as usize,
        payload: p.payload as usize,
        tcp: (p.tuple.proto == 6).then_some((p.seq, p.ack, flags)),
    })
}

/// Client and server of the connection that an ICMP error is about, which begins here.
pub fn quoted(icmp: &[u8], v6: bool) -> Option<[SocketAddr; 2]> {
    let mut tuple = Aligned(bw_tuple::default());
    // SAFETY: so many bytes can be read, at least a header, and `tuple` is aligned.
    let found = icmp.len() >= 8
        && unsafe {
            let (at, len) = (icmp.as_ptr(), icmp.len() as u32);
            crate::bw_twin_quoted(at, len, v6.into(), &mut tuple.0)
        } == 0;
    let t = &tuple.0;
    let end = |ip: [u8; 16], port| SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port);
    found.then(|| [end(t.src, t.sport), end(t.dst, t.dport)])
}

/// Source and destination of an IP packet that is a tunnel's, and the destination of the packet inside.
pub fn tunnel(packet: &[u8], v6: bool) -> Option<[IpAddr; 3]> {
    let mut ends = [0; 48];
    // SAFETY: so many bytes can be read, and `ends` is as long as it says.
    let is_one = unsafe {
        crate::bw_twin_tunnel(packet.as_ptr(), packet.len() as u32, v6.into(), &mut ends)
    } != 0;
    let end = |at: usize| {
        let octets: [u8; 16] = ends[at..at + 16].try_into().expect("16 bytes");
        Ipv6Addr::from(octets).to_canonical()
    };
    is_one.then(|| [end(0), end(16), end(32)])
}

/// The TOS or traffic class.
pub fn tos(frame: &[u8]) -> Option<u8> {
    // SAFETY: so many bytes can be read.
    let tos = unsafe { crate::bw_twin_tos(frame.as_ptr(), frame.len() as u32) };
    u8::try_from(tos).ok()
}
