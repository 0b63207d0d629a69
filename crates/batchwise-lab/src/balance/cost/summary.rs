//! What the runs say: the time of a packet above that in a program that does nothing, in the same
//! round.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum as _;
use serde::Serialize;

use super::bench::RING;
use super::{Arm, Case, Point, Program};
use crate::engine::Verdict;
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::packet_cost::{FLOWS, differences, spread};
use crate::stats::{MedianInterval, Spread};

/// The programs that are held against a bar.
const BALANCERS: [Program; 2] = [Program::Plain, Program::Measured];

/// A value for each of the two: the balancer, and the balancer that measures.
type PerProgram<T> = BTreeMap<Program, T>;

fn each<T>(value: impl Fn(Program) -> T) -> PerProgram<T> {
    BALANCERS.map(|program| (program, value(program))).into()
}

impl Program {
    /// What a packet of a warm flow may take, ns.
    pub(super) fn bar(self) -> f64 {
        match self {
            Self::Measured => 250.0,
            _ => 150.0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseSummary {
    /// All of a run with nothing in the program's place, ns a packet.
    pub nothing_ns: Option<Spread>,
    /// All of a run with the balancer, ns a packet.
    pub gross_ns: PerProgram<Option<Spread>>,
    /// The median of that with its 95 % interval.
    pub gross_interval: PerProgram<Option<MedianInterval>>,
    /// The program's own time: median of the rounds' differences, ns a packet.
    pub ns: PerProgram<Option<MedianInterval>>,
    /// What measuring adds, ns a packet.
    pub measuring_ns: Option<MedianInterval>,
    /// All of a run, as a rate on one core.
    pub packets_per_s: PerProgram<Option<f64>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub rounds: usize,
    /// The program's own time, of one warm flow, by the slowest of the ways out, ns.
    pub ns_per_packet: PerProgram<Option<f64>>,
    /// The same with its 95 % interval.
    pub ns_interval: PerProgram<Option<MedianInterval>>,
    /// The same with all that runs the program, as other balancers' times are given, ns.
    pub gross_ns_per_packet: PerProgram<Option<f64>>,
    /// The same with its 95 % interval.
    pub gross_ns_interval: PerProgram<Option<MedianInterval>>,
    /// One flow's packets on one core, redirected to another interface by layer 2.
    pub packets_per_s: PerProgram<Option<f64>>,
    /// The same with a program that looks at nothing.
    pub packets_per_s_unbalanced: Option<f64>,
    /// Whether [`Program::bar`] holds for the program's own time; null: undecided.
    pub bars: PerProgram<Option<bool>>,
    /// Whether it holds for all of the time; null: undecided.
    pub gross_bars: PerProgram<Option<bool>>,
    pub verdicts: PerProgram<Verdict>,
    pub gross_verdicts: PerProgram<Verdict>,
    /// Memory of the tables that grow with flows, for each: those of affinity, that of measuring.
    pub bytes_per_flow: PerProgram<f64>,
    /// Memory of a service's ring, bytes.
    pub bytes_per_service: u64,
    pub cases: BTreeMap<Case, CaseSummary>,
}

impl Summary {
    pub(super) fn of(points: &[Point], memory: &BTreeMap<String, u64>) -> Self {
        let cases = Case::value_variants().iter();
        let cases: BTreeMap<_, _> = cases.map(|&c| (c, case(points, c))).collect();
        let slowest = |of: &dyn Fn(&CaseSummary) -> Option<MedianInterval>| {
            let warm = Case::WARM.into_iter().filter_map(|c| of(&cases[&c]));
            warm.max_by(|a, b| a.median.total_cmp(&b.median))
        };
        let own = each(|program| slowest(&|c| c.ns[&program]));
        let gross = each(|program| slowest(&|c| c.gross_interval[&program]));
        let rounds: BTreeSet<_> = points.iter().map(|p| p.round).collect();
        let rounds = rounds.len();
        let held = |ns: &PerProgram<Option<MedianInterval>>| {
            each(|program| held(ns[&program], program.bar(), rounds))
        };
        let (verdicts, gross_verdicts) = (held(&own), held(&gross));
        let decided = |verdicts: &PerProgram<Verdict>| {
            each(|program| match verdicts[&program] {
                Verdict::Met => Some(true),
                Verdict::Missed => Some(false),
                Verdict::Undecided => None,
            })
        };
        let median = |of: &PerProgram<Option<MedianInterval>>| {
            each(|program| of[&program].map(|ns| ns.median))
        };
        let redirected = &cases[&Case::RedirectL2];
        let bytes = |names: &[&str]| -> f64 {
            let known = names.iter().filter_map(|name| memory.get(*name));
            known.sum::<u64>() as f64 / f64::from(FLOWS)
        };
        Self {
            rounds,
            ns_per_packet: median(&own),
            gross_ns_per_packet: median(&gross),
            packets_per_s: redirected.packets_per_s.clone(),
            packets_per_s_unbalanced: redirected.nothing_ns.map(|s| 1e9 / s.median),
            bars: decided(&verdicts),
            gross_bars: decided(&gross_verdicts),
            verdicts,
            gross_verdicts,
            bytes_per_flow: each(|program| {
                let measured = (program == Program::Measured).then_some("flows");
                bytes(&[&["flows_settled", "flows_young"], measured.as_slice()].concat())
            }),
            bytes_per_service: memory.get(RING).copied().unwrap_or_default(),
            ns_interval: own,
            gross_ns_interval: gross,
            cases,
        }
    }
}

fn held(ns: Option<MedianInterval>, bar: f64, rounds: usize) -> Verdict {
    match ns.filter(|_| rounds >= ENOUGH_PAIRS) {
        Some(ns) if ns.high <= bar => Verdict::Met,
        Some(ns) if ns.low > bar => Verdict::Missed,
        _ => Verdict::Undecided,
    }
}

fn case(points: &[Point], case: Case) -> CaseSummary {
    let arm = |program| Arm { case, program };
    let above = |program, base| differences(points, arm(program), arm(base));
    let gross = each(|program| spread(points, arm(program)));
    CaseSummary {
        nothing_ns: spread(points, arm(Program::Nothing)),
        gross_interval: each(|program| {
            let own = points.iter().filter(|p| p.arm == arm(program));
            MedianInterval::of(&own.map(|p| p.ns_per_packet).collect::<Vec<_>>())
        }),
        ns: each(|program| above(program, Program::Nothing)),
        measuring_ns: above(Program::Measured, Program::Plain),
        packets_per_s: each(|program| gross[&program].map(|s| 1e9 / s.median)),
        gross_ns: gross,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(count: u32) -> Vec<Point> {
        let round = |round| {
            [
                (Case::L2V4, Program::Nothing, 20.0),
                (Case::L2V4, Program::Plain, 120.0),
                (Case::IpipV6, Program::Nothing, 30.0),
                (Case::IpipV6, Program::Plain, 190.0),
                (Case::IpipV6, Program::Measured, 270.0),
                (Case::RedirectL2, Program::Plain, 500.0),
            ]
            .map(|(case, program, ns_per_packet)| Point {
                round,
                position: 0,
                arm: Arm { case, program },
                ns_per_packet,
            })
        };
        (0..count).flat_map(round).collect()
    }

    #[test]
    fn the_slowest_way_out_is_held_against_the_bar_alone_and_with_what_runs_it() {
        let summary = Summary::of(&rounds(15), &BTreeMap::new());
        assert_eq!(summary.ns_per_packet[&Program::Plain], Some(160.0));
        assert_eq!(summary.bars[&Program::Plain], Some(false));
        assert_eq!(summary.bars[&Program::Measured], Some(true));
        assert_eq!(summary.gross_ns_per_packet[&Program::Plain], Some(190.0));
        assert_eq!(summary.gross_bars[&Program::Measured], Some(false));
        assert_eq!(summary.packets_per_s[&Program::Plain], Some(2e6));
        let measuring = summary.cases[&Case::IpipV6].measuring_ns;
        assert_eq!(measuring.map(|ns| ns.median), Some(80.0));
    }

    #[test]
    fn few_rounds_decide_nothing_about_a_bar() {
        let summary = Summary::of(&rounds(5), &BTreeMap::new());
        assert_eq!((summary.bars[&Program::Plain], summary.rounds), (None, 5));
        assert_eq!(
            summary.gross_verdicts[&Program::Measured],
            Verdict::Undecided
        );
        assert_eq!(summary.ns_per_packet[&Program::Plain], Some(160.0));
    }
}
