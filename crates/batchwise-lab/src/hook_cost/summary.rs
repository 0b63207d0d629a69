//! What each arm adds to the base of the same round.

use std::collections::BTreeMap;

use clap::ValueEnum as _;
use serde::Serialize;

use super::{Arm, Point};
use crate::engine::pairs;
use crate::stats::{MedianInterval, Spread};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// With nothing attached, ns a request at one of its ends.
    pub nothing_ns: Option<Spread>,
    /// What is added to it: medians of the rounds' differences.
    pub added_ns: BTreeMap<Arm, MedianInterval>,
}

impl Summary {
    pub(super) fn of(points: &[Point]) -> Self {
        let nothing = points.iter().filter(|p| p.arm == Arm::Nothing);
        let nothing: Vec<_> = nothing.map(|p| p.ns_per_request).collect();
        let added = |&arm: &Arm| {
            Some((
                arm,
                MedianInterval::of_differences(&of_rounds(points, arm))?,
            ))
        };
        let arms = Arm::value_variants().iter().skip(1);
        Self {
            nothing_ns: Spread::of(&nothing),
            added_ns: arms.filter_map(added).collect(),
        }
    }
}

/// Times with `arm` and without, of each round that has both.
pub(super) fn of_rounds(points: &[Point], arm: Arm) -> Vec<(f64, f64)> {
    let key = |p: &Point| (p.round, p.arm);
    pairs(points, key, arm, Arm::Nothing, |p| p.ns_per_request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_the_median_of_the_rounds_differences() {
        let point = |round, arm, ns_per_request| Point {
            round,
            position: 0,
            arm,
            ns_per_request,
        };
        let points = [
            point(0, Arm::Nothing, 3000.0),
            point(0, Arm::Empty, 3150.0),
            point(1, Arm::Empty, 4130.0),
            point(1, Arm::Nothing, 4000.0),
            point(2, Arm::Nothing, 3100.0),
            point(2, Arm::Empty, 3240.0),
            point(3, Arm::Watch, 3500.0),
        ];
        let summary = Summary::of(&points);
        assert_eq!(summary.added_ns[&Arm::Empty].median, 140.0);
        assert_eq!(summary.nothing_ns.map(|s| s.median), Some(3100.0));
        assert_eq!(summary.added_ns.len(), 1);
    }
}
