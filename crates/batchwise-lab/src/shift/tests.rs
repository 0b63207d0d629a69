//! Tests of the summary, with made-up runs.

use std::time::Duration;

use super::plan::Extent;
use super::summary::*;
use super::{Point, Steady, figures};
use crate::arm::Arm;
use crate::decisions::samples::decision;
use crate::engine::{Verdict, draw};
use crate::redis::steady;
use batchwise_core::tune::report::{DecisionEvent, InForce};
use batchwise_testbed::load::samples::latency;
use batchwise_testbed::load::{LoadInterval, LoadReport};

/// An interval of 100 ms, which ends at so many tenths of a second.
fn interval(tenths: u64, phase: usize, mean_us: f64) -> LoadInterval {
    LoadInterval {
        ts_ns: tenths * 100_000_000,
        interval_ns: 100_000_000,
        phase,
        offered_rps: 1e5,
        achieved_rps: 1e5,
        mean_from_intended_ns: Some(mean_us * 1e3),
        mean_from_send_ns: Some(mean_us * 1e3),
        p50_ns: None,
        p99_ns: None,
        p99_from_send_ns: None,
    }
}

/// A run of the steps with this mean.
fn run(arm: Arm, round: u32, mean_us: f64, intervals: Vec<LoadInterval>) -> Point {
    Point {
        schedule: "steps".into(),
        arm,
        round,
        report: LoadReport {
            offered_rps: 1e5,
            achieved_rps: 1e5,
            requests: 1000,
            errors: 0,
            latency_ns: latency(mean_us * 1e3),
            latency_from_send_ns: latency(mean_us * 1e3),
            valid: true,
            why_invalid: Vec::new(),
            only_late: false,
            expected_lateness_ns: None,
            cpu_wait_ns: None,
            connections: 1,
            keys: 1,
            closed: false,
            warmup_ns: 0,
            measured_from_ts_ns: 0,
            measured_to_ts_ns: 6_000_000_000,
            phases: Vec::new(),
        },
        intervals,
        decisions: Vec::new(),
    }
}

/// The static arms alone; a mean of `None` is a collapse.
fn alone() -> [Steady; 4] {
    [
        (Arm::Nodelay, 350_000, 64, None),
        (Arm::Nagle, 350_000, 64, Some(25e3)),
        (Arm::Nodelay, 120_000, 4096, Some(40e3)),
        (Arm::Nagle, 120_000, 4096, Some(160e3)),
    ]
    .map(|(arm, rate, value_size, mean_ns)| Steady {
        arm,
        rate,
        value_size,
        round: 0,
        saturated: mean_ns.is_none(),
        mean_ns: mean_ns.unwrap_or(0.0),
    })
}

/// A second of phase 0, then these latencies in phase 1, a tenth of a second each.
fn changing(latencies: &[f64]) -> Vec<LoadInterval> {
    let first = (1..=10).map(|t| interval(t, 0, 25.0));
    let second = (11..).zip(latencies).map(|(t, &us)| interval(t, 1, us));
    first.chain(second).collect()
}

#[test]
fn the_ratio_is_to_the_better_static_arm_of_the_same_round() {
    let points = [
        run(Arm::Nodelay, 0, 900.0, vec![]),
        run(Arm::Nagle, 0, 90.0, vec![]),
        run(Arm::Batchwise, 0, 45.0, vec![]),
        run(Arm::Nodelay, 1, 900.0, vec![]),
        run(Arm::Nagle, 1, 180.0, vec![]),
        run(Arm::Batchwise, 1, 90.0, vec![]),
    ];
    let summary = Summary::of(&points, &[], &Extent::new(true).schedules);
    assert_eq!(summary.vs_best_static, Some(2.0));
    assert_eq!(summary.per_schedule["steps"].better, Some(Arm::Nagle));
    assert_eq!(summary.worst_settle_s, None);
    let interval = summary.interval.unwrap();
    assert_eq!((interval.pairs, summary.verdict), (2, Verdict::Undecided));
}

#[test]
fn what_can_be_reached_is_the_better_arm_alone() {
    let at = |rate, size| reachable(&alone(), &steady(Duration::from_secs(1), rate, size));
    assert_eq!(at(350_000, 64), Some((Arm::Nagle, 25e3)));
    assert_eq!(at(120_000, 4096), Some((Arm::Nodelay, 40e3)));
    assert_eq!(at(1, 1), None);
}

#[test]
fn settled_is_who_stays_below_the_limit_and_one_bad_interval_is_no_relapse() {
    let at = |latencies: &[f64]| settled_after(&changing(latencies), 1, 50e3);
    assert_eq!(at(&[160.0, 160.0, 160.0, 40.0, 40.0, 40.0]), Some(0.4));
    assert_eq!(at(&[40.0, 40.0, 160.0, 40.0, 40.0]), Some(0.0));
    assert_eq!(at(&[40.0, 40.0, 160.0, 160.0, 160.0]), None);
    assert_eq!(at(&[]), None);
}

#[test]
fn a_change_that_was_never_followed_counts_with_the_whole_phase() {
    let points = [run(Arm::Batchwise, 0, 40.0, changing(&[160.0; 30]))];
    let summary = Summary::of(&points, &alone(), &Extent::new(false).schedules);
    let change = summary.per_schedule["steps"].settle[0];
    assert_eq!((change.phase, change.better), (1, Arm::Nodelay));
    assert_eq!((change.settle_s, change.never, change.rounds), (3.0, 1, 1));
    assert_eq!(summary.worst_settle_s, Some(3.0));
}

#[test]
fn the_plot_shows_all_arms_the_phases_and_the_decisions() {
    let intervals = || (1..150).map(|t| interval(t, 0, 30.0)).collect();
    let mut points: Vec<_> = Arm::ALL.map(|arm| run(arm, 0, 30.0, intervals())).into();
    points[2].decisions = vec![
        decision(1.0, DecisionEvent::Probe, InForce::On),
        decision(1.1, DecisionEvent::Adopt, InForce::On),
    ];
    let points: Vec<_> = points.iter().collect();
    let figure = figures::over_time(&Extent::new(true).schedules[0], &points);
    let svg = draw::svg(&figure).unwrap();
    for part in ["TCP_NODELAY", "batchwise: Nagle", "4 KiB", "64 B", "adopt"] {
        assert!(svg.contains(part), "{part}");
    }
}
