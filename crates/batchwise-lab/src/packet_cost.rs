//! What the experiments share that pass one packet again and again through a program by
//! BPF_PROG_TEST_RUN: its runs, what is kept of them, and how those of a round are compared.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use anyhow::{Context as _, Result};
use batchwise_testbed::host::Host;
use libbpf_rs::{Map, MapCore as _, MapFlags, libbpf_sys};
use serde::{Deserialize, Serialize};

use crate::rounds::{InRound, Turn, pairs};
use crate::stats::{MedianInterval, Spread};

/// Flows that tables are to hold: the paper's 65K.
pub const FLOWS: u32 = 65_536;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`: verdicts are carried out.
const LIVE_FRAMES: u32 = 1 << 1;

/// What differs within a round: whose packets come and how they go on, and what runs for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm<C, P> {
    /// Whose packets come, and how they go on.
    pub case: C,
    /// What runs for each.
    pub program: P,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point<C, P> {
    /// Runs of one round are compared with each other.
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    /// What was run.
    #[serde(flatten)]
    pub arm: Arm<C, P>,
    /// Time a packet, ns.
    pub ns_per_packet: f64,
}

impl<C, P> Point<C, P> {
    /// A run that was made.
    pub fn of(turn: Turn<Arm<C, P>>, ns_per_packet: f64) -> Self {
        Self {
            round: turn.round,
            position: turn.position,
            arm: turn.arm,
            ns_per_packet,
        }
    }
}

impl<C: Copy + PartialEq, P: Copy + PartialEq> InRound for Point<C, P> {
    type Arm = Arm<C, P>;

    fn round_and_arm(&self) -> (u32, Self::Arm) {
        (self.round, self.arm)
    }
}

/// Times a packet of the runs of `arm`, ns.
pub fn spread<C, P>(points: &[Point<C, P>], arm: Arm<C, P>) -> Option<Spread>
where
    C: Copy + PartialEq,
    P: Copy + PartialEq,
{
    let of = points.iter().filter(|p| p.arm == arm);
    Spread::of(&of.map(|p| p.ns_per_packet).collect::<Vec<_>>())
}

/// Times a packet of `arm` above those of `base`: median of the rounds' differences, ns.
pub fn differences<C, P>(
    points: &[Point<C, P>],
    arm: Arm<C, P>,
    base: Arm<C, P>,
) -> Option<MedianInterval>
where
    C: Copy + PartialEq,
    P: Copy + PartialEq,
{
    let above: Vec<_> = pairs(points.iter(), arm, base)
        .map(|(with, without)| with.ns_per_packet - without.ns_per_packet)
        .collect();
    MedianInterval::of(&above)
}

/// Makes `program` the one that `array`, of one entry, calls.
pub fn set_callee(array: &Map<'_>, program: BorrowedFd<'_>) -> Result<()> {
    let fd = program.as_raw_fd().to_ne_bytes();
    Ok(array.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)?)
}

/// Runs `program`, which makes of `packet` those of `flows` flows in turns, until no packet costs
/// what only the first of its flow cost. More than [`FLOWS`] are a new one with each packet.
pub fn warm_up(program: BorrowedFd<'_>, packet: &[u8], flows: u32) -> Result<()> {
    // The first makes a flow, the second settles it in the balancer, and gives it a gap to measure.
    let each = if flows > FLOWS { 0 } else { 3 * flows };
    test_run(program, packet, each + 1000, 0)?;
    Ok(())
}

/// Runs `program` on `packet` so many times; ns a time. `live`: verdicts are carried out, in the
/// network of this host.
pub fn run(program: BorrowedFd<'_>, packet: &[u8], times: u32, live: Option<&Host>) -> Result<f64> {
    match live {
        Some(host) => host.inside(|| test_run(program, packet, times, LIVE_FRAMES)),
        None => test_run(program, packet, times, 0),
    }
}

fn test_run(program: BorrowedFd<'_>, packet: &[u8], repeat: u32, flags: u32) -> Result<f64> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len().try_into()?,
        repeat: repeat.try_into()?,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is open; the packet is as long as `opts` says and only read.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(-error)).context("BPF_PROG_TEST_RUN");
    }
    Ok(f64::from(opts.duration)) // without the time that others had the CPU
}
