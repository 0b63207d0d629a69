//! Experiment `balance-cost` (the paper's §5.5 and Table 1): the time of a packet in the load
//! balancer, plain and measuring, and its memory. This file owns the measuring.

mod bench;
mod figures;
mod summary;

use std::collections::BTreeMap;

use anyhow::Result;
use batchwise_testbed::topology::TwoHosts;
use serde::Serialize;

use crate::frame::{Frame, Measured};
use crate::output::Progress;
use crate::packet_cost::{self, FLOWS};
use crate::rounds::in_random_order;
use crate::{Context, Experiment};
use bench::Bench;
use summary::Summary;

/// What balancing costs.
pub struct BalanceCost;

/// Whose packets come, and how they go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// One flow's, IPv4 by layer 2.
    L2V4,
    /// One flow's, IPv6 by layer 2.
    L2V6,
    /// One flow's, IPv4 in IPv4.
    IpipV4,
    /// One flow's, IPv6 in IPv6.
    IpipV6,
    /// One flow's, IPv4 in IPv6.
    IpipV4InV6,
    /// 65,536 flows' in turns: no packet finds its flow in a cache.
    ManyFlows,
    /// Each the SYN of a new flow.
    NewFlows,
    /// One flow's, by layer 2, redirected to another interface: BPF_PROG_TEST_RUN with live frames.
    RedirectL2,
    /// The same, IPv4 in IPv4.
    RedirectIpip,
}

impl Case {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::L2V4,
        Self::L2V6,
        Self::IpipV4,
        Self::IpipV6,
        Self::IpipV4InV6,
        Self::ManyFlows,
        Self::NewFlows,
        Self::RedirectL2,
        Self::RedirectIpip,
    ];
    /// Packets of one warm flow, for which there are bars.
    pub const WARM: [Self; 5] = [
        Self::L2V4,
        Self::L2V6,
        Self::IpipV4,
        Self::IpipV6,
        Self::IpipV4InV6,
    ];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::L2V4 => "l2-v4",
            Self::L2V6 => "l2-v6",
            Self::IpipV4 => "ipip-v4",
            Self::IpipV6 => "ipip-v6",
            Self::IpipV4InV6 => "ipip-v4-in-v6",
            Self::ManyFlows => "many-flows",
            Self::NewFlows => "new-flows",
            Self::RedirectL2 => "redirect-l2",
            Self::RedirectIpip => "redirect-ipip",
        }
    }

    fn redirects(self) -> bool {
        matches!(self, Self::RedirectL2 | Self::RedirectIpip)
    }

    fn flows(self) -> u32 {
        match self {
            Self::ManyFlows => FLOWS,
            Self::NewFlows => u32::MAX,
            _ => 1,
        }
    }
}

/// What runs for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// One that sends it on as it is.
    Nothing,
    /// The balancer.
    Plain,
    /// The balancer, which measures.
    Measured,
}

impl Program {
    /// All.
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Plain, Self::Measured];
}

type Arm = packet_cost::Arm<Case, Program>;
type Point = packet_cost::Point<Case, Program>;

/// What was measured so far.
#[derive(Default)]
struct Runs {
    points: Vec<Point>,
    memory: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct More<'a> {
    memory_bytes: &'a BTreeMap<String, u64>,
}

impl Experiment for BalanceCost {
    fn name(&self) -> &'static str {
        "balance-cost"
    }

    fn about(&self) -> &'static str {
        "time of a packet in the load balancer, plain and measuring, and its memory (Table 1)"
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
        let summary = Summary::of(&self.points, &self.memory);
        let more = More {
            memory_bytes: &self.memory,
        };
        frame.write_result(complete, &self.points, &more, &summary)?;
        figures::write(frame, complete, &summary, &self.memory)
    }
}

fn measure(frame: &Frame<'_>, hosts: &TwoHosts, runs: &mut Runs) -> Result<()> {
    let context = frame.context;
    let (rounds, packets) = if context.quick {
        (5, 200_000)
    } else {
        (21, 1_000_000)
    };
    let of = |case| Program::ALL.map(|program| Arm { case, program });
    let arms: Vec<_> = Case::ALL.into_iter().flat_map(of).collect();
    let mut progress = Progress::new(rounds * arms.len() as u32);
    runs.memory = bench::memory()?;
    let mut bench = Bench::load(hosts)?;
    in_random_order(frame, rounds, &arms, runs, |runs, turn| {
        context.stop.check()?;
        let Arm { case, program } = turn.arm;
        let ns = bench.run(hosts, case, program, packets)?;
        progress.step(&format!(
            "round {}: {} {program:?} {ns:.1} ns a packet",
            turn.round + 1,
            case.name(),
        ));
        runs.points.push(Point {
            round: turn.round,
            position: turn.position,
            arm: turn.arm,
            ns_per_packet: ns,
        });
        Ok(())
    })
}
