//! What the runs of the overhead experiment say: medians, spread, and ratios between runs of the
//! same round, which a drift of the machine does not touch.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Arm, HookCost, Point};
use crate::rounds::ratios;
use crate::stats::{MedianInterval, Spread};

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmSummary {
    /// Requests a second.
    pub rps: Spread,
    /// CPU time of the server process a request, ns.
    pub server_cpu_ns_per_request: Spread,
    /// CPU time of the benchmark process a request, ns.
    pub client_cpu_ns_per_request: Spread,
    /// Throughput over that of `off` in the same round.
    pub throughput_ratio: Option<MedianInterval>,
    /// Server CPU time a request over that of `off` in the same round.
    pub server_cpu_ratio: Option<MedianInterval>,
    /// Client CPU time a request over that of `off` in the same round.
    pub client_cpu_ratio: Option<MedianInterval>,
    /// Time inside the hooks for a request at one endpoint, ns, by the kernel's statistics (which
    /// add to it themselves).
    pub hook_ns_per_request: Option<f64>,
}

/// The experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// `watch` over `off`: median of the rounds' ratios.
    pub throughput_ratio: Option<f64>,
    /// `watch`: time inside the hooks for a request at one endpoint, ns.
    pub hook_ns_per_request: Option<f64>,
    /// By name of the arm.
    pub arms: BTreeMap<&'static str, ArmSummary>,
}

impl Summary {
    /// Of these runs and hook costs.
    pub fn of(points: &[Point], hooks: &[HookCost]) -> Self {
        let arms: BTreeMap<_, _> = Arm::ALL
            .into_iter()
            .filter_map(|arm| Some((arm.name(), arm_summary(points, hooks, arm)?)))
            .collect();
        Self {
            throughput_ratio: arms
                .get(Arm::Watch.name())
                .and_then(|watch| Some(watch.throughput_ratio?.median)),
            hook_ns_per_request: hook_ns(hooks, Arm::Watch),
            arms,
        }
    }
}

fn hook_ns(hooks: &[HookCost], arm: Arm) -> Option<f64> {
    hooks
        .iter()
        .find(|h| h.arm == arm)
        .map(|h| h.ns_per_request)
}

fn arm_summary(points: &[Point], hooks: &[HookCost], arm: Arm) -> Option<ArmSummary> {
    let spread = |value: fn(&Point) -> f64| {
        let samples: Vec<_> = points.iter().filter(|p| p.arm == arm).map(value).collect();
        Spread::of(&samples)
    };
    let ratio = |value: fn(&Point) -> f64| {
        if arm == Arm::Off {
            None
        } else {
            MedianInterval::of(&ratios(points, arm, Arm::Off, value))
        }
    };
    Some(ArmSummary {
        rps: spread(|p| p.rps)?,
        server_cpu_ns_per_request: spread(|p| p.server_cpu_ns_per_request)?,
        client_cpu_ns_per_request: spread(|p| p.client_cpu_ns_per_request)?,
        throughput_ratio: ratio(|p| p.rps),
        server_cpu_ratio: ratio(|p| p.server_cpu_ns_per_request),
        client_cpu_ratio: ratio(|p| p.client_cpu_ns_per_request),
        hook_ns_per_request: hook_ns(hooks, arm),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: u32, arm: Arm, rps: f64) -> Point {
        Point {
            round,
            position: 0,
            arm,
            rps,
            requests: 1000,
            server_cpu_ns_per_request: 1e9 / rps,
            client_cpu_ns_per_request: 1e9 / rps,
        }
    }

    #[test]
    fn ratios_are_within_rounds_so_that_drift_cancels() {
        let points = [
            point(0, Arm::Off, 100.0),
            point(0, Arm::Watch, 98.0),
            point(1, Arm::Watch, 49.0),
            point(1, Arm::Off, 50.0),
            point(2, Arm::Off, 200.0),
            point(2, Arm::Watch, 196.0),
        ];
        let summary = Summary::of(&points, &[]);
        assert!((summary.throughput_ratio.unwrap() - 0.98).abs() < 1e-9);
        let watch = &summary.arms["watch"];
        assert!((watch.server_cpu_ratio.unwrap().median - 1.0 / 0.98).abs() < 1e-9);
        assert_eq!(summary.arms["off"].throughput_ratio, None);
    }

    #[test]
    fn a_round_that_was_cut_short_gives_no_ratio() {
        let points = [point(0, Arm::Watch, 98.0)];
        assert_eq!(Summary::of(&points, &[]).throughput_ratio, None);
    }
}
