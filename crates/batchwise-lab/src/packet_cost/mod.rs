//! What the experiments share that pass one packet again and again through a program by
//! BPF_PROG_TEST_RUN: its runs, what is kept of them, and how those of a round are compared.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, Result};
use batchwise_bpf::holder;
use batchwise_testbed::host::Host;
use batchwise_testbed::pass::attach_program;
use batchwise_testbed::topology::{LINK, TwoHosts};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Map, MapCore as _, MapFlags, libbpf_sys};
use nix::net::if_::if_nametoindex;
use serde::{Deserialize, Serialize};

use crate::engine::pairs;
use crate::stats::{MedianInterval, Spread};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/again.skel.rs"));
}
use skel::{AgainSkel, AgainSkelBuilder};

/// Flows that tables are to hold: the paper's 65K.
pub const FLOWS: u32 = 65_536;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`: verdicts are carried out.
const LIVE_FRAMES: u32 = 1 << 1;
/// `struct __sk_buff` of the kernel's interface, and fields of it: words.
const SK_BUFF: usize = 48;
const INGRESS_IFINDEX: usize = 9;
const IFINDEX: usize = 10;
const IPV6: [u8; 2] = [0x86, 0xdd];

/// What differs within a round: whose packets come and how they go on, and what runs for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm<C, P> {
    pub case: C,
    pub program: P,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point<A> {
    /// Runs of one round are compared with each other.
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    #[serde(flatten)]
    pub arm: A,
    /// Time a packet, ns.
    pub ns_per_packet: f64,
}

/// Times a packet of the runs of `arm`, ns.
pub fn spread<A: Copy + PartialEq>(points: &[Point<A>], arm: A) -> Option<Spread> {
    let of = points.iter().filter(|p| p.arm == arm);
    Spread::of(&of.map(|p| p.ns_per_packet).collect::<Vec<_>>())
}

/// Times a packet of `arm` and of `base`, ns, of each round that has both.
pub fn of_rounds<A: Copy + PartialEq>(points: &[Point<A>], arm: A, base: A) -> Vec<(f64, f64)> {
    pairs(points, |p| (p.round, p.arm), arm, base, |p| p.ns_per_packet)
}

/// Times a packet of `arm` above those of `base`: median of the rounds' differences, ns.
pub fn differences<A: Copy + PartialEq>(
    points: &[Point<A>],
    arm: A,
    base: A,
) -> Option<MedianInterval> {
    MedianInterval::of_differences(&of_rounds(points, arm, base))
}

/// What is measured.
pub enum Measured<'a> {
    /// A program that does nothing.
    Nothing,
    /// One that sends packets on to the client.
    Forward,
    /// A tail call to that.
    Relay,
    /// This one.
    Program(BorrowedFd<'a>),
}

/// The programs of `again.bpf.c`: one hands packets to what is measured.
pub struct Repeater {
    skel: AgainSkel<'static>,
    _sink: Option<OwnedFd>,
}

impl Repeater {
    /// Loads them; what is measured has these flags of `BPF_PROG_LOAD`. Packets that are forwarded
    /// leave the server over its link and end at the client.
    pub fn load(hosts: &TwoHosts, flags: u32) -> Result<Self> {
        let mut repeater = Self::leaving(&hosts.server, flags)?;
        let sink = repeater.skel.progs.sink.as_fd().as_raw_fd();
        let sink = hosts.client.inside(|| attach_program(LINK, sink))?;
        repeater._sink = Some(sink);
        Ok(repeater)
    }

    /// The same of packets that leave this host over its link and end wherever they come to.
    pub fn leaving(host: &Host, flags: u32) -> Result<Self> {
        let mut open = AgainSkelBuilder::default().open(holder())?;
        for mut program in open.open_object_mut().progs_mut() {
            program.set_flags(flags);
        }
        let bss = open.maps.bss_data.as_deref_mut();
        bss.context("again.bpf.c has no .bss")?.out = host.inside(|| Ok(if_nametoindex(LINK)?))?;
        let skel = open.load()?;
        set_callee(&skel.maps.onward, skel.progs.forward.as_fd())?;
        Ok(Self { skel, _sink: None })
    }

    /// Pins the forwarder in bpffs.
    pub fn pin_forwarder(&mut self, path: &Path) -> Result<()> {
        let pinned = self.skel.progs.forward.pin(path);
        pinned.context("pinning the forwarder in bpffs")
    }

    /// Time of a packet in `program`, ns: `packet` so many times, made those of `flows` flows in
    /// turns. More than [`FLOWS`] are a new one with each packet. `live`: verdicts are carried out,
    /// in the network of this host.
    pub fn run(
        &mut self,
        program: Measured<'_>,
        (packet, flows): (&[u8], u32),
        times: u32,
        live: Option<&Host>,
    ) -> Result<f64> {
        let Self { skel, .. } = self;
        let program = match program {
            Measured::Nothing => skel.progs.nothing.as_fd(),
            Measured::Forward => skel.progs.forward.as_fd(),
            Measured::Relay => skel.progs.relay.as_fd(),
            Measured::Program(program) => program,
        };
        set_callee(&skel.maps.measured, program)?;
        let bss = skel.maps.bss_data.as_deref_mut();
        let bss = bss.context("again.bpf.c has no .bss")?;
        bss.length = packet.len().try_into()?;
        bss.v6 = (packet[12..14] == IPV6).into();
        for (to, from) in bss.mac.iter_mut().zip(packet.chunks(4)) {
            *to = u32::from_ne_bytes(from.try_into()?);
        }
        let data = skel.maps.data_data.as_deref_mut();
        data.context("again.bpf.c has no .data")?.flows = flows;
        let again = skel.progs.again.as_fd();
        // Warm: a flow's first packet makes it, the second settles it in the balancer, and gives it
        // a gap to measure.
        let each = if flows > FLOWS { 0 } else { 3 * flows };
        test_run(again, packet, each + 1000, 0, &[])?;
        match live {
            Some(host) => host.inside(|| test_run(again, packet, times, LIVE_FRAMES, &[])),
            None => test_run(again, packet, times, 0, &[]),
        }
    }

    /// The same of a program in tc egress of `host`'s link, which forwards the packets; each flow of IPv4
    /// has its own source. `None`: a program that does nothing.
    pub fn run_at_tc(
        &mut self,
        host: &Host,
        program: Option<BorrowedFd<'_>>,
        (packet, flows): (&[u8], u32),
        times: u32,
    ) -> Result<f64> {
        let Self { skel, .. } = self;
        let nothing = skel.progs.nothing_at_tc.as_fd();
        set_callee(&skel.maps.measured_at_tc, program.unwrap_or(nothing))?;
        let data = skel.maps.data_data.as_deref_mut();
        data.context("again.bpf.c has no .data")?.flows = flows;
        let again = skel.progs.again_at_tc.as_fd();
        host.inside(|| {
            let mut skb = [0; SK_BUFF];
            skb[INGRESS_IFINDEX] = if_nametoindex("lo")?;
            skb[IFINDEX] = if_nametoindex(LINK)?;
            test_run(again, packet, 3 * flows + 1000, 0, &skb)?;
            test_run(again, packet, times, 0, &skb)
        })
    }
}

/// Makes `program` the one that `array`, of one entry, calls.
fn set_callee(array: &Map<'_>, program: BorrowedFd<'_>) -> Result<()> {
    let fd = program.as_raw_fd().to_ne_bytes();
    Ok(array.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)?)
}

/// Time of a run without that which others had the CPU, ns. `context`: what else the program is told.
fn test_run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    repeat: u32,
    flags: u32,
    context: &[u32],
) -> Result<f64> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len().try_into()?,
        repeat: repeat.try_into()?,
        flags,
        ..Default::default()
    };
    if !context.is_empty() {
        opts.ctx_in = context.as_ptr().cast();
        opts.ctx_size_in = size_of_val(context).try_into()?;
    }
    // SAFETY: the descriptor is open; packet and context are as long as `opts` says and only read.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(-error)).context("BPF_PROG_TEST_RUN");
    }
    Ok(f64::from(opts.duration))
}
