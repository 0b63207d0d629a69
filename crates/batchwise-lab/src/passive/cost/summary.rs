//! What the runs say: medians, and what a program adds to one that does nothing in the same round.

use std::collections::BTreeMap;

use clap::ValueEnum as _;
use serde::Serialize;

use super::{Arm, Case, More, Point, Program};
use crate::engine::Ratio;
use crate::packet_cost::{FLOWS, differences, of_rounds, spread};
use crate::stats::{MedianInterval, Spread};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseSummary {
    /// With nothing in the program's place, ns a packet.
    pub nothing_ns: Option<Spread>,
    /// With the passive vantage, ns a packet.
    pub passive_ns: Option<Spread>,
    /// What it adds: median of the rounds' differences.
    pub added_ns: Option<MedianInterval>,
    /// What a tail call adds, where that was measured.
    pub tail_added_ns: Option<MedianInterval>,
    /// Where packets are forwarded: packets a second with it over those without.
    pub throughput_ratio: Option<Ratio>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Added to each packet of a flow that is in the caches, ns: median of the rounds' differences.
    pub added_ns_per_packet: Option<f64>,
    /// Memory of the flow table for each of the flows that it was made for.
    pub bytes_per_flow: f64,
    pub bytes_per_flow_with_all_maps: f64,
    /// Added to a packet of one flow over a link by the kernel's run-time statistics, ns.
    pub statistics_ns_per_packet: Option<f64>,
    pub cases: BTreeMap<Case, CaseSummary>,
}

impl Summary {
    pub(super) fn of(points: &[Point], more: &More) -> Self {
        let cases = Case::value_variants().iter();
        let cases: BTreeMap<_, _> = cases.map(|&c| (c, case(points, c))).collect();
        let added = cases[&Case::OneFlow].added_ns;
        Self {
            added_ns_per_packet: added.map(|added| added.median),
            bytes_per_flow: more.table_bytes as f64 / f64::from(FLOWS),
            bytes_per_flow_with_all_maps: more.all_maps_bytes as f64 / f64::from(FLOWS),
            statistics_ns_per_packet: more.statistics_ns_per_packet,
            cases,
        }
    }
}

fn case(points: &[Point], case: Case) -> CaseSummary {
    let arm = |program| Arm { case, program };
    let spread = |program| spread(points, arm(program));
    let added = |program| differences(points, arm(program), arm(Program::Nothing));
    let throughput = || Ratio::of(&forwarding(points, Program::Passive));
    CaseSummary {
        nothing_ns: spread(Program::Nothing),
        passive_ns: spread(Program::Passive),
        added_ns: added(Program::Passive),
        tail_added_ns: added(Program::Tail),
        throughput_ratio: (case == Case::Forward).then(throughput).flatten(),
    }
}

/// Times of a forwarded packet without the program and with it, by round: their ratio is that of the
/// throughputs.
pub(super) fn forwarding(points: &[Point], program: Program) -> Vec<(f64, f64)> {
    let case = Case::Forward;
    let arm = |program| Arm { case, program };
    of_rounds(points, arm(Program::Nothing), arm(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_the_median_of_the_rounds_differences() {
        let point = |round, program, ns_per_packet| Point {
            round,
            position: 0,
            arm: Arm {
                case: Case::OneFlow,
                program,
            },
            ns_per_packet,
        };
        let points = [
            point(0, Program::Nothing, 10.0),
            point(0, Program::Passive, 90.0),
            point(1, Program::Passive, 170.0),
            point(1, Program::Nothing, 100.0),
            point(2, Program::Nothing, 10.0),
            point(2, Program::Passive, 85.0),
            point(3, Program::Passive, 5.0),
        ];
        let more = More {
            table_bytes: 65_536 * 150,
            ..More::default()
        };
        let summary = Summary::of(&points, &more);
        assert_eq!(summary.added_ns_per_packet, Some(75.0));
        assert_eq!(summary.bytes_per_flow, 150.0);
        assert_eq!(summary.cases[&Case::Forward].added_ns, None);
    }
}
