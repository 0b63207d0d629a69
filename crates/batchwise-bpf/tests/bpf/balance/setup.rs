//! A load balancer that packets are handed to, and reading what it makes of them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use batchwise_bpf::balance::{
    Backend, Balancer, Method, Options, Outcomes, Protocol, SLOTS, Service, ServiceKey, State,
};

pub use crate::frames::tcp;
use crate::frames::{SERVER_PORT, Segment, TCP, UDP, ethernet, tcp_frame, udp, v4, v6};
use crate::kernel::{self, need_root};
pub use crate::kernel::{XDP_DROP, XDP_PASS};

pub const XDP_TX: u32 = 3;
pub const XDP_REDIRECT: u32 = 4;

/// Where frames of `frames` go, and where they come from.
pub const VIP: &str = "10.0.0.1";
pub const CLIENT: &str = "10.0.0.2";
pub const VIP6: &str = "fd00::1";
pub const CLIENT6: &str = "fd00::2";

/// Of the frames in.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const VIP_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Our interface's, in frames out.
pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// The loopback interface, which test runs arrive on.
pub const ARRIVES: u32 = 1;

pub fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

pub fn mac(index: u16) -> [u8; 6] {
    let [high, low] = index.to_be_bytes();
    [2, 0, 0, 1, high, low]
}

/// A balancer's name that another run of the tests at the same time does not have. What it has pinned
/// is removed at the end, and what a killed run of the same number left.
pub struct Pinned(pub String);

impl Pinned {
    pub fn new(name: &str) -> Self {
        need_root();
        let name = format!("{name}-{}", std::process::id());
        Balancer::remove(&name).unwrap();
        Self(name)
    }

    /// Where it is.
    pub fn folder(&self) -> PathBuf {
        Path::new("/sys/fs/bpf/batchwise/balance").join(&self.0)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        drop(Balancer::remove(&self.0));
    }
}

pub fn options(name: &str) -> Options {
    Options {
        name: name.into(),
        interfaces: Vec::new(),
        flows: 8192,
        measure: None,
        attach: false,
        pin: false,
    }
}

pub fn key(address: &str, port: u16, protocol: Protocol) -> ServiceKey {
    ServiceKey {
        address: ip(address),
        port,
        protocol,
    }
}

pub fn service(number: u16) -> Service {
    Service {
        number,
        by_client: false,
        two_choices: false,
    }
}

/// On link.
pub fn backend(index: u16) -> Backend {
    Backend {
        address: ip("10.0.1.1"),
        source: ip("10.0.1.254"),
        source_bits: 0,
        mac: mac(index),
        own_mac: OWN_MAC,
        ifindex: ARRIVES,
        mtu: 1500,
        method: Method::L2,
        state: State::Serving,
        doubted: false,
        drained: false,
        weight: 100_000,
        base_weight: 100,
        identity: index.into(),
        service: 1,
        generation: 0,
    }
}

/// A load balancer with services at port 80 of both addresses, TCP and UDP, numbered 1 to 4.
pub struct Lb(pub Balancer);

impl Lb {
    pub fn new() -> Self {
        Self::with(options("test"))
    }

    pub fn with(options: Options) -> Self {
        need_root();
        let lb = Self(Balancer::start(options).unwrap_or_else(|e| panic!("{e}")));
        let mut number = 0;
        for address in [VIP, VIP6] {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                number += 1;
                let key = key(address, SERVER_PORT, protocol);
                lb.0.set_service(key, service(number)).unwrap();
            }
        }
        lb
    }

    /// With one backend, 7, that has all slots.
    pub fn to(backend: &Backend) -> Self {
        let lb = Self::new();
        lb.0.set_backend(7, backend).unwrap();
        lb.all_to(7);
        lb
    }

    /// With backends on link.
    pub fn among(indices: &[u16]) -> Self {
        let lb = Self::new();
        lb.have(indices);
        lb
    }

    pub fn have(&self, indices: &[u16]) {
        for &index in indices {
            self.0.set_backend(index, &backend(index)).unwrap();
        }
    }

    /// All slots of all services.
    pub fn all_to(&self, index: u16) {
        for service in 1..=4 {
            self.spread(service, &[index]);
        }
    }

    /// A service's slots in turn.
    pub fn spread(&self, service: u16, indices: &[u16]) {
        let ring: Vec<_> = (0..SLOTS as u32)
            .zip(indices.iter().copied().cycle())
            .collect();
        self.0.write_ring(service, &ring).unwrap();
    }

    pub fn set_state(&self, index: u16, state: State) {
        let changed = Backend {
            state,
            ..backend(index)
        };
        self.0.set_backend(index, &changed).unwrap();
    }

    /// The verdict and the frame out.
    pub fn run(&self, frame: &[u8]) -> (u32, Vec<u8>) {
        kernel::run(self.0.program(), frame)
    }

    /// The index of the backend on link that a frame went to.
    pub fn sent_to(&self, frame: &[u8]) -> u16 {
        let (verdict, out) = self.run(frame);
        assert_eq!(verdict, XDP_TX, "{:?}", self.outcomes());
        assert_eq!(out[..4], mac(0)[..4]);
        u16::from_be_bytes([out[4], out[5]])
    }

    pub fn segment(&self, segment: Segment) -> u16 {
        self.sent_to(&tcp_frame(segment))
    }

    pub fn outcomes(&self) -> Outcomes {
        self.0.outcomes().unwrap()
    }
}

/// An interface with a MAC address; its peer's name ends in `p`.
pub fn veth(name: &str, address: [u8; 6]) {
    let peer = format!("{name}p");
    kernel::ip(&format!("link add {name} type veth peer name {peer}"));
    set_mac(name, address);
}

pub fn set_mac(name: &str, address: [u8; 6]) {
    let [a, b, c, d, e, f] = address;
    let address = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
    kernel::ip(&format!("link set {name} address {address}"));
}

/// The packet behind a frame's MAC addresses, as a router sends it on: with a hop less.
pub fn routed(frame: &[u8]) -> Vec<u8> {
    let mut rest = frame[12..].to_vec();
    if rest[..2] == [0x86, 0xdd] {
        rest[2 + 7] -= 1;
        return rest;
    }
    rest[2 + 8] -= 1;
    // one's complement, in which 0xffff is 0
    let sum = u32::from(u16::from_be_bytes([rest[12], rest[13]])) + 0x0100;
    rest[12..14].copy_from_slice(&((sum % 0xffff) as u16).to_be_bytes());
    rest
}

/// Of all four kinds that are balanced.
pub fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let tcp = Segment::default().bytes();
    vec![
        ("TCP over IPv4", ethernet(&[], &v4(TCP, 0, 0x4000, &tcp))),
        ("UDP over IPv4", ethernet(&[], &v4(UDP, 0, 0, &udp(30)))),
        ("TCP over IPv6", ethernet(&[], &v6(&[], TCP, &tcp))),
        ("UDP over IPv6", ethernet(&[], &v6(&[], UDP, &udp(30)))),
    ]
}
