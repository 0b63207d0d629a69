//! What the runs say: the time of a packet above that in a program that does nothing, in the same
//! round.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bench::RING;
use super::{Arm, Case, Point, Program};
use crate::packet_cost::{FLOWS, differences, spread};
use crate::stats::{MedianInterval, Spread};

/// The bars, ns a packet of a warm flow.
pub(super) const BARS: PerProgram<f64> = PerProgram {
    plain: 150.0,
    measured: 250.0,
};

/// A value for each of the two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerProgram<T> {
    /// The balancer.
    pub plain: T,
    /// The balancer, which measures.
    pub measured: T,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseSummary {
    /// All of a run with nothing in the program's place, ns a packet.
    pub nothing_ns: Option<Spread>,
    /// All of a run with the balancer, ns a packet.
    pub gross_ns: PerProgram<Option<Spread>>,
    /// The program's own time: median of the rounds' differences, ns a packet.
    pub ns: PerProgram<Option<MedianInterval>>,
    /// What measuring adds, ns a packet.
    pub measuring_ns: Option<MedianInterval>,
    /// All of a run, as a rate on one core.
    pub packets_per_s: PerProgram<Option<f64>>,
}

/// The experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The program's own time, of one warm flow, by the slowest of the ways out, ns.
    pub ns_per_packet: PerProgram<Option<f64>>,
    /// The same with all that runs the program, as other balancers' times are given, ns.
    pub gross_ns_per_packet: PerProgram<Option<f64>>,
    /// One flow's packets on one core, redirected to another interface by layer 2.
    pub packets_per_s: PerProgram<Option<f64>>,
    /// The same with a program that looks at nothing.
    pub packets_per_s_unbalanced: Option<f64>,
    /// Whether [`BARS`] hold for the program's own time.
    pub bars: PerProgram<Option<bool>>,
    /// Whether they hold for all of the time.
    pub gross_bars: PerProgram<Option<bool>>,
    /// Memory of the tables that grow with flows, for each: those of affinity, that of measuring.
    pub bytes_per_flow: PerProgram<f64>,
    /// Memory of a service's ring, bytes.
    pub bytes_per_service: u64,
    /// By name of the case.
    pub cases: BTreeMap<&'static str, CaseSummary>,
}

impl Summary {
    /// Of these runs.
    pub(super) fn of(points: &[Point], memory: &BTreeMap<String, u64>) -> Self {
        let cases: BTreeMap<_, _> = Case::ALL.map(|c| (c.name(), case(points, c))).into();
        let slowest = |of: &dyn Fn(&CaseSummary) -> Option<f64>| {
            let warm = Case::WARM.map(|c| of(&cases[c.name()]));
            warm.into_iter().flatten().reduce(f64::max)
        };
        let ns_per_packet = PerProgram {
            plain: slowest(&|c| c.ns.plain.map(|ns| ns.median)),
            measured: slowest(&|c| c.ns.measured.map(|ns| ns.median)),
        };
        let gross_ns_per_packet = PerProgram {
            plain: slowest(&|c| c.gross_ns.plain.map(|ns| ns.median)),
            measured: slowest(&|c| c.gross_ns.measured.map(|ns| ns.median)),
        };
        let redirected = &cases[Case::RedirectL2.name()];
        let bytes = |names: &[&str]| -> f64 {
            let known = names.iter().filter_map(|name| memory.get(*name));
            known.sum::<u64>() as f64 / f64::from(FLOWS)
        };
        Self {
            ns_per_packet,
            gross_ns_per_packet,
            packets_per_s: redirected.packets_per_s,
            packets_per_s_unbalanced: redirected.nothing_ns.map(|s| 1e9 / s.median),
            bars: held(ns_per_packet),
            gross_bars: held(gross_ns_per_packet),
            bytes_per_flow: PerProgram {
                plain: bytes(&["flows_settled", "flows_young"]),
                measured: bytes(&["flows_settled", "flows_young", "flows"]),
            },
            bytes_per_service: memory.get(RING).copied().unwrap_or_default(),
            cases,
        }
    }
}

fn held(ns: PerProgram<Option<f64>>) -> PerProgram<Option<bool>> {
    PerProgram {
        plain: ns.plain.map(|ns| ns <= BARS.plain),
        measured: ns.measured.map(|ns| ns <= BARS.measured),
    }
}

fn case(points: &[Point], case: Case) -> CaseSummary {
    let arm = |program| Arm { case, program };
    let spread = |program| spread(points, arm(program));
    let above = |program, base| differences(points, arm(program), arm(base));
    let gross_ns = PerProgram {
        plain: spread(Program::Plain),
        measured: spread(Program::Measured),
    };
    let rate = |spread: Option<Spread>| spread.map(|s| 1e9 / s.median);
    CaseSummary {
        nothing_ns: spread(Program::Nothing),
        ns: PerProgram {
            plain: above(Program::Plain, Program::Nothing),
            measured: above(Program::Measured, Program::Nothing),
        },
        measuring_ns: above(Program::Measured, Program::Plain),
        packets_per_s: PerProgram {
            plain: rate(gross_ns.plain),
            measured: rate(gross_ns.measured),
        },
        gross_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_way_out_is_held_against_the_bar_alone_and_with_what_runs_it() {
        let point = |case, program, ns_per_packet| Point {
            round: 0,
            position: 0,
            arm: Arm { case, program },
            ns_per_packet,
        };
        let points = [
            point(Case::L2V4, Program::Nothing, 20.0),
            point(Case::L2V4, Program::Plain, 120.0),
            point(Case::IpipV6, Program::Nothing, 30.0),
            point(Case::IpipV6, Program::Plain, 190.0),
            point(Case::IpipV6, Program::Measured, 270.0),
            point(Case::RedirectL2, Program::Plain, 500.0),
        ];
        let summary = Summary::of(&points, &BTreeMap::new());
        assert_eq!(summary.ns_per_packet.plain, Some(160.0));
        assert_eq!(summary.bars.plain, Some(false));
        assert_eq!(summary.bars.measured, Some(true));
        assert_eq!(summary.gross_ns_per_packet.plain, Some(190.0));
        assert_eq!(summary.gross_bars.measured, Some(false));
        assert_eq!(summary.packets_per_s.plain, Some(2e6));
        let measuring = summary.cases["ipip-v6"].measuring_ns;
        assert_eq!(measuring.map(|ns| ns.median), Some(80.0));
    }
}
