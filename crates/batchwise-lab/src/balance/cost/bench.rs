//! The programs that are measured, and one run of each.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Result, ensure};
use batchwise_bpf::balance::{
    Backend, Balancer, Measure, Method, Options, Protocol, Ring, SLOTS, Service, ServiceKey, State,
};
use batchwise_core::passive::Params;
use batchwise_testbed::bpf_stats::map_memory;
use batchwise_testbed::segment::{self, VIP, VIP6};
use batchwise_testbed::topology::{LINK, TwoHosts};
use clap::ValueEnum as _;
use nix::net::if_::if_nametoindex;

use super::{Case, Program};
use crate::packet_cost::{FLOWS, Measured, Repeater};

/// To loopback's: the balancer looks at it as at any interface's.
const MACS: [u8; 12] = [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0x79, 0x11];
/// Where BPF_PROG_TEST_RUN says that packets arrive.
const LOOPBACK: u32 = 1;
const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
/// `BPF_F_XDP_HAS_FRAGS`, as the balancer's program has it.
const FRAGS: u32 = 1 << 5;

pub(super) struct Bench {
    repeater: Repeater,
    plain: Balancer,
    measured: Balancer,
}

fn options(flows: u32, measure: bool) -> Options {
    Options {
        name: "bw-balance-cost".to_owned(),
        interfaces: vec!["lo".to_owned()],
        flows,
        measure: measure.then(|| Measure {
            params: Params::default(),
            flows: FLOWS,
            forget: Duration::from_secs(60),
            udp_acks: 0,
        }),
        attach: false,
        pin: false,
    }
}

/// A balancer with a service for each case, whose only backend has all slots.
fn balancer(measure: bool, out: u32) -> Result<Balancer> {
    // a table of least recently used entries begins to evict before it is full
    let balancer = Balancer::start(options(2 * FLOWS, measure))?;
    for (number, &case) in (0u16..).zip(Case::value_variants()) {
        let key = ServiceKey {
            address: case.service(),
            port: case.port(),
            protocol: Protocol::Tcp,
        };
        let service = Service {
            number,
            by_client: false,
            two_choices: false,
        };
        balancer.set_service(key, service)?;
        let backend = number + 1;
        balancer.set_backend(backend, &case.backend(number, out))?;
        let slots: Vec<_> = (0..SLOTS as u32).map(|slot| (slot, backend)).collect();
        balancer.write_ring(number, &slots)?;
    }
    Ok(balancer)
}

impl Case {
    fn is_v6(self) -> bool {
        matches!(self, Self::L2V6 | Self::IpipV6)
    }

    fn service(self) -> IpAddr {
        if self.is_v6() {
            VIP6.into()
        } else {
            VIP.into()
        }
    }

    fn port(self) -> u16 {
        8000 + self as u16
    }

    fn backend(self, service: u16, out: u32) -> Backend {
        let to_v6 = matches!(self, Self::IpipV6 | Self::IpipV4InV6);
        let host = |(v4, v6): (Ipv4Addr, Ipv6Addr)| -> IpAddr {
            if to_v6 { v6.into() } else { v4.into() }
        };
        let [mac, own_mac] = [0x21, 0x10].map(|last| [2, 0, 0, 0, 0x79, last]);
        let tunnel = matches!(
            self,
            Self::IpipV4 | Self::IpipV6 | Self::IpipV4InV6 | Self::RedirectIpip
        );
        Backend {
            address: host(segment::server(0)),
            source: host(segment::balancer()),
            source_bits: 0,
            mac,
            own_mac,
            ifindex: if self.redirects() { out } else { LOOPBACK },
            mtu: 1600,
            method: if tunnel { Method::Ipip } else { Method::L2 },
            state: State::Serving,
            doubted: false,
            drained: false,
            weight: 1000,
            base_weight: 1,
            identity: u64::from(service),
            service,
            generation: 0,
        }
    }

    /// TCP, 100 bytes of payload, or a SYN.
    fn packet(self) -> Vec<u8> {
        let (flags, payload) = match self {
            Self::NewFlows => (SYN, 0),
            _ => (ACK, 100),
        };
        let mut p = MACS.to_vec();
        let tcp = 20 + 12 + payload;
        let (client, client6) = segment::client(0);
        if self.is_v6() {
            p.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, tcp, 6, 64]);
            p.extend(client6.octets());
            p.extend(VIP6.octets());
        } else {
            p.extend([8, 0, 0x45, 0, 0, 20 + tcp, 0, 7, 0x40, 0, 64, 6, 0, 0]);
            p.extend(client.octets());
            p.extend(VIP.octets());
        }
        p.extend([0, 0]);
        p.extend(self.port().to_be_bytes());
        p.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
        p.extend([1; 12]);
        p.resize(p.len() + usize::from(payload), b'x');
        p
    }
}

impl Bench {
    /// Loads all; packets that are redirected leave the server over its link.
    pub(super) fn load(hosts: &TwoHosts) -> Result<Self> {
        let out = hosts.server.inside(|| Ok(if_nametoindex(LINK)?))?;
        Ok(Self {
            repeater: Repeater::load(hosts, FRAGS)?,
            plain: balancer(false, out)?,
            measured: balancer(true, out)?,
        })
    }

    pub(super) fn run(
        &mut self,
        hosts: &TwoHosts,
        case: Case,
        program: Program,
        packets: u32,
    ) -> Result<f64> {
        let balancer = match program {
            Program::Measured => &self.measured,
            _ => &self.plain,
        };
        let measured = match program {
            Program::Nothing if case.redirects() => Measured::Forward,
            Program::Nothing => Measured::Nothing,
            _ => Measured::Program(balancer.program()),
        };
        let packet = case.packet();
        let forwarded = || anyhow::Ok(balancer.outcomes()?.forwarded);
        let before = forwarded()?;
        let live = case.redirects().then_some(&hosts.server);
        let packet = (&packet[..], case.flows());
        let ns = self.repeater.run(measured, packet, packets, live)?;
        if program != Program::Nothing {
            let forwarded = forwarded()? - before;
            ensure!(
                forwarded >= u64::from(packets),
                "{case:?}: {forwarded} of {packets} packets were forwarded"
            );
        }
        self.measured.poll()?;
        Ok(ns)
    }
}

pub(super) const RING: &str = "bw_ring";

/// Memory of a balancer's maps for so many flows as the kernel accounts it, bytes by name.
pub(super) fn memory() -> Result<BTreeMap<String, u64>> {
    let balancer = Balancer::start(options(FLOWS, true))?;
    balancer.write_ring(0, &[(0, 0)])?;
    // a service's is held by an array of maps, not by us
    let _ring = Ring::new()?;
    map_memory()
}
