//! Tests of the summary, with made-up points.

use super::plan::WORKLOADS;
use super::summary::*;
use super::{Point, figures, undisturbed};
use crate::arm::Arm;
use crate::engine::stalls::Gap;
use crate::engine::{Verdict, draw};
use batchwise_testbed::load::LoadInterval;
use batchwise_testbed::load::samples::window;

/// At so many thousand requests a second; a mean of `None` is a collapse. Learning made it a tenth worse.
fn point(arm: Arm, step_k: u64, repeat: u32, mean_us: Option<f64>) -> Point {
    let step_rps = step_k * 1000;
    let window = window(step_rps as f64, mean_us.unwrap_or(50_000.0));
    let learning = if arm == Arm::Batchwise { 1.1 } else { 1.0 };
    Point {
        workload: "64B".into(),
        arm,
        step_rps,
        repeat,
        attempt: u32::from(mean_us.is_none()),
        saturated: mean_us.is_none(),
        mean_ns: window.latency_ns.mean,
        whole_ns: learning * window.latency_ns.mean,
        cut: 0.0,
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

/// Fifteen repeats on a machine that is now faster and now slower; µs with TCP_NODELAY, Nagle, batchwise.
fn repeated(repeats: u32, means: [Option<f64>; 3]) -> WorkloadSummary {
    let mut points = Vec::new();
    for repeat in 0..repeats {
        let slow = f64::from(repeat % 3 + 1);
        for (arm, us) in Arm::ALL.into_iter().zip(means) {
            points.push(point(arm, 100, repeat, us.map(|us| us * slow)));
        }
    }
    of_64b(&points)
}

#[test]
fn ratios_are_within_repeats_so_that_drift_cancels() {
    let found = repeated(15, [Some(20.0), Some(30.0), Some(20.8)]);
    assert!((found.worst_vs_best_arm.unwrap() - 1.04).abs() < 1e-9);
    let counts = [
        found.points_met,
        found.points_missed,
        found.points_undecided,
    ];
    assert_eq!(counts, [1, 0, 0]);
}

#[test]
fn what_learning_costs_counts_against_the_own_setting() {
    let found = repeated(15, [Some(20.0), Some(30.0), Some(20.0)]);
    assert!((found.worst_vs_own.unwrap() - 1.1).abs() < 1e-9);
    assert_eq!([found.own_met, found.own_missed], [0, 1]);
    let found = repeated(15, [Some(40.0), Some(30.0), Some(31.0)]);
    assert_eq!([found.own_met, found.own_missed], [1, 0]);
}

#[test]
fn a_collapse_of_the_tuned_arm_where_another_carries_the_load_is_a_miss() {
    let found = repeated(15, [Some(20.0), None, None]);
    assert_eq!((found.points_missed, found.own_missed), (1, 1));
    // what no setting carries is no point
    let found = repeated(15, [None, None, None]);
    let counts = [
        found.points_met,
        found.points_missed,
        found.points_undecided,
    ];
    assert_eq!(counts, [0, 0, 0]);
}

#[test]
fn fewer_than_fifteen_pairs_decide_nothing() {
    let means = [20.0, 30.0, 21.5].map(Some);
    let few = repeated(14, means);
    assert_eq!(
        (few.range_verdict, few.latency_verdict),
        (Verdict::Undecided, Verdict::Undecided)
    );
    assert_eq!((few.points_undecided, few.own_undecided), (1, 1));
    assert_eq!(few.range_interval.unwrap().pairs, 14);
    let enough = repeated(15, means);
    assert_eq!(
        (enough.range_verdict, enough.latency_verdict),
        (Verdict::Met, Verdict::Missed)
    );
    assert_eq!((enough.points_missed, enough.own_missed), (1, 1));
    let summary = Summary::of(&[point(Arm::Nodelay, 100, 0, None)]);
    assert!(figures::overview(&summary).markdown().contains("undecided"));
}

#[test]
fn intervals_with_a_stall_and_what_is_served_after_it_are_left_out() {
    let ms = 1_000_000;
    let interval = |n: u64, mean: f64| LoadInterval {
        ts_ns: (n + 1) * 20 * ms,
        interval_ns: 20 * ms,
        phase: 0,
        offered_rps: 1e5,
        achieved_rps: 1e5,
        mean_from_intended_ns: Some(mean),
        mean_from_send_ns: None,
        p50_ns: None,
        p99_ns: None,
        p99_from_send_ns: None,
    };
    let means = [3e4, 1e4, 5e6, 4e6, 2e4];
    let all: Vec<_> = (0..)
        .zip(means)
        .map(|(n, mean)| interval(n, mean))
        .collect();
    let gaps = [Gap {
        from: 45 * ms,
        to: 58 * ms,
    }];
    assert_eq!(undisturbed(&all, &gaps, 0), (2e4, 1.0 - 3.0 / 5.0));
    assert_eq!(undisturbed(&all, &gaps, 20 * ms).0, 1.5e4);
    assert_eq!(undisturbed(&[], &gaps, 0).0, f64::INFINITY);
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
    assert!(figures::overview(&summary).markdown().contains("2.80"));
}
