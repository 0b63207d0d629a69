//! Experiment `balance-cost` (the paper's §5.5 and Table 1): the time of a packet in the load
//! balancer, plain and measuring, and its memory.

mod bench;
mod report;
mod summary;

use std::collections::BTreeMap;

use anyhow::Result;
use batchwise_testbed::topology::TwoHosts;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::text::name;
use crate::engine::{Experiment, Report, Results, Round, Run, Turn, two_hosts};
use crate::packet_cost::{self, FLOWS};
use bench::Bench;
use summary::Summary;

pub struct BalanceCost;

/// Whose packets come, and how they go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
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
    /// Packets of one warm flow, for which there are bars.
    pub const WARM: [Self; 5] = [
        Self::L2V4,
        Self::L2V6,
        Self::IpipV4,
        Self::IpipV6,
        Self::IpipV4InV6,
    ];

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// One that sends it on as it is.
    Nothing,
    /// The balancer.
    Plain,
    /// The balancer, which measures.
    Measured,
}

type Arm = packet_cost::Arm<Case, Program>;
type Point = packet_cost::Point<Arm>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// Memory of the balancer's maps, by name.
    pub memory_bytes: BTreeMap<String, u64>,
}

/// The programs, and hosts between which frames go.
pub struct Stage {
    memory: BTreeMap<String, u64>,
    bench: Bench,
    hosts: TwoHosts,
}

impl Experiment for BalanceCost {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "balance-cost"
    }

    fn about(&self) -> &'static str {
        "time of a packet in the load balancer, plain and measuring, and its memory (Table 1)"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let programs = [Program::Nothing, Program::Plain, Program::Measured];
        let cases = Case::value_variants().iter();
        let arms = cases.flat_map(|&case| programs.map(|program| Arm { case, program }));
        let rounds = if quick { 15 } else { 31 };
        Ok(Round::shuffled(rounds, &arms.collect::<Vec<_>>()))
    }

    fn stage(&self, _context: &Context) -> Result<(Stage, Value)> {
        let (hosts, network) = two_hosts("balance-cost")?;
        // before any other maps are held
        let memory = bench::memory()?;
        let bench = Bench::load(&hosts)?;
        let stage = Stage {
            memory,
            bench,
            hosts,
        };
        Ok((stage, network))
    }

    fn prepare(&self, run: &mut Run<'_, More>, stage: &mut Stage) -> Result<()> {
        run.more.memory_bytes = stage.memory.clone();
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        Stage { bench, hosts, .. }: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let quick = run.context.quick;
        let packets = if quick { 200_000 } else { 1_000_000 };
        let Arm { case, program } = *turn.arm;
        Ok(vec![Point {
            round: turn.round,
            position: turn.position,
            arm: *turn.arm,
            ns_per_packet: bench.run(hosts, case, program, packets)?,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        let Arm { case, program } = point.arm;
        let (round, case, ns) = (point.round + 1, name(case), point.ns_per_packet);
        format!("round {round}: {case} {program:?} {ns:.1} ns a packet")
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points, &results.more.memory_bytes)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        report::report(summary, &results.more.memory_bytes)
    }
}
