//! Experiment `burst-tc-cost`: what `burst admit` adds to each packet that a router forwards, in tc egress.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use batchwise_bpf::burst::{Admitter, Bottleneck, Counts};
use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::topology::TwoHosts;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::text::{interval, name, quartiles};
use crate::engine::{Experiment, NoMore, Report, Results, Round, Run, Table, Turn, two_hosts};
use crate::packet_cost::{self, Repeater, differences, spread};
use crate::stats::{MedianInterval, Spread};

pub(crate) struct BurstTcCost;

/// The packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Case {
    /// Without marks, of 50 flows.
    Unmarked,
    /// Of 50 flows in turns: bursts of 10, as the paper's incast.
    Bursts,
    /// Of 1,024 flows in turns.
    ManyBursts,
    /// Of 50 flows whose marks are not heard, as their bursts are longer than a source's credit.
    Ignored,
}

impl Case {
    fn flows(self) -> u32 {
        match self {
            Self::Unmarked | Self::Bursts | Self::Ignored => 50,
            Self::ManyBursts => 1024,
        }
    }

    /// Whether what became of the packets is what the case is about.
    fn is_met(self, counts: &Counts) -> bool {
        let others = counts.bursts_refused + counts.denied + counts.overflowed + counts.own;
        let kinds =
            [counts.unmarked, counts.bursts_admitted, counts.ignored].map(|count| count > 0);
        let wanted = match self {
            Self::Unmarked => [true, false, false],
            Self::Bursts | Self::ManyBursts => [false, true, false],
            Self::Ignored => [false, false, true],
        };
        others == 0 && kinds == wanted && counts.promised >= 8 * counts.bursts_admitted
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// One that lets packets pass.
    Nothing,
    Admit,
}

type Arm = packet_cost::Arm<Case, Program>;
type Point = packet_cost::Point<Arm>;

pub(crate) struct Stage {
    repeater: Repeater,
    hosts: TwoHosts,
}

/// Segments of a burst.
const LENGTH: u32 = 10;
/// No burst is refused, and no lease ends before its burst has come.
const ROOMY: Bottleneck = Bottleneck {
    limit: 1 << 30,
    rate: 1_000_000_000,
    packet_bytes: None,
    points: CodePoints::Pool2,
    border: false,
};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CaseSummary {
    pub(crate) nothing_ns: Option<Spread>,
    pub(crate) admit_ns: Option<Spread>,
    /// Median of the rounds' differences.
    pub(crate) added_ns: Option<MedianInterval>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Added to a packet of the bursts of 50 flows, ns: median of the rounds' differences.
    pub(crate) added_ns_per_packet: Option<f64>,
    /// To one without a mark.
    pub(crate) added_ns_unmarked: Option<f64>,
    pub(crate) cases: BTreeMap<Case, CaseSummary>,
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let case = |&case: &Case| {
            let arm = |program| Arm { case, program };
            let summary = CaseSummary {
                nothing_ns: spread(points, arm(Program::Nothing)),
                admit_ns: spread(points, arm(Program::Admit)),
                added_ns: differences(points, arm(Program::Admit), arm(Program::Nothing)),
            };
            (case, summary)
        };
        let cases: BTreeMap<_, _> = Case::value_variants().iter().map(case).collect();
        let added = |case| {
            cases[&case]
                .added_ns
                .map(|added: MedianInterval| added.median)
        };
        Self {
            added_ns_per_packet: added(Case::Bursts),
            added_ns_unmarked: added(Case::Unmarked),
            cases,
        }
    }
}

impl Experiment for BurstTcCost {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "burst-tc-cost"
    }

    fn about(&self) -> &'static str {
        "what admission of bursts adds to each packet that a router forwards, in tc"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let of =
            |&case: &Case| [Program::Nothing, Program::Admit].map(|program| Arm { case, program });
        let arms: Vec<_> = Case::value_variants().iter().flat_map(of).collect();
        Ok(Round::shuffled(if quick { 15 } else { 31 }, &arms))
    }

    fn stage(&self, _context: &Context) -> Result<(Stage, Value)> {
        let (hosts, network) = two_hosts("burst-tc-cost")?;
        let stage = Stage {
            repeater: Repeater::leaving(&hosts.server, 0)?,
            hosts,
        };
        Ok((stage, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let Arm { case, program } = *turn.arm;
        let Stage { repeater, hosts } = stage;
        let times = if run.context.quick {
            200_000
        } else {
            1_000_000
        };
        let packet = packet(case != Case::Unmarked);
        // a new one each time: nothing is reserved at its start
        let limit = if case == Case::Ignored {
            5_000
        } else {
            ROOMY.limit
        };
        let admit = || Admitter::load(&Bottleneck { limit, ..ROOMY });
        let admitter = (program == Program::Admit).then(admit).transpose()?;
        let program = admitter.as_ref().map(Admitter::program);
        let what = (&packet[..], case.flows());
        let ns_per_packet = repeater.run_at_tc(&hosts.server, program, what, times)?;
        if let Some(admitter) = admitter {
            let (counts, _) = admitter.read()?;
            ensure!(
                case.is_met(&counts),
                "not what was to be measured: {counts:?}"
            );
        }
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

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let spread = |of: Option<Spread>| of.map_or_else(String::new, quartiles);
        Report::new(
            "Burst cost in tc: what admission adds to each packet",
            "One packet at a time through BPF_PROG_TEST_RUN, with the program of `batchwise burst admit` and \
             with one that does nothing in its place; the arms of a round run one after another in random order.",
        )
        .heading("Time added to a packet")
        .table(Table::of(
            &summary.cases,
            &[
                ("packets", &|(case, _)| name(case)),
                ("nothing, ns", &|(_, of)| spread(of.nothing_ns)),
                ("admit, ns", &|(_, of)| spread(of.admit_ns)),
                ("added, ns", &|(_, of)| interval(of.added_ns)),
            ],
        ))
        .text(
            "Medians with quartiles; what is added is the median of the rounds' differences with a 95 % \
             bootstrap interval. All bursts have room, but in `ignored`. Tables and program are in the caches, more than on a \
             router that does other things between two packets.",
        )
    }
}

/// TCP over IPv4 in a frame of 64 bytes on the wire, 4 of them the checksum behind it; marked or not, and for nobody:
/// the host that gets it throws it away as soon as it sees the address.
fn packet(marked: bool) -> Vec<u8> {
    let mark = CodePoints::default().mark(0, LENGTH);
    let tos = mark.filter(|_| marked).unwrap_or_default();
    let mut p = vec![2, 0, 0, 0, 0x77, 0x99, 2, 0, 0, 0, 0x77, 2, 8, 0];
    p.extend([0x45, tos, 0, 46, 0, 7, 0x40, 0, 64, 6, 0, 0]);
    p.extend([10, 77, 0, 2, 10, 77, 0, 1]);
    p.extend([0, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1]);
    p.extend([0x50, 0x10, 0xff, 0xff, 0x12, 0x34, 0, 0]);
    p.extend(*b"xxxxxx");
    p
}
