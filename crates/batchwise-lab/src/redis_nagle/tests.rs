//! Tests of the summary, with made-up points.

use super::plan::WORKLOADS;
use super::summary::*;
use super::{Point, figures};
use crate::arm::Arm;
use crate::decisions::samples::decision;
use crate::engine::{Verdict, draw};
use batchwise_testbed::load::samples::window;
use batchwise_testbed::load::{LatencySummary, PhaseReport};

/// At so many thousand requests a second; a mean of `None` is a collapse.
fn point(arm: Arm, step_k: u64, repeat: u32, mean_us: Option<f64>) -> Point {
    let step_rps = step_k * 1000;
    let window = window(step_rps as f64, mean_us.unwrap_or(50_000.0));
    Point {
        workload: "64B".into(),
        arm,
        step_rps,
        repeat,
        attempt: u32::from(mean_us.is_none()),
        saturated: mean_us.is_none(),
        learning: (arm == Arm::Batchwise).then(|| PhaseReport {
            latency_ns: LatencySummary {
                mean: window.latency_ns.mean * 1.1,
                ..window.latency_ns
            },
            ..window.clone()
        }),
        window,
        nagle_share: None,
    }
}

/// With these means, µs, of the tuned arm at 100, 200, … thousand requests a second.
fn three_arms(tuned: &[Option<f64>]) -> WorkloadSummary {
    let ladder = |arm, latencies: &[Option<f64>]| {
        let steps = (1..).zip(latencies);
        let points = steps.map(|(step, &us)| point(arm, 100 * step, 0, us));
        points.collect::<Vec<_>>()
    };
    let points = [
        ladder(Arm::Nodelay, &[Some(20.0), Some(400.0), None]),
        ladder(Arm::Nagle, &[30.0, 25.0, 40.0, 900.0].map(Some)),
        ladder(Arm::Batchwise, tuned),
    ];
    of_64b(&points.concat())
}

fn of_64b(points: &[Point]) -> WorkloadSummary {
    Summary::of(points).per_workload["64B"].clone()
}

#[test]
fn range_and_latency_are_those_of_the_default_compared() {
    let found = three_arms(&[21.0, 40.0, 42.0, 990.0].map(Some));
    assert_eq!(found.range_ratio, Some(1.5));
    assert_eq!(found.latency_ratio, Some(10.0));
    assert!(!found.range_is_lower_bound);
    assert_eq!(found.highest_under_slo_rps[&Arm::Nagle], 300_000);
}

#[test]
fn the_worst_point_is_compared_with_the_better_arm_and_named() {
    let found = three_arms(&[22.0, 26.0, 41.0, 1800.0].map(Some));
    let worst = found.worst_point.unwrap();
    assert_eq!((worst.step_rps, worst.against), (100_000, Arm::Nodelay));
    assert!((worst.ratio - 1.1).abs() < 1e-9);
    assert_eq!(found.worst_vs_best_arm, Some(worst.ratio));
    let beyond = found.worst_beyond_slo.unwrap();
    assert_eq!((beyond.step_rps, beyond.ratio), (400_000, 2.0));
    assert_eq!(found.worst_throughput.unwrap().ratio, 1.0);
}

#[test]
fn a_collapse_of_the_tuned_arm_below_the_others_is_infinitely_worse() {
    let found = three_arms(&[Some(20.0), None]);
    assert_eq!(found.worst_vs_best_arm, Some(f64::INFINITY));
    assert_eq!(found.range_ratio, Some(0.5));
    assert_eq!(found.worst_throughput.unwrap().ratio, 0.0);
}

#[test]
fn the_learning_phase_is_compared_with_the_default_where_that_keeps_the_slo() {
    let found = three_arms(&[40.0, 40.0, 4000.0].map(Some));
    let worst = found.worst_learning.unwrap();
    assert_eq!((worst.step_rps, worst.against), (100_000, Arm::Nodelay));
    assert!((worst.ratio - 2.2).abs() < 1e-9);
}

#[test]
fn ratios_are_within_repeats_so_that_drift_cancels() {
    let repeat = |(repeat, slow): (u32, f64)| {
        let arms = Arm::ALL.into_iter().zip([20.0, 30.0, 21.0]);
        arms.map(move |(arm, us)| point(arm, 100, repeat, Some(us * slow)))
    };
    let points = (0..).zip([1.0, 3.0, 2.0]).flat_map(repeat);
    let found = of_64b(&points.collect::<Vec<_>>());
    assert!((found.worst_vs_best_arm.unwrap() - 1.05).abs() < 1e-9);
}

#[test]
fn fewer_than_fifteen_pairs_decide_nothing() {
    let found = |repeats| {
        let mut points = Vec::new();
        for (arm, us) in Arm::ALL.into_iter().zip([20.0, 30.0, 21.5]) {
            points.extend((0..repeats).map(|repeat| point(arm, 100, repeat, Some(us))));
        }
        of_64b(&points)
    };
    let few = found(14);
    for verdict in [few.range_verdict, few.latency_verdict, few.worst_verdict] {
        assert_eq!(verdict, Verdict::Undecided);
    }
    assert_eq!(few.range_interval.unwrap().pairs, 14);
    let enough = found(15);
    assert_eq!(enough.range_verdict, Verdict::Met);
    assert_eq!(enough.latency_verdict, Verdict::Missed);
    assert_eq!(enough.worst_verdict, Verdict::Missed);
    assert_eq!(enough.vs_best_arm_verdict, Verdict::Missed);
    let summary = Summary::of(&[point(Arm::Nodelay, 100, 0, None)]);
    assert!(figures::overview(&summary).markdown().contains("undecided"));
}

#[test]
fn without_the_tuned_arm_there_is_nothing_to_compare() {
    let found = three_arms(&[]);
    assert_eq!((found.range_ratio, found.worst_vs_best_arm), (None, None));
    assert_eq!(found.highest_under_slo_rps[&Arm::Nodelay], 200_000);
}

#[test]
fn the_plot_has_all_arms_the_slo_and_collapses() {
    let points = [
        point(Arm::Nodelay, 100, 0, Some(20.0)),
        point(Arm::Nodelay, 200, 0, None),
        point(Arm::Nagle, 100, 0, Some(25.0)),
        point(Arm::Batchwise, 100, 0, Some(21.0)),
    ];
    let summary = Summary::of(&points);
    let figure = figures::latency_plot(&WORKLOADS[0], &summary.per_workload["64B"].steps);
    let svg = draw::svg(&figure).unwrap();
    for part in ["TCP_NODELAY", "Nagle", "batchwise", "SLO, 500 µs"] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(!svg.contains("inf"));
    let decisions = [decision(0.1, "probe", "on")];
    let svg = draw::svg(&figures::decision_plot(&WORKLOADS[0], &points, &decisions)).unwrap();
    assert!(svg.contains("probe") && svg.contains("100k"));
    assert!(figures::overview(&summary).markdown().contains("2.80"));
}
