//! What the points say: each way to write against the default, in the same round.

use serde::Serialize;

use super::{Arm, Point};
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::median;

/// The link must stay so full.
const FULL: f64 = 0.99;
/// Data must be so many times younger than with the default.
const YOUNGER: f64 = 10.0;

/// A way to write. Medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub arm: Arm,
    pub age_ns: f64,
    /// Over the default's, with its 95 % interval.
    pub age_vs_default: Option<Ratio>,
    pub ping_ns: f64,
    pub unsent_bytes: f64,
    pub bytes_per_s: f64,
    /// Over the default's, with its 95 % interval.
    pub carried_vs_default: Option<Ratio>,
    /// Whether that is at least 99 %.
    pub carried_verdict: Verdict,
    pub asked_per_mb: f64,
    pub writes_per_mb: f64,
    pub cpu_ns_per_mb: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Median age with the default over that with `batchwise window`, …
    pub latency_ratio_default: Option<f64>,
    pub latency_ratio_default_interval: Option<Ratio>,
    /// … whether that is at least 10, …
    pub latency_verdict: Verdict,
    /// … and the better KIST's age over that with `batchwise window`.
    pub latency_ratio_kist: Option<f64>,
    pub latency_ratio_kist_interval: Option<Ratio>,
    /// Whether that is at least 1.
    pub kist_verdict: Verdict,
    /// What was carried with `batchwise window` over what was with the default.
    pub utilisation: Option<f64>,
    pub utilisation_interval: Option<Ratio>,
    /// Whether that is at least 99 %.
    pub utilisation_verdict: Verdict,
    /// Bytes that wait in the kernel with `batchwise window`, a connection.
    pub unsent_bytes: Option<f64>,
    pub arms: Vec<Compared>,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let there = |arm: &Arm| points.iter().any(|p| p.arm == *arm);
        let arms: Vec<_> = Arm::ALL.into_iter().filter(there).collect();
        let arms: Vec<_> = arms
            .into_iter()
            .map(|arm| Compared::of(points, arm))
            .collect();
        let age = |p: &Point| p.age_ns;
        let younger = Ratio::of(&compare(points, Arm::Default, Arm::Window, age));
        let kists = [Arm::Kist2, Arm::Kist10]
            .map(|kist| Ratio::of(&compare(points, kist, Arm::Window, age)));
        let kist = kists
            .into_iter()
            .flatten()
            .min_by(|a, b| a.median.total_cmp(&b.median));
        let window = arms.iter().find(|c| c.arm == Arm::Window);
        let utilisation = window.and_then(|c| c.carried_vs_default);
        Self {
            latency_ratio_default: younger.map(|r| r.median),
            latency_verdict: Verdict::at_least(younger.as_ref(), YOUNGER),
            latency_ratio_default_interval: younger,
            latency_ratio_kist: kist.map(|r| r.median),
            kist_verdict: Verdict::at_least(kist.as_ref(), 1.0),
            latency_ratio_kist_interval: kist,
            utilisation: utilisation.map(|r| r.median),
            utilisation_verdict: Verdict::at_least(utilisation.as_ref(), FULL),
            utilisation_interval: utilisation,
            unsent_bytes: window.map(|c| c.unsent_bytes),
            arms,
        }
    }
}

impl Compared {
    fn of(points: &[Point], arm: Arm) -> Self {
        let middle = |of: fn(&Point) -> f64| {
            let of_arm = points.iter().filter(|p| p.arm == arm);
            median(&of_arm.map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let carried = Ratio::of(&compare(points, arm, Arm::Default, |p| p.bytes_per_s));
        Self {
            arm,
            age_ns: middle(|p| p.age_ns),
            age_vs_default: Ratio::of(&compare(points, arm, Arm::Default, |p| p.age_ns)),
            ping_ns: middle(|p| p.ping_ns),
            unsent_bytes: middle(|p| p.unsent_bytes),
            bytes_per_s: middle(|p| p.bytes_per_s),
            carried_verdict: Verdict::at_least(carried.as_ref(), FULL),
            carried_vs_default: carried,
            asked_per_mb: middle(|p| p.asked_per_mb),
            writes_per_mb: middle(|p| p.writes_per_mb),
            cpu_ns_per_mb: middle(|p| p.cpu_ns_per_mb),
        }
    }
}

/// A value of two arms, of each round that has both.
fn compare(points: &[Point], a: Arm, b: Arm, of: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    pairs(points, |p| (p.round, p.arm), a, b, of)
}
