//! Experiment `passive-cost` (the paper's §5.5 and Table 1): what the passive vantage adds to each
//! packet, and the memory of a flow. This file owns the measuring.

mod bench;
mod figures;
mod summary;

use anyhow::Result;
use batchwise_testbed::topology::TwoHosts;
use serde::Serialize;

use crate::frame::{Frame, Measured};
use crate::output::Progress;
use crate::packet_cost::{self, FLOWS};
use crate::rounds::in_random_order;
use crate::stats::median;
use crate::{Context, Experiment};
use bench::Bench;
use summary::Summary;

/// What the passive vantage costs.
pub struct PassiveCost;

/// Whose packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// One flow's, one after another.
    OneFlow,
    /// 65,536 flows' in turns: no packet finds its flow in a cache.
    ManyFlows,
    /// Each a new flow's, most in place of another.
    NewFlows,
    /// One flow's, redirected to another interface: BPF_PROG_TEST_RUN with live frames.
    Forward,
}

impl Case {
    /// All.
    pub const ALL: [Self; 4] = [
        Self::OneFlow,
        Self::ManyFlows,
        Self::NewFlows,
        Self::Forward,
    ];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneFlow => "one-flow",
            Self::ManyFlows => "many-flows",
            Self::NewFlows => "new-flows",
            Self::Forward => "forward",
        }
    }

    fn flows(self) -> u32 {
        match self {
            Self::OneFlow | Self::Forward => 1,
            Self::ManyFlows => FLOWS,
            Self::NewFlows => u32::MAX,
        }
    }
}

/// What runs for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// One that passes it on.
    Nothing,
    /// A tail call to what passes it on.
    Tail,
    /// The passive vantage.
    Passive,
}

type Arm = packet_cost::Arm<Case, Program>;
type Point = packet_cost::Point<Case, Program>;

/// What is measured once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Once {
    /// Memory of the flow table, bytes.
    table_bytes: u64,
    /// Memory of all maps, bytes.
    all_maps_bytes: u64,
    /// Added by the kernel's run-time statistics, ns a packet.
    statistics_ns_per_packet: Option<f64>,
    /// Packets that were measured, evictions, events that found no room.
    measured: u64,
    evicted: u64,
    lost_events: u64,
}

/// What was measured so far.
#[derive(Default)]
struct Runs {
    points: Vec<Point>,
    once: Once,
}

impl Experiment for PassiveCost {
    fn name(&self) -> &'static str {
        "passive-cost"
    }

    fn about(&self) -> &'static str {
        "what the passive vantage adds to each packet, and the memory of a flow (Table 1)"
    }

    fn run(&self, context: &Context) -> Result<()> {
        Frame::run(self.name(), context, measure)
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.points, &self.once);
        frame.write_result(complete, &self.points, &self.once, &summary)?;
        figures::write(frame, complete, &self.points, &summary)
    }
}

fn arms() -> Vec<Arm> {
    let programs = |case| match case {
        Case::Forward => &[Program::Nothing, Program::Tail, Program::Passive][..],
        _ => &[Program::Nothing, Program::Passive][..],
    };
    let of = |case| {
        programs(case)
            .iter()
            .map(move |&program| Arm { case, program })
    };
    Case::ALL.into_iter().flat_map(of).collect()
}

fn measure(frame: &Frame<'_>, hosts: &TwoHosts, measured: &mut Runs) -> Result<()> {
    let context = frame.context;
    let (rounds, packets) = if context.quick {
        (7, 200_000)
    } else {
        (31, 1_000_000)
    };
    let arms = arms();
    let mut progress = Progress::new(rounds * arms.len() as u32 + 1);
    (measured.once.table_bytes, measured.once.all_maps_bytes) = bench::memory()?;

    let mut bench = Bench::load(hosts)?;
    let mut added = Vec::new();
    for _ in 0..5 {
        added.push(bench.by_statistics(hosts, packets / 5)?);
    }
    measured.once.statistics_ns_per_packet = median(&added);
    progress.step(&format!(
        "added by run-time statistics, ns a packet: {added:.0?}"
    ));
    in_random_order(frame, rounds, &arms, measured, |measured, turn| {
        context.stop.check()?;
        let ns = bench.run(hosts, turn.arm.case, turn.arm.program, packets)?;
        progress.step(&format!(
            "round {}: {} {:?} {ns:.1} ns a packet",
            turn.round + 1,
            turn.arm.case.name(),
            turn.arm.program
        ));
        measured.points.push(Point::of(turn, ns));
        let counters = bench.counters()?;
        measured.once.measured = counters.measured;
        measured.once.evicted = counters.evicted;
        measured.once.lost_events = counters.lost_events;
        Ok(())
    })
}
