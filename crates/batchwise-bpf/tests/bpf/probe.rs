//! Health checks on the way of the traffic: packet in, packet out, and sockets over a link. Needs
//! root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use batchwise_bpf::balance::probe::{Probe, mark};
use batchwise_bpf::balance::{Backend, Balancer, Method, State};
use batchwise_bpf::decap::{Decap, DecapConfig};
use nix::sys::socket::{setsockopt, sockopt};

use crate::balance::setup;
use crate::balance::tunnels::outer;
use crate::frames::{self, CLIENT_PORT, SYN, Segment, TCP, ethernet, tcp, v4, v6};
use crate::kernel::{self, in_own_network, need_root};

const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
const TCX_REDIRECT: i32 = 7;

const LOOPBACK: u32 = 1;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x21];
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x10];

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);

fn backend(address: IpAddr, source: IpAddr, mac: [u8; 6], ifindex: u32, method: Method) -> Backend {
    Backend {
        address,
        source,
        mac,
        own_mac: OWN_MAC,
        ifindex,
        method,
        state: State::Down, // which is to be noticed when it ends
        ..setup::backend(0)
    }
}

fn balancer() -> Balancer {
    need_root();
    Balancer::start(setup::options("probe")).unwrap_or_else(|e| panic!("{e}"))
}

/// A balancer with these backends, and the program.
fn probe(backends: &[(u16, Backend)]) -> (Balancer, Probe) {
    let balancer = balancer();
    for (index, backend) in backends {
        balancer.set_backend(*index, backend).expect("a place");
    }
    let probe = Probe::load(&balancer).unwrap_or_else(|e| panic!("{e}"));
    (balancer, probe)
}

fn packets() -> [Vec<u8>; 2] {
    let tcp = Segment::default().bytes();
    [v4(TCP, 0, 0x4000, &tcp), v6(&[], TCP, &tcp)]
}

#[test]
fn a_probe_to_a_neighbour_gets_its_mac_address_and_no_mark() {
    let b = backend(SERVER.into(), SOURCE.into(), MAC, LOOPBACK, Method::L2);
    let (_balancer, probe) = probe(&[(5, b)]);
    for packet in packets() {
        let frame = ethernet(&[], &packet);
        let (verdict, out, left) = kernel::run_marked(probe.program(), &frame, mark(5));
        // the way out is the one that it takes already
        assert_eq!((verdict, left), (TCX_NEXT, 0));
        assert_eq!(out[..12], [MAC, OWN_MAC].concat());
        assert_eq!(out[12..], frame[12..]);
    }
}

#[test]
fn a_syn_that_leaves_for_a_backend_is_counted_and_nothing_else_is() {
    let b = backend(SERVER.into(), SOURCE.into(), MAC, LOOPBACK, Method::L2);
    let b6 = backend(SERVER6.into(), SOURCE6.into(), MAC, 77, Method::Ipip);
    let (_balancer, probe) = probe(&[(5, b), (6, b6)]);
    let probed = probe.probed().expect("a count");
    let run = |packet: &[u8], index| {
        let frame = ethernet(&[], packet);
        kernel::run_marked(probe.program(), &frame, mark(index));
    };
    for packet in packets() {
        run(&packet, 5); // amid a connection
    }
    assert_eq!(probed.syns(5), Some(0));
    let syn = tcp(CLIENT_PORT, SYN, 100).bytes();
    for packet in [v4(TCP, 0, 0x4000, &syn), v6(&[], TCP, &syn)] {
        for index in [5, 6, 7] {
            run(&packet, index);
        }
    }
    // 7 is nobody
    assert_eq!(
        [5, 6, 7].map(|i| probed.syns(i)),
        [Some(2), Some(2), Some(0)]
    );
}

#[test]
fn a_probe_by_another_interface_is_redirected() {
    let b = backend(SERVER.into(), SOURCE.into(), MAC, 77, Method::L2);
    let (_balancer, probe) = probe(&[(4095, b)]);
    let frame = ethernet(&[], &packets()[0]);
    let (verdict, ..) = kernel::run_marked(probe.program(), &frame, mark(4095));
    assert_eq!(verdict, TCX_REDIRECT);
}

#[test]
fn a_probe_through_a_tunnel_gets_the_outer_header_of_the_traffic() {
    let b = backend(SERVER.into(), SOURCE.into(), MAC, 77, Method::Ipip);
    let b6 = backend(SERVER6.into(), SOURCE6.into(), MAC, 77, Method::Ipip);
    let (_balancer, probe) = probe(&[(4, b), (6, b6)]);
    for packet in packets() {
        let frame = ethernet(&[], &packet);
        for (index, to) in [(4, &b), (6, &b6)] {
            let (verdict, out, _) = kernel::run_marked(probe.program(), &frame, mark(index));
            assert_eq!(verdict, TCX_REDIRECT);
            assert_eq!(outer(&out, to), packet);
        }
    }
}

#[test]
fn a_probe_for_nobody_is_dropped_rather_than_sent_another_way() {
    let (_balancer, probe) = probe(&[]);
    let frame = ethernet(&[], &packets()[0]);
    for nobody in [0, 9, 4096, 65_535] {
        let (verdict, ..) = kernel::run_marked(probe.program(), &frame, mark(nobody));
        assert_eq!(verdict, TCX_DROP, "{nobody}");
    }
}

#[test]
fn what_is_no_probe_goes_its_way_unchanged() {
    let b = backend(SERVER.into(), SOURCE.into(), MAC, 77, Method::L2);
    let (_balancer, probe) = probe(&[(5, b)]);
    let frame = ethernet(&[], &packets()[0]);
    for other in [0, 5, 0x6278_0005, 0x1_0005] {
        let (verdict, out, left) = kernel::run_marked(probe.program(), &frame, other);
        assert_eq!((verdict, left), (TCX_NEXT, other));
        assert_eq!(out, frame);
    }
    let arp = frames::ethernet_of(&[], 0x0806, &[0; 46]);
    let (verdict, out, _) = kernel::run_marked(probe.program(), &arp, mark(5));
    assert_eq!((verdict, out), (TCX_NEXT, arp));
}

/// Two hosts, whose link is `bw-p` here and `bw-q` there; the service's addresses are there.
#[test]
fn marked_sockets_reach_the_backend_by_link_and_through_both_tunnels() {
    need_root();
    in_own_network(|| {
        let here = format!(
            "/proc/{}/task/{}/ns/net",
            std::process::id(),
            nix::unistd::gettid()
        );
        let (socket, socket6, decap) = in_own_network(|| {
            let peer = format!("peer name bw-p address 02:00:00:00:00:10 netns {here}");
            kernel::ip(&format!(
                "link add bw-q address 02:00:00:00:00:21 type veth {peer}"
            ));
            kernel::ip("address add 10.9.0.2/24 dev bw-q");
            kernel::ip("address add fd09::2/64 dev bw-q nodad");
            kernel::ip("address add 10.79.9.1/32 dev lo");
            kernel::ip("address add fd79:9::1/128 dev lo nodad");
            kernel::ip("link set bw-q up");
            let service: IpAddr = [10, 79, 9, 1].into();
            let service6: IpAddr = "fd79:9::1".parse().expect("an address");
            let decap = Decap::attach(&DecapConfig {
                interface: "bw-q".into(),
                from: vec![(SOURCE.into(), 32), (SOURCE6.into(), 128)],
                local: vec![SERVER.into(), SERVER6.into(), service, service6],
            });
            let bind = |address: IpAddr| {
                let socket = UdpSocket::bind((address, 7)).expect("a port");
                let patience = Some(Duration::from_secs(10));
                socket.set_read_timeout(patience).expect("a timeout");
                socket
            };
            (
                bind(service),
                bind(service6),
                decap.unwrap_or_else(|e| panic!("{e}")),
            )
        });
        kernel::ip("address add 10.9.0.1/24 dev bw-p");
        kernel::ip("address add fd09::1/64 dev bw-p nodad");
        kernel::ip("link set bw-p up");
        // the way to the service is by a router that is not there
        for (network, via) in [("10.79.9.0/24", "10.9.0.99"), ("fd79:9::/64", "fd09::99")] {
            let router = "lladdr 02:00:00:00:00:99 dev bw-p nud permanent";
            kernel::ip(&format!("neighbour add {via} {router}"));
            kernel::ip(&format!("route add {network} via {via} dev bw-p"));
        }

        let index = nix::net::if_::if_nametoindex("bw-p").expect("an interface");
        let balancer = balancer();
        for (number, address, source, method) in [
            (1, IpAddr::from(SERVER), IpAddr::from(SOURCE), Method::L2),
            (2, SERVER.into(), SOURCE.into(), Method::Ipip),
            (3, SERVER6.into(), SOURCE6.into(), Method::Ipip),
        ] {
            let backend = backend(address, source, MAC, index, method);
            balancer.set_backend(number, &backend).expect("a place");
        }
        let probe = Probe::load(&balancer).unwrap_or_else(|e| panic!("{e}"));
        let attached = probe.attach(index).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(attached.ifindex(), Some(index));

        for (from, to, at) in [
            ("10.9.0.1:0", "10.79.9.1:7", &socket),
            ("[fd09::1]:0", "[fd79:9::1]:7", &socket6),
        ] {
            let client = UdpSocket::bind(from).expect("a port");
            client
                .send_to(b"unmarked", to)
                .expect("sent, to the router");
            for number in 1..=3u16 {
                setsockopt(&client, sockopt::Mark, &mark(number)).expect("a mark");
                client.send_to(&number.to_be_bytes(), to).expect("sent");
                let mut buffer = [0; 16];
                let (n, peer) = at.recv_from(&mut buffer).expect("a datagram");
                assert_eq!(buffer[..n], number.to_be_bytes(), "from {from}");
                assert_eq!(peer, client.local_addr().expect("an address"));
            }
        }
        assert_eq!(decap.counters().unwrap().decapsulated, 4);

        drop(attached);
        let client = UdpSocket::bind("10.9.0.1:0").expect("a port");
        setsockopt(&client, sockopt::Mark, &mark(1)).expect("a mark");
        client
            .send_to(b"after", "10.79.9.1:7")
            .expect("sent, to the router");
        let short = Some(Duration::from_millis(200));
        socket.set_read_timeout(short).expect("a timeout");
        assert!(socket.recv(&mut [0; 16]).is_err(), "the program is gone");
    });
}
