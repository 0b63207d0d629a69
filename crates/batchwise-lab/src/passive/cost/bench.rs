//! The programs that are measured, and one run of each.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process};

use anyhow::{Result, bail};
use batchwise_bpf::balance::{BPFFS, mount_bpffs};
use batchwise_bpf::passive::{Attach, Config, PassiveSensor};
use batchwise_core::passive::Params;
use batchwise_testbed::bpf_stats::{StatsEnabled, map_memory, runs_of};
use batchwise_testbed::pass;
use batchwise_testbed::topology::{LINK, SERVER_IP, TwoHosts};
use nix::unistd::Pid;

use super::{Case, Program};
use crate::packet_cost::{FLOWS, Measured, Repeater};

/// A program's name in bpffs, until dropped.
struct Pin(PathBuf);

impl Drop for Pin {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

pub(super) struct Bench {
    repeater: Repeater,
    measure: PassiveSensor,
    measure_then: PassiveSensor,
    packet: Vec<u8>,
    _pin: Pin,
}

fn config() -> Config {
    Config {
        interface: String::new(),
        attach: Attach::Called,
        ports: Vec::new(),
        flows: FLOWS,
        params: Params::default(),
        udp_acks: 0,
        forget: Duration::from_secs(60),
        then: None,
    }
}

impl Bench {
    /// Loads all; packets that are forwarded leave the server over its link and end at the client.
    pub(super) fn load(hosts: &TwoHosts) -> Result<Self> {
        let mut repeater = Repeater::load(hosts, 0)?;
        mount_bpffs()?;
        let pin = Pin(Path::new(BPFFS).join(format!("bw-passive-cost-{}", process::id())));
        repeater.pin_forwarder(&pin.0)?;
        Ok(Self {
            repeater,
            measure: PassiveSensor::attach(config())?,
            measure_then: PassiveSensor::attach(Config {
                then: Some(pin.0.clone()),
                ..config()
            })?,
            packet: packet(),
            _pin: pin,
        })
    }

    /// ns a packet.
    pub(super) fn run(
        &mut self,
        hosts: &TwoHosts,
        case: Case,
        program: Program,
        packets: u32,
    ) -> Result<f64> {
        let measured = match (case, program) {
            (Case::Forward, Program::Nothing) => Measured::Forward,
            (Case::Forward, Program::Tail) => Measured::Relay,
            (Case::Forward, Program::Passive) => Measured::Program(self.measure_then.program()),
            (_, Program::Passive) => Measured::Program(self.measure.program()),
            _ => Measured::Nothing,
        };
        let live = (case == Case::Forward).then_some(&hosts.server);
        let packet = (&self.packet[..], case.flows());
        let ns = self.repeater.run(measured, packet, packets, live)?;
        self.measure.poll()?;
        self.measure_then.poll()?;
        Ok(ns)
    }

    /// Evictions, lost events and unmeasured packets in all runs.
    pub(super) fn counters(&self) -> Result<batchwise_bpf::passive::Counters> {
        Ok(self.measure.counters()?)
    }
}

/// TCP over IPv4, 100 bytes of payload.
fn packet() -> Vec<u8> {
    let mut p = vec![2, 0, 0, 0, 0x77, 2, 2, 0, 0, 0, 0x77, 1, 8, 0];
    p.extend([
        0x45, 0, 0, 152, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 78, 0, 2, 10, 77, 0, 1,
    ]);
    p.extend([
        0, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 0xff, 0xff, 0, 0, 0, 0,
    ]);
    p.extend([1; 12]);
    p.resize(14 + 152, b'x');
    p
}

/// Memory of the sensor's maps as the kernel accounts it, bytes: the flow table, and all.
pub(super) fn memory() -> Result<(u64, u64)> {
    let _sensor = PassiveSensor::attach(config())?;
    let maps = map_memory()?;
    let table = maps.get("flows").copied().unwrap_or_default();
    Ok((table, maps.values().sum()))
}

impl Bench {
    /// What the program adds to one that does nothing by the kernel's run-time statistics, ns a
    /// packet of a flood over the link.
    pub(super) fn by_statistics(hosts: &TwoHosts, packets: u32) -> Result<f64> {
        hosts.server.inside(|| {
            let to = UdpSocket::bind((SERVER_IP, 0))?;
            let _enabled = StatsEnabled::new()?;
            let time = |program: &str| {
                let runs = || anyhow::Ok(runs_of(&[Pid::this()])?.get(program).copied());
                let before = runs()?.unwrap_or_default();
                flood(hosts, to.local_addr()?, packets)?;
                let after = runs()?.unwrap_or_default();
                let count = after.count - before.count;
                if count < u64::from(packets) / 2 {
                    bail!("{program} saw {count} of {packets} packets");
                }
                Ok((after.time_ns - before.time_ns) as f64 / count as f64)
            };
            let link = pass::attach(LINK)?;
            let base = time("bw_pass")?;
            drop(link);
            let sensor = PassiveSensor::attach(Config {
                interface: LINK.into(),
                attach: Attach::Native,
                ..config()
            })?;
            let passive = time("passive_xdp")?;
            drop(sensor);
            Ok(passive - base)
        })
    }
}

fn flood(hosts: &TwoHosts, to: SocketAddr, packets: u32) -> Result<()> {
    hosts.client.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..packets {
            socket.send_to(&[0; 100], to)?;
        }
        Ok(())
    })
}
