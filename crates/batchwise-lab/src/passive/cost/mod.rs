//! Experiment `passive-cost` (the paper's §5.5 and Table 1): what the passive vantage adds to each
//! packet, and the memory of a flow.

mod bench;
mod summary;

use anyhow::Result;
use batchwise_testbed::topology::TwoHosts;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::color::{NAGLE, NODELAY};
use crate::engine::text::{interval, name, quartiles};
use crate::engine::{
    Experiment, Figure, Ratio, Report, Results, Round, Run, Strip, Table, Turn, two_hosts,
};
use crate::packet_cost::{self, FLOWS};
use crate::stats::{Spread, median};
use bench::Bench;
use summary::{Summary, forwarding};

/// How often the kernel's run-time statistics are asked.
const STATISTICS: u32 = 5;

pub struct PassiveCost;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
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
    fn flows(self) -> u32 {
        match self {
            Self::OneFlow | Self::Forward => 1,
            Self::ManyFlows => FLOWS,
            Self::NewFlows => u32::MAX,
        }
    }

    fn programs(self) -> &'static [Program] {
        match self {
            Self::Forward => &[Program::Nothing, Program::Tail, Program::Passive],
            _ => &[Program::Nothing, Program::Passive],
        }
    }
}

/// What runs for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// One that passes it on.
    Nothing,
    /// A tail call to what passes it on.
    Tail,
    Passive,
}

type Arm = packet_cost::Arm<Case, Program>;
type Point = packet_cost::Point<Arm>;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct More {
    table_bytes: u64,
    all_maps_bytes: u64,
    /// Added by the kernel's run-time statistics, ns a packet.
    statistics_ns_per_packet: Option<f64>,
    /// Packets that were measured, evictions, events that found no room.
    measured: u64,
    evicted: u64,
    lost_events: u64,
}

pub struct Stage {
    /// Memory of the flow table, and of all maps, bytes.
    memory: (u64, u64),
    bench: Bench,
    hosts: TwoHosts,
}

fn packets(context: &Context) -> u32 {
    if context.quick { 200_000 } else { 1_000_000 }
}

impl Experiment for PassiveCost {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "passive-cost"
    }

    fn about(&self) -> &'static str {
        "what the passive vantage adds to each packet, and the memory of a flow (Table 1)"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let of = |&case: &Case| {
            let programs = case.programs().iter();
            programs.map(move |&program| Arm { case, program })
        };
        let arms: Vec<_> = Case::value_variants().iter().flat_map(of).collect();
        Ok(Round::shuffled(if quick { 15 } else { 31 }, &arms))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        context.stop.check()?;
        let (hosts, network) = two_hosts("passive-cost")?;
        let stage = Stage {
            // Before there are other maps.
            memory: bench::memory()?,
            bench: Bench::load(&hosts)?,
            hosts,
        };
        Ok((stage, network))
    }

    fn prepare(&self, run: &mut Run<'_, More>, stage: &mut Stage) -> Result<()> {
        if run.more.statistics_ns_per_packet.is_some() {
            return Ok(());
        }
        (run.more.table_bytes, run.more.all_maps_bytes) = stage.memory;
        let each = packets(run.context) / STATISTICS;
        let one = |_| Bench::by_statistics(&stage.hosts, each);
        let added = (0..STATISTICS).map(one).collect::<Result<Vec<_>>>()?;
        run.more.statistics_ns_per_packet = median(&added);
        run.note(&format!(
            "added by run-time statistics, ns a packet: {added:.0?}"
        ));
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let Arm { case, program } = *turn.arm;
        let times = packets(run.context);
        let ns_per_packet = stage.bench.run(&stage.hosts, case, program, times)?;
        let counters = stage.bench.counters()?;
        run.more.measured = counters.measured;
        run.more.evicted = counters.evicted;
        run.more.lost_events = counters.lost_events;
        Ok(vec![Point {
            round: turn.round,
            position: turn.position,
            arm: *turn.arm,
            ns_per_packet,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        let Arm { case, program } = point.arm;
        let (round, case, ns) = (point.round + 1, name(case), point.ns_per_packet);
        format!("round {round}: {case} {program:?} {ns:.1} ns a packet")
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        let strips = [(Program::Passive, NODELAY), (Program::Tail, NAGLE)];
        let strips = strips.map(|(program, color)| {
            let pairs = forwarding(&results.points, program);
            Strip::new(format!("{program:?}"), color, &pairs)
        });
        let mut report = Report::new(
            "Passive cost: what the vantage adds to each packet",
            "One packet at a time through BPF_PROG_TEST_RUN, with the measuring program and with one \
             that does nothing in its place; the arms of a round run one after another in random \
             order.",
        )
        .heading("Time added to a packet")
        .table(cases(summary))
        .text(
            "Medians with quartiles; what is added is the median of the rounds' differences with a \
             95 % bootstrap interval. The time of BPF_PROG_TEST_RUN holds a small program that \
             makes each packet another flow's or the next of its flow; it runs in both arms.",
        );
        if let Some(ns) = summary.statistics_ns_per_packet {
            report = report.text(format!(
                "By the kernel's run-time statistics, of a UDP flood over the link, above a program \
                 that does nothing: {ns:.0} ns a packet."
            ));
        }
        report
            .heading("Forwarding")
            .figure(Figure::ratios(
                "forwarding.svg",
                "Forwarding throughput over that of the same round without",
                "throughput ratio",
                strips.into(),
            ))
            .heading("Beside the paper's Table 1")
            .table(table_1(summary))
            .text(
                "Absolute times of different machines do not compare; what measuring adds to the \
                 same machine's forwarding does, roughly.",
            )
    }
}

fn cases(summary: &Summary) -> Table {
    let spread = |of: Option<Spread>| of.map_or_else(String::new, quartiles);
    Table::of(
        &summary.cases,
        &[
            ("packets of", &|(case, _)| name(case)),
            ("nothing, ns", &|(_, of)| spread(of.nothing_ns)),
            ("passive, ns", &|(_, of)| spread(of.passive_ns)),
            ("added, ns", &|(_, of)| interval(of.added_ns)),
            ("throughput ratio", &|(_, of)| {
                let ratio = of.throughput_ratio.as_ref();
                ratio.map_or_else(|| "–".into(), |ratio| Ratio::text(Some(ratio)))
            }),
        ],
    )
}

fn table_1(summary: &Summary) -> Table {
    let forward = &summary.cases[&Case::Forward];
    let redirect = forward.nothing_ns.map(|s| format!("{:.0}", s.median));
    let with_all_maps = summary.bytes_per_flow_with_all_maps;
    let rows = [
        ("Redirect, ns", "871", redirect.unwrap_or_default()),
        (
            "tail call adds, ns",
            "151 (Katran: 11)",
            interval(forward.tail_added_ns),
        ),
        (
            "measuring adds (with its tail call), ns",
            "525 (Katran: 329)",
            interval(forward.added_ns),
        ),
        (
            "memory of a flow, bytes",
            "154",
            format!("{:.1}", summary.bytes_per_flow),
        ),
        (
            "with the events' buffer and all other maps",
            "–",
            format!("{with_all_maps:.1}"),
        ),
    ];
    let row = |(what, paper, here): (&str, &str, String)| vec![what.into(), paper.into(), here];
    Table::new(["", "paper", "here"]).with(rows.map(row))
}
