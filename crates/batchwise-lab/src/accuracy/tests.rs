//! Behaviour of the accuracy summary on made-up points.

use std::collections::BTreeMap;

use batchwise_core::sense::report::{Estimator, Nagle, Side, Unit};

use super::plan::{Cost, NagleAt};
use super::summary::{Arms, Errors, Summary, arms, cutoff};
use super::{Ends, Point, Truth};
use batchwise_testbed::load::samples::latency;
use batchwise_testbed::window::{EndEstimate, StageMeans};

const INF: f64 = f64::INFINITY;
const UNKNOWN: f64 = -1.0;

fn estimated(total: f64, estimator: Estimator) -> BTreeMap<Unit, EndEstimate> {
    let estimate = EndEstimate {
        estimator,
        view: None,
        lines: 3,
        confidence: 1.0,
        throughput_per_s: 1.0,
        total_ns: Some(total),
        total_stderr_ns: Some(total / 20.0),
        network_ns: None,
        turnaround_ns: None,
        stages_ns: StageMeans::default(),
        nagle: Nagle::On,
        lost_events: 0,
    };
    BTreeMap::from([(Unit::Sends, estimate)])
}

fn point(nodelay: bool, step_rps: u64, truth: f64, estimate: Option<f64>) -> Point {
    let estimate = estimate.map(|e| estimated(e, Estimator::TwoSided));
    let rps = step_rps as f64;
    Point {
        workload: "64B".into(),
        cost: Cost::Off,
        nagle_at: NagleAt::Client,
        nodelay,
        step_rps,
        repeat: 0,
        attempt: 0,
        truth: Truth {
            offered_rps: rps,
            achieved_rps: rps,
            requests: 1000,
            errors: 0,
            from_send_ns: latency(truth),
            from_intended_ns: latency(truth),
            valid: true,
            why_invalid: Vec::new(),
            measured_from_ts_ns: 0,
            measured_to_ts_ns: 1,
        },
        saturated: truth > 5e6,
        ends: estimate.map(|e| (Side::Client, e)).into_iter().collect(),
        undisturbed: BTreeMap::new(),
    }
}

/// The verdict on the workload that these points are of.
fn headline(points: &[Point]) -> Errors {
    Summary::of(points, &[]).per_workload["64B"]
        .headline
        .clone()
}

fn collapsed(nodelay: bool, step_rps: u64, estimate: Option<f64>) -> [Point; 2] {
    let first = point(nodelay, step_rps, 6e6, estimate);
    let second = Point {
        attempt: 1,
        ..first.clone()
    };
    [first, second]
}

#[test]
fn the_cutoff_is_the_lowest_step_from_which_nagle_wins_for_good() {
    // with Nagle and with TCP_NODELAY
    for (arms, expected) in [
        (
            &[(9.0, 5.0), (4.0, 5.0), (7.0, 6.0), (7.0, 9.0), (8.0, INF)][..],
            Some(4),
        ),
        (&[(4.0, 5.0), (INF, 9.0)], None),
        (&[], None),
        // both collapsed: says nothing
        (&[(4.0, 5.0), (6.0, INF), (INF, INF)], Some(1)),
        // what is not known is not better
        (&[(4.0, 5.0), (UNKNOWN, 1.0), (4.0, 5.0)], Some(3)),
    ] {
        let known = |ns: f64| (ns != UNKNOWN).then_some(ns);
        let at = |(step_rps, &(nagle, nodelay)): (u64, &(f64, f64))| Arms {
            step_rps,
            nagle: known(nagle),
            nodelay: known(nodelay),
        };
        let found = cutoff(&(1..).zip(arms).map(at).collect::<Vec<_>>());
        assert_eq!(found, expected, "{arms:?}");
    }
}

#[test]
fn errors_are_relative_to_the_truth_and_missing_estimates_are_counted() {
    let points = [
        point(true, 1000, 100.0, Some(90.0)),
        point(false, 1000, 200.0, Some(240.0)),
        point(true, 2000, 100.0, None),
    ];
    let headline = headline(&points);
    assert_eq!((headline.points, headline.missing), (3, 1));
    assert!((headline.median_abs_rel_error.unwrap() - 0.15).abs() < 1e-9);
    // two points decide nothing
    assert_eq!(headline.median_abs_rel_error_interval, None);
    assert!((headline.median_signed_rel_error.unwrap() - 0.05).abs() < 1e-9);
}

#[test]
fn a_one_sided_estimate_counts_as_missing() {
    let mut one = point(true, 1000, 100.0, None);
    one.ends = Ends::from([(Side::Client, estimated(100.0, Estimator::Local))]);
    assert_eq!(headline(&[one]).missing, 1);
}

#[test]
fn the_headline_is_from_the_server_when_only_it_has_estimates() {
    let mut one = point(true, 1000, 100.0, Some(110.0));
    let estimate = one.ends.remove(&Side::Client).unwrap();
    one.ends.insert(Side::Server, estimate);
    let workload = &Summary::of(&[one], &[]).per_workload["64B"];
    assert_eq!(workload.end, Side::Server);
    assert_eq!(workload.headline.missing, 0);
    assert_eq!(workload.by_end[&Side::Client].missing, 1);
}

#[test]
fn saturated_points_are_not_judged_but_place_the_cutoff() {
    let mut points = vec![
        point(false, 1000, 200.0, Some(210.0)),
        point(true, 1000, 100.0, Some(110.0)),
        point(false, 2000, 200.0, Some(210.0)),
        point(false, 3000, 200.0, Some(210.0)),
    ];
    points.extend(collapsed(true, 2000, Some(4e6)));
    let headline = headline(&points);
    assert_eq!(headline.points, 4);
    assert_eq!(headline.measured_cutoff_rps, Some(2000));
    assert_eq!(headline.estimated_cutoff_rps, Some(2000));
    assert!(headline.cutoff_matches);
}

#[test]
fn a_second_attempt_that_holds_replaces_the_first() {
    let mut second = point(true, 1000, 100.0, Some(100.0));
    second.attempt = 1;
    let points = [
        point(true, 1000, 6e6, None),
        second,
        point(true, 2000, 120.0, Some(120.0)),
    ];
    let points: Vec<_> = points.iter().collect();
    let collapsed = |p: &Point| p.saturated.then_some(INF);
    let arms = arms(&points, |p| {
        collapsed(p).or(Some(p.truth.from_send_ns.mean))
    });
    let nodelay: Vec<_> = arms.iter().map(|at| at.nodelay).collect();
    assert_eq!(nodelay, [Some(100.0), Some(120.0)]);
}

#[test]
fn without_any_estimate_the_cutoff_does_not_match() {
    let points = [(false, 200.0), (true, 100.0)].map(|(arm, ns)| point(arm, 1000, ns, None));
    assert!(!headline(&points).cutoff_matches);
}
