//! What the runs say: packets a second by arm, and what admission takes of drop-tail's in the same round.

use serde::Serialize;

use super::{Arm, Point, SIZES, Way};
use crate::engine::{Ratio, pairs};
use crate::stats::{Spread, median};

/// An arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ArmSummary {
    pub(crate) way: Way,
    /// Of a frame on the wire.
    pub(crate) bytes: usize,
    pub(crate) packets_per_s: Option<Spread>,
    /// Packets a second over drop-tail's of the same round.
    pub(crate) of_drop_tail: Option<Ratio>,
    /// Bursts that were admitted, of those that asked: the median of the runs.
    pub(crate) admitted: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Of 64 B on one core, with admission of bursts: the median.
    pub(crate) packets_per_s: Option<f64>,
    /// The same with drop-tail.
    pub(crate) packets_per_s_drop_tail: Option<f64>,
    /// What admission leaves of it: the median, if there are enough rounds.
    pub(crate) throughput_ratio: Option<f64>,
    pub(crate) arms: Vec<ArmSummary>,
}

impl Summary {
    pub(crate) fn of(points: &[Point]) -> Self {
        let all = SIZES.map(|bytes| Way::ALL.map(|way| arm(points, Arm { way, bytes })));
        let arms = all.concat();
        let of = |way| {
            arms.iter()
                .find(move |a| a.way == way && a.bytes == SIZES[0])
        };
        let rate = |way| of(way).and_then(|a| a.packets_per_s).map(|s| s.median);
        Self {
            packets_per_s: rate(Way::Bursts),
            packets_per_s_drop_tail: rate(Way::DropTail),
            throughput_ratio: of(Way::Bursts).and_then(|a| Ratio::decided(a.of_drop_tail.as_ref())),
            arms,
        }
    }
}

fn arm(points: &[Point], arm: Arm) -> ArmSummary {
    let of: Vec<_> = points.iter().filter(|p| p.arm == arm).collect();
    let rates: Vec<_> = of.iter().map(|p| p.packets_per_s).collect();
    let admitted: Vec<_> = of.iter().map(|p| p.admitted).collect();
    let base = Arm {
        way: Way::DropTail,
        ..arm
    };
    let pairs = pairs(points, |p| (p.round, p.arm), arm, base, |p| p.packets_per_s);
    ArmSummary {
        way: arm.way,
        bytes: arm.bytes,
        packets_per_s: Spread::of(&rates),
        of_drop_tail: Ratio::of(&pairs).filter(|_| arm != base),
        admitted: median(&admitted).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_is_held_against_drop_tail_of_the_same_round_and_size() {
        let point = |round, way, bytes, packets_per_s| Point {
            round,
            position: 0,
            arm: Arm { way, bytes },
            packets_per_s,
            received_per_s: packets_per_s,
            lost_per_s: 0.0,
            admitted: 1.0,
        };
        let round = |i: u32| {
            let speed = f64::from(i % 3 + 1) * 1e5;
            [
                point(i, Way::DropTail, 64, speed),
                point(i, Way::Bursts, 64, 0.9 * speed),
                point(i, Way::DropTail, 1500, 1.0),
            ]
        };
        let points: Vec<_> = (0..15).flat_map(round).collect();
        let summary = Summary::of(&points);
        assert_eq!(summary.packets_per_s_drop_tail, Some(2e5));
        assert_eq!(summary.packets_per_s, Some(1.8e5));
        assert!(
            summary
                .throughput_ratio
                .is_some_and(|r| (r - 0.9).abs() < 1e-9)
        );
        assert_eq!(Summary::of(&[]).throughput_ratio, None);
    }
}
