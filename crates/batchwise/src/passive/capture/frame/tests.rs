//! Frames of every kind, and whatever else a capture may hold.

use etherparse::{PacketBuilder, PacketBuilderStep};

use super::*;

const CLIENT: [u8; 4] = [10, 0, 0, 2];
const SERVER: [u8; 4] = [10, 0, 0, 1];

fn ethernet() -> PacketBuilderStep<etherparse::Ethernet2Header> {
    PacketBuilder::ethernet2([2; 6], [4; 6])
}

fn bytes(step: PacketBuilderStep<etherparse::TcpHeader>, payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let step = step.ack(77);
    step.write(&mut bytes, &vec![9; payload]).expect("a packet");
    bytes
}

fn over_ipv4(payload: usize) -> Vec<u8> {
    let step = ethernet().ipv4(CLIENT, SERVER, 64);
    bytes(step.tcp(40_000, 80, 1234, 500), payload)
}

fn expected(payload: u32) -> Segment {
    Segment {
        from: SocketAddr::from((CLIENT, 40_000)),
        to: SocketAddr::from((SERVER, 80)),
        ip_length: 40 + payload,
        payload,
        tcp: Some(Tcp {
            sequence: 1234,
            acknowledged: 77,
            syn: false,
            ack: true,
            fin: false,
            rst: false,
        }),
    }
}

fn whole(link: DataLink, bytes: &[u8]) -> Frame {
    dissect(link, bytes, bytes.len() as u32)
}

#[test]
fn tcp_over_ipv4_is_read_with_vlan_tags_and_without() {
    let plain = over_ipv4(10);
    assert_eq!(
        whole(DataLink::ETHERNET, &plain),
        Frame::Segment(expected(10))
    );
    let tagged = ethernet()
        .double_vlan(etherparse::VlanId::ZERO, etherparse::VlanId::ZERO)
        .ipv4(CLIENT, SERVER, 64)
        .tcp(40_000, 80, 1234, 500);
    let tagged = bytes(tagged, 10);
    assert_eq!(
        whole(DataLink::ETHERNET, &tagged),
        Frame::Segment(expected(10))
    );
}

#[test]
fn a_datagram_that_ends_before_its_packet_has_the_payload_that_it_says() {
    let step = ethernet().ipv4(CLIENT, SERVER, 64).udp(40_000, 80);
    let mut bytes = Vec::new();
    step.write(&mut bytes, &[9; 20]).expect("a packet");
    let payload = |bytes: &[u8]| match whole(DataLink::ETHERNET, bytes) {
        Frame::Segment(segment) => Some((segment.payload, segment.ip_length)),
        _ => None,
    };
    assert_eq!(payload(&bytes), Some((20, 48)));
    let length = 14 + 20 + 5;
    for (declared, read) in [(8 + 2, Some((2, 48))), (8 + 21, None), (7, None)] {
        bytes[length] = declared;
        assert_eq!(payload(&bytes), read, "{declared}");
    }
}

#[test]
fn raw_cooked_and_loopback_captures_hold_the_same() {
    let ip = &over_ipv4(10)[14..];
    let cooked: Vec<u8> = [&[0; 14][..], &[8, 0], ip].concat();
    let cooked2: Vec<u8> = [&[8, 0][..], &[0; 18], ip].concat();
    let loopback: Vec<u8> = [&[2, 0, 0, 0][..], ip].concat();
    for (link, bytes) in [
        (DataLink::RAW, ip),
        (DataLink::IPV4, ip),
        (DataLink::Unknown(12), ip),
        (DataLink::LINUX_SLL, &cooked),
        (DataLink::LINUX_SLL2, &cooked2),
        (DataLink::NULL, &loopback),
    ] {
        assert!(is_known(link));
        assert_eq!(whole(link, bytes), Frame::Segment(expected(10)), "{link:?}");
    }
    assert!(!is_known(DataLink::IEEE802_11));
}

#[test]
fn udp_over_ipv6_is_read() {
    let mut bytes = Vec::new();
    ethernet()
        .ipv6([1; 16], [2; 16], 64)
        .udp(5_000, 443)
        .write(&mut bytes, &[0; 30])
        .expect("a packet");
    let Frame::Segment(segment) = whole(DataLink::ETHERNET, &bytes) else {
        panic!("no segment");
    };
    assert_eq!(segment.to, SocketAddr::from(([2; 16], 443)));
    assert_eq!(
        (segment.payload, segment.ip_length, segment.tcp),
        (30, 78, None)
    );
    assert_eq!(segment.transport(), Transport::Udp);
}

#[test]
fn padding_is_no_payload_and_a_snap_length_hides_none() {
    let mut padded = over_ipv4(0);
    padded.resize(60, 0);
    assert_eq!(
        whole(DataLink::ETHERNET, &padded),
        Frame::Segment(expected(0))
    );
    let long = over_ipv4(1400);
    let cut = dissect(DataLink::ETHERNET, &long[..64], long.len() as u32);
    assert_eq!(cut, Frame::Segment(expected(1400)));
}

#[test]
fn fragments_other_protocols_and_contradictions_are_told_apart() {
    let mut fragment = over_ipv4(10);
    fragment[20] = 0x20; // more to come
    assert_eq!(whole(DataLink::ETHERNET, &fragment), Frame::Fragment);
    let mut other = over_ipv4(10);
    other[23] = 132; // SCTP
    assert_eq!(whole(DataLink::ETHERNET, &other), Frame::Other);
    let mut arp = over_ipv4(10);
    arp[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert_eq!(whole(DataLink::ETHERNET, &arp), Frame::Other);
    let mut short = over_ipv4(10);
    short[17] = 30; // an IP packet that ends within the TCP header
    assert_eq!(whole(DataLink::ETHERNET, &short), Frame::Malformed);
    let mut long = over_ipv4(10);
    long[16] = 5; // an IP packet longer than its frame
    assert_eq!(whole(DataLink::ETHERNET, &long), Frame::Malformed);
    let cut = &over_ipv4(10)[..40];
    assert_eq!(dissect(DataLink::ETHERNET, cut, 64), Frame::Malformed);
}

proptest::proptest! {
    #[test]
    fn whatever_a_frame_holds_it_is_something(
        link in proptest::sample::select(vec![0u32, 1, 12, 101, 108, 113, 228, 229, 276]),
        payload in 0usize..100,
        changes in proptest::collection::vec((0usize..60, proptest::num::u8::ANY), 0..6),
        length in proptest::num::u32::ANY,
        kept in 0usize..160,
    ) {
        let mut frame = over_ipv4(payload);
        for (at, value) in changes {
            let at = at % frame.len();
            frame[at] = value;
        }
        frame.truncate(kept);
        if let Frame::Segment(segment) = dissect(link.into(), &frame, length) {
            proptest::prop_assert!(segment.payload < segment.ip_length);
        }
    }
}
