//! What the runs say: throughput beside the best setting by hand, of the same round.

use std::collections::BTreeMap;

use batchwise_core::tune::report::InForce;
use serde::Serialize;

use super::{Arm, Point};
use crate::applications::Missing;
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::median;

/// "Opposite answers, both right": within 3 % of both right by hand.
const REACHES: f64 = 0.97;

#[derive(Clone, Debug, Serialize)]
pub struct Served {
    pub name: String,
    pub requests_per_s: Option<f64>,
    pub mean_ns: Option<f64>,
    /// Throughput over TCP_NODELAY towards clients and Nagle's algorithm towards Redis, by hand.
    pub vs_best: Option<Ratio>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub arms: Vec<Served>,
    /// Rounds with `tune`, and those in which it had both right in the end.
    pub rounds: usize,
    pub both_right: usize,
    /// Throughput of `tune` over that of both right by hand, and over what the application asked for.
    pub tune_vs_best: Option<Ratio>,
    pub tune_vs_own: Option<Ratio>,
    pub reaches_best: Verdict,
    pub missing: BTreeMap<String, String>,
}

impl Summary {
    pub fn of(points: &[Point], more: &Missing) -> Self {
        let served = |arm: Arm| {
            let own = || points.iter().filter(move |p| p.arm == arm);
            Served {
                name: arm.name(),
                requests_per_s: median(&own().map(|p| p.requests_per_s).collect::<Vec<_>>()),
                mean_ns: median(&own().map(|p| p.mean_ns).collect::<Vec<_>>()),
                vs_best: over(points, arm, Arm::by_hand(true, false)),
            }
        };
        let in_force = || points.iter().filter_map(|p| p.in_force);
        let tune_vs_best = over(points, Arm::TUNED, Arm::by_hand(true, false));
        Self {
            arms: Arm::all().into_iter().map(served).collect(),
            rounds: in_force().count(),
            both_right: in_force()
                .filter(|both| *both == (InForce::Off, InForce::On))
                .count(),
            tune_vs_own: over(points, Arm::TUNED, Arm::by_hand(false, true)),
            reaches_best: Verdict::at_least(tune_vs_best.as_ref(), REACHES),
            tune_vs_best,
            missing: more.missing.clone(),
        }
    }
}

fn over(points: &[Point], arm: Arm, base: Arm) -> Option<Ratio> {
    Ratio::of(&pairs_of(points, arm, base))
}

pub fn pairs_of(points: &[Point], arm: Arm, base: Arm) -> Vec<(f64, f64)> {
    pairs(
        points,
        |p| (p.round, p.arm),
        arm,
        base,
        |p| p.requests_per_s,
    )
}
