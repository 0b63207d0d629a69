//! The decapsulator: packet in, packet out, and packets that arrive over a link. Needs root.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use batchwise_bpf::decap::{Decap, DecapConfig, Fates};
use etherparse::{Ipv4Header, PacketBuilder};

use crate::frames::{self, Segment, TCP, VLAN, ethernet, ethernet_of, v4, v6};
use crate::kernel::{self, XDP_PASS, in_own_network, need_root};

const IPIP: u8 = 4;
const IPV6: u8 = 41;
/// Of whole IPv4 packets: may not be divided.
const DF: u16 = 0x4000;

const BALANCER: [u8; 4] = [10, 9, 0, 1];
const SERVER: [u8; 4] = [10, 9, 0, 2];
const BALANCER6: [u16; 8] = [0xfd09, 0, 0, 0, 0, 0, 0, 1];
const SERVER6: [u16; 8] = [0xfd09, 0, 0, 0, 0, 0, 0, 2];
/// Where the packets of `frames` go: the service.
const SERVICE: [u8; 4] = [10, 0, 0, 1];
const SERVICE6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 1];

fn config() -> DecapConfig {
    DecapConfig {
        interface: String::new(),
        from: vec![(BALANCER.into(), 32), (BALANCER6.into(), 64)],
        local: vec![
            SERVER.into(),
            SERVER6.into(),
            SERVICE.into(),
            SERVICE6.into(),
        ],
    }
}

fn decap() -> Decap {
    need_root();
    Decap::load(&config()).unwrap_or_else(|e| panic!("{e}"))
}

/// An IPv4 header and what follows it; `edit` may spoil the header before its checksum is made.
fn outer4(protocol: u8, inside: &[u8], edit: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut header = Ipv4Header::new(inside.len() as u16, 64, protocol.into(), BALANCER, SERVER)
        .expect("it fits")
        .to_bytes()
        .to_vec();
    edit(&mut header);
    header[10..12].fill(0);
    let sum: u32 = header
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, inside].concat()
}

fn tunnel4(protocol: u8, inside: &[u8]) -> Vec<u8> {
    ethernet(&[], &outer4(protocol, inside, |_| ()))
}

fn outer6(protocol: u8, source: [u16; 8], target: [u16; 8], inside: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((inside.len() as u16).to_be_bytes());
    header.extend([protocol, 64]);
    header.extend(source.iter().chain(&target).flat_map(|w| w.to_be_bytes()));
    header.extend(inside);
    header
}

fn tunnel6(protocol: u8, inside: &[u8]) -> Vec<u8> {
    ethernet(&[], &outer6(protocol, BALANCER6, SERVER6, inside))
}

fn inner4() -> Vec<u8> {
    v4(TCP, 0, DF, &Segment::default().bytes())
}

fn inner6() -> Vec<u8> {
    v6(&[], TCP, &Segment::default().bytes())
}

fn only(set: impl Fn(&mut Fates)) -> Fates {
    let mut fates = Fates::default();
    set(&mut fates);
    fates
}

fn assert_unchanged(name: &str, frame: &[u8], fate: Fates) {
    let decap = decap();
    let (verdict, out) = kernel::run(decap.program(), frame);
    assert_eq!(verdict, XDP_PASS, "{name}");
    assert_eq!(out, frame, "{name}: it was changed");
    assert_eq!(decap.counters().unwrap(), fate, "{name}");
}

#[test]
fn all_four_tunnels_end_here_and_the_packet_inside_goes_on_as_it_was() {
    let decap = decap();
    for (name, frame, inside) in [
        ("4 in 4", tunnel4(IPIP, &inner4()), inner4()),
        ("6 in 4", tunnel4(IPV6, &inner6()), inner6()),
        ("4 in 6", tunnel6(IPIP, &inner4()), inner4()),
        ("6 in 6", tunnel6(IPV6, &inner6()), inner6()),
    ] {
        let (verdict, out) = kernel::run(decap.program(), &frame);
        assert_eq!(verdict, XDP_PASS, "{name}");
        // the same addresses on the link, and the type of what was inside
        assert_eq!(out, ethernet(&[], &inside), "{name}");
    }
    assert_eq!(decap.counters().unwrap(), only(|f| f.decapsulated = 4));
}

#[test]
fn packets_with_options_inside_and_fragments_inside_are_whole_tunnels() {
    let decap = decap();
    for inside in [
        v4(TCP, 40, 0, &Segment::default().bytes()),
        v4(TCP, 0, 0x2000, &Segment::default().bytes()),
        v6(&[(0, 8)], TCP, &Segment::default().bytes()),
    ] {
        let protocol = if inside[0] >> 4 == 4 { IPIP } else { IPV6 };
        let (_, out) = kernel::run(decap.program(), &tunnel4(protocol, &inside));
        assert_eq!(out, ethernet(&[], &inside));
    }
}

#[test]
fn congestion_on_the_way_of_the_tunnel_is_told_to_those_who_understand_it() {
    let decap = decap();
    let (mut able4, mut able6) = (inner4(), inner6());
    let ipv4 = |packet: &[u8]| Ipv4Header::from_slice(packet).expect("IPv4").0;
    able4[1] = 0xba; // a class of traffic, and ECT(0)
    let sum = ipv4(&able4).calc_header_checksum();
    able4[10..12].copy_from_slice(&sum.to_be_bytes());
    able6[1] = 0x20;
    for (protocol, inside) in [(IPIP, &able4), (IPV6, &able6), (IPIP, &inner4())] {
        let outer = outer4(protocol, inside, |h| h[1] = 0x03);
        let (_, out) = kernel::run(decap.program(), &ethernet(&[], &outer));
        let marked = &out[14..];
        match (protocol, inside[1]) {
            (IPIP, 0) => assert_eq!(marked, inside, "its sender would not know what it says"),
            (IPIP, _) => {
                assert_eq!(marked[1], 0xbb);
                let header = ipv4(marked);
                assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
            _ => assert_eq!(marked[..2], [0x60, 0x30]),
        }
        assert_eq!(marked[12..], inside[12..]);
    }
    // and nothing is told where there was none
    let (_, out) = kernel::run(decap.program(), &tunnel4(IPIP, &able4));
    assert_eq!(out[14..], able4);
}

#[test]
fn what_is_no_tunnel_passes_unchanged() {
    for frame in frames::kinds() {
        assert_unchanged("an ordinary packet", &frame, only(|f| f.no_tunnel = 1));
    }
    let tagged = ethernet(&[VLAN], &outer4(IPIP, &inner4(), |_| ()));
    assert_unchanged("a VLAN tag", &tagged, only(|f| f.no_tunnel = 1));
    let arp = ethernet_of(&[], 0x0806, &[0; 46]);
    assert_unchanged("ARP", &arp, only(|f| f.no_tunnel = 1));
    let stub = &tunnel4(IPIP, &[])[..14];
    assert_unchanged("a stub", stub, only(|f| f.no_tunnel = 1));
}

#[test]
fn tunnels_of_others_pass_unchanged() {
    let elsewhere = only(|f| f.elsewhere = 1);
    let to = outer4(IPIP, &inner4(), |h| h[19] = 77);
    assert_unchanged("to another host", &ethernet(&[], &to), elsewhere);
    let other = [0xfd09, 0, 0, 0, 0, 0, 0, 77];
    let to = outer6(IPV6, BALANCER6, other, &inner6());
    assert_unchanged("to another host, IPv6", &ethernet(&[], &to), elsewhere);

    let foreign = only(|f| f.foreign_source = 1);
    let from = outer4(IPIP, &inner4(), |h| h[15] = 77);
    assert_unchanged("from a stranger", &ethernet(&[], &from), foreign);
    let stranger = [0xfd09, 0, 0, 1, 0, 0, 0, 1];
    let from = outer6(IPV6, stranger, SERVER6, &inner6());
    assert_unchanged("from a stranger, IPv6", &ethernet(&[], &from), foreign);
}

#[test]
fn a_packet_inside_that_is_for_somebody_else_is_not_let_out() {
    let fate = only(|f| f.foreign_inner = 1);
    let mut inside = inner4();
    inside[19] = 77;
    assert_unchanged("IPv4", &tunnel4(IPIP, &inside), fate);
    let mut inside = inner6();
    inside[39] = 77;
    assert_unchanged("IPv6", &tunnel6(IPV6, &inside), fate);
}

#[test]
fn fragments_and_options_of_the_outer_packet_are_counted_and_pass() {
    let fragment = only(|f| f.fragment = 1);
    for flags in [0x20, 0x01] {
        let outer = outer4(IPIP, &inner4(), |h| h[6] = flags);
        assert_unchanged("a fragment", &ethernet(&[], &outer), fragment);
    }
    let header = [[IPIP, 0, 0, 1, 0, 0, 0, 7].to_vec(), inner4()].concat();
    assert_unchanged("a fragment, IPv6", &tunnel6(44, &header), fragment);

    let options = only(|f| f.options = 1);
    let inside = [vec![1; 4], inner4()].concat();
    let outer = outer4(IPIP, &inside, |h| h[0] = 0x46);
    assert_unchanged("options", &ethernet(&[], &outer), options);
    let header = [[IPV6, 0, 4, 1, 4, 1, 0, 0].to_vec(), inner6()].concat();
    assert_unchanged("a limit of nesting", &tunnel6(60, &header), options);
}

#[test]
fn headers_that_contradict_each_other_or_the_frame_are_malformed() {
    let malformed = only(|f| f.malformed = 1);
    let whole = [tunnel4(IPIP, &inner4()), tunnel6(IPV6, &inner6())];
    for frame in &whole {
        for cut in [1, 100, 132] {
            let cut = &frame[..frame.len() - cut];
            assert_unchanged("cut off", cut, malformed);
        }
    }
    let mut damaged = tunnel4(IPIP, &inner4());
    damaged[22] ^= 1; // its time to live
    assert_unchanged("a wrong checksum", &damaged, malformed);
    assert_unchanged("6 said to be 4", &tunnel4(IPIP, &inner6()), malformed);
    assert_unchanged("4 said to be 6", &tunnel6(IPV6, &inner4()), malformed);
    assert_unchanged("nothing inside", &tunnel4(IPIP, &[]), malformed);
    let mut longer = inner4();
    longer[3] += 1;
    assert_unchanged("longer inside", &tunnel4(IPIP, &longer), malformed);
    let mut longer = inner6();
    longer[5] += 1;
    assert_unchanged("longer inside, IPv6", &tunnel6(IPV6, &longer), malformed);
    // ::ffff:10.9.0.2 and ::ffff:10.9.0.1 must not pass for the IPv4 addresses
    let mapped = |a: [u8; 4]| std::net::Ipv4Addr::from(a).to_ipv6_mapped().segments();
    let outer = outer6(IPIP, BALANCER6, mapped(SERVER), &inner4());
    assert_unchanged("to a mapped address", &ethernet(&[], &outer), malformed);
    let foreign = only(|f| f.foreign_source = 1);
    let outer = outer6(IPIP, mapped(BALANCER), SERVER6, &inner4());
    assert_unchanged("from a mapped address", &ethernet(&[], &outer), foreign);
}

#[test]
fn a_prefix_of_one_ip_version_lets_nobody_of_the_other_in() {
    need_root();
    let taken = |from: (IpAddr, u8)| {
        let from = vec![from];
        let decap = Decap::load(&DecapConfig { from, ..config() }).unwrap();
        [tunnel4(IPIP, &inner4()), tunnel6(IPIP, &inner4())].map(|frame| {
            let before = decap.counters().unwrap();
            kernel::run(decap.program(), &frame);
            let after = decap.counters().unwrap();
            let refused = after.foreign_source - before.foreign_source;
            assert_eq!(after.decapsulated - before.decapsulated + refused, 1);
            refused == 0
        })
    };
    let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
    assert_eq!(taken((v6("::"), 0)), [false, true]);
    assert_eq!(taken(([0; 4].into(), 0)), [true, false]);
    // these cover IPv4-mapped addresses
    assert_eq!(taken((v6("::"), 80)), [false, false]);
    assert_eq!(taken((v6("::ffff:0:0"), 96)), [false, false]);
    assert_eq!(taken((v6("::ffff:10.9.0.1"), 128)), [false, false]);
}

#[test]
fn without_sources_tunnels_from_everywhere_are_accepted() {
    need_root();
    let any = DecapConfig {
        from: Vec::new(),
        ..config()
    };
    let decap = Decap::load(&any).unwrap();
    let outer = outer4(IPIP, &inner4(), |h| h[12] = 192);
    kernel::run(decap.program(), &ethernet(&[], &outer));
    assert_eq!(decap.counters().unwrap(), only(|f| f.decapsulated = 1));
}

#[test]
fn addresses_that_come_and_go_are_followed() {
    let mut decap = decap();
    let frame = tunnel4(IPIP, &inner4());
    decap.set_local(&[SERVER.into(), SERVICE6.into()]).unwrap();
    kernel::run(decap.program(), &frame);
    assert_eq!(decap.counters().unwrap(), only(|f| f.foreign_inner = 1));
    decap.set_local(&[SERVER.into(), SERVICE.into()]).unwrap();
    kernel::run(decap.program(), &frame);
    assert_eq!(decap.counters().unwrap().decapsulated, 1);
}

/// Sends a frame out of an interface as it is.
fn send(interface: &str, frame: &[u8]) {
    use nix::libc;
    let index = nix::net::if_::if_nametoindex(interface).unwrap();
    // SAFETY: plain system calls; the address is valid for the length that is given, and the
    // descriptor is closed once.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = index as i32;
        let sent = libc::sendto(
            socket,
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            size_of_val(&to) as u32,
        );
        assert_eq!(
            sent,
            frame.len() as isize,
            "{}",
            std::io::Error::last_os_error()
        );
        libc::close(socket);
    }
}

#[test]
fn what_arrives_through_a_tunnel_reaches_the_socket_that_it_is_for() {
    need_root();
    in_own_network(|| {
        kernel::ip("link add bw-a type veth peer name bw-b address 02:00:00:00:00:01");
        for (device, address) in [
            ("bw-b", "10.9.0.2/24"),
            ("lo", "10.0.0.1/32"),
            ("lo", "fd00::1/128"),
        ] {
            kernel::ip(&format!("address add {address} dev {device}"));
        }
        // last the one that sends: what the kernel does later when its peer comes up, it does at once
        for device in ["bw-b", "bw-a"] {
            kernel::ip(&format!("link set {device} up"));
        }
        kernel::ip("route add 10.0.0.0/24 dev bw-b");
        kernel::ip("route add fd00::/64 dev bw-b");
        let decap = Decap::attach(&DecapConfig {
            interface: "bw-b".into(),
            ..config()
        })
        .unwrap_or_else(|e| panic!("{e}"));
        assert!(decap.native(), "veth takes native XDP");
        let udp = |service: IpAddr| {
            let socket = UdpSocket::bind((service, 0)).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            let port = socket.local_addr().unwrap().port();
            (socket, port)
        };
        let (socket4, port4) = udp(SERVICE.into());
        let (socket6, port6) = udp(SERVICE6.into());
        let mut inside4 = Vec::new();
        let built = PacketBuilder::ipv4([10, 0, 0, 2], SERVICE, 64).udp(40_000, port4);
        built.write(&mut inside4, b"through four").unwrap();
        let mut inside6 = Vec::new();
        let from = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets();
        let to = std::net::Ipv6Addr::from(SERVICE6).octets();
        let built = PacketBuilder::ipv6(from, to, 64).udp(40_000, port6);
        built.write(&mut inside6, b"through six").unwrap();

        send("bw-a", &tunnel4(IPIP, &inside4));
        send("bw-a", &tunnel4(IPV6, &inside6));
        let mut buffer = [0; 64];
        let (n, peer) = socket4.recv_from(&mut buffer).expect("a datagram");
        assert_eq!(&buffer[..n], b"through four");
        assert_eq!(peer.ip(), IpAddr::from([10, 0, 0, 2]));
        let n = socket6.recv(&mut buffer).expect("a datagram");
        assert_eq!(&buffer[..n], b"through six");
        assert_eq!(decap.counters().unwrap().decapsulated, 2);
    });
}
