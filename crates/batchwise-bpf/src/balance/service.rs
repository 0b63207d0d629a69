//! What a load balancer is told: services and backends, to and from the kernel's structs
//! (`balance_intf.h`).

use std::net::IpAddr;

use batchwise_core::passive::address;

use crate::balance_skel::types;
use crate::balance_skel::types::{balance_backend_state as state, balance_method as method};
use crate::plain::octets;

const BY_CLIENT: u16 = types::balance_vip_flag::BALANCE_VIP_BY_CLIENT.0 as u16;
const TWO_CHOICES: u16 = types::balance_vip_flag::BALANCE_VIP_TWO_CHOICES.0 as u16;
const DRAINED: u8 = types::balance_backend_flag::BALANCE_BACKEND_DRAINED.0 as u8;
const DOUBTED: u8 = types::balance_backend_flag::BALANCE_BACKEND_DOUBTED.0 as u8;
const PROTO_TCP: u8 = 6;
const PROTO_UDP: u8 = 17;

/// What a service is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP, and with it QUIC.
    Udp,
}

/// Where a service is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The address that clients use.
    pub address: IpAddr,
    /// Its port; 0: all that have no service of their own.
    pub port: u16,
    /// By what.
    pub protocol: Protocol,
}

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Names its ring; below [`super::SERVICES`].
    pub number: u16,
    /// All connections of a client's address go to one backend.
    pub by_client: bool,
    /// Of two slots the backend with fewer busy flows for its weight gets a new flow; not with
    /// `by_client`.
    pub two_choices: bool,
}

/// How packets get to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// By its MAC address: it is on link.
    L2,
    /// In an outer IPv4 or IPv6 header (protocols 4 and 41).
    Ipip,
}

/// What a backend gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// All.
    Serving,
    /// What belongs to the flows that it has.
    Draining,
    /// What belongs to its TCP connections.
    Down,
}

/// Where packets can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its own address.
    pub address: IpAddr,
    /// The outer header's source, of the same family as `address` ([`Method::Ipip`]).
    pub source: IpAddr,
    /// So many of `source`'s last bits are the flow's hash instead, for those who share packets out by
    /// the outer addresses (a backend's receive queues): the outer source is then any address of the
    /// prefix that is left. 0 to 32; IPv4 only: IPv6 has the flow label, which always is the hash.
    pub source_bits: u8,
    /// The next hop's.
    pub mac: [u8; 6],
    /// Our interface's towards it.
    pub own_mac: [u8; 6],
    /// Our interface towards it.
    pub ifindex: u32,
    /// The largest IP packet on the way out, bytes.
    pub mtu: u16,
    /// How packets get there.
    pub method: Method,
    /// What it gets.
    pub state: State,
    /// Its latency is not believed: of two choices the second is never this one.
    pub doubted: bool,
    /// Drained by the operator; kept here for the agent, as `base_weight` and `identity`.
    pub drained: bool,
    /// Its effective weight: of two choices the less busy for its weight gets a new flow.
    pub weight: u32,
    /// The configured weight that the effective one was made from.
    pub base_weight: u32,
    /// Names it across restarts.
    pub identity: u64,
    /// The number of its service.
    pub service: u16,
    /// Tells whose flow an entry of the index is: [`super::Balancer::set_backend`] keeps what is
    /// there whatever it is given, [`super::Balancer::vacate`] changes it.
    pub generation: u8,
}

/// The last so many bits of an IPv4 address, as a header has them.
fn last_bits(bits: u8) -> u32 {
    let others = 32 - u32::from(bits.min(32));
    u32::MAX.checked_shr(others).unwrap_or(0).to_be()
}

impl ServiceKey {
    pub(super) fn to_kernel(self) -> types::balance_vip_key {
        types::balance_vip_key {
            addr: octets(self.address),
            port: self.port,
            proto: match self.protocol {
                Protocol::Tcp => PROTO_TCP,
                Protocol::Udp => PROTO_UDP,
            },
            reserved: 0,
        }
    }

    /// `None`: the mark of a service's address.
    pub(super) fn from_kernel(key: &types::balance_vip_key) -> Option<Self> {
        Some(Self {
            address: address(key.addr),
            port: key.port,
            protocol: match key.proto {
                PROTO_TCP => Protocol::Tcp,
                PROTO_UDP => Protocol::Udp,
                _ => return None,
            },
        })
    }
}

/// Marks an address that has a service.
pub(super) fn mark(address: IpAddr) -> types::balance_vip_key {
    types::balance_vip_key {
        addr: octets(address),
        ..Default::default()
    }
}

impl Service {
    pub(super) fn to_kernel(self) -> types::balance_vip {
        let choices = match (self.by_client, self.two_choices) {
            (true, _) => BY_CLIENT,
            (false, true) => TWO_CHOICES,
            (false, false) => 0,
        };
        types::balance_vip {
            number: self.number,
            flags: choices,
        }
    }

    pub(super) fn from_kernel(vip: types::balance_vip) -> Self {
        Self {
            number: vip.number,
            by_client: vip.flags & BY_CLIENT != 0,
            two_choices: vip.flags & TWO_CHOICES != 0,
        }
    }
}

impl Backend {
    pub(super) fn to_kernel(self) -> types::balance_backend {
        types::balance_backend {
            addr: octets(self.address),
            source: octets(self.source),
            mac: self.mac,
            own_mac: self.own_mac,
            ifindex: self.ifindex,
            mtu: self.mtu,
            service: self.service,
            method: match self.method {
                Method::L2 => method::BALANCE_METHOD_L2,
                Method::Ipip => method::BALANCE_METHOD_IPIP,
            },
            state: match self.state {
                State::Serving => state::BALANCE_BACKEND_SERVING,
                State::Draining => state::BALANCE_BACKEND_DRAINING,
                State::Down => state::BALANCE_BACKEND_DOWN,
            },
            generation: self.generation,
            flags: (u8::from(self.drained) * DRAINED) | (u8::from(self.doubted) * DOUBTED),
            weight: self.weight,
            spread: last_bits(self.source_bits),
            identity: self.identity,
            base_weight: self.base_weight,
            reserved: 0,
        }
    }

    /// `None`: the index is nobody's.
    pub(super) fn from_kernel(b: &types::balance_backend) -> Option<Self> {
        Some(Self {
            address: address(b.addr),
            source: address(b.source),
            source_bits: b.spread.count_ones() as u8,
            mac: b.mac,
            own_mac: b.own_mac,
            ifindex: b.ifindex,
            mtu: b.mtu,
            method: match b.method {
                method::BALANCE_METHOD_L2 => Method::L2,
                method::BALANCE_METHOD_IPIP => Method::Ipip,
                _ => return None,
            },
            state: match b.state {
                state::BALANCE_BACKEND_SERVING => State::Serving,
                state::BALANCE_BACKEND_DRAINING => State::Draining,
                state::BALANCE_BACKEND_DOWN => State::Down,
                _ => return None,
            },
            doubted: b.flags & DOUBTED != 0,
            drained: b.flags & DRAINED != 0,
            weight: b.weight,
            base_weight: b.base_weight,
            identity: b.identity,
            service: b.service,
            generation: b.generation,
        })
    }
}
