//! What the points say: each way to write against KIST and the default, in the same round.

use serde::Serialize;

use super::{Arm, MANY, Point, Way};
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::{MedianInterval, median};

/// System calls must be so many times fewer than KIST's, …
const CALLS: f64 = 1.0 / 50.0;
/// … events no later, ns, …
const LAG: f64 = 100_000.0;
/// … and a segment must cost no more, ns.
const SEGMENT: f64 = 100.0;
/// The number of connections that the bars are about.
const JUDGED: u32 = 100;

/// A way to write with so many connections. Medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    #[serde(flatten)]
    pub arm: Arm,
    pub bytes_per_s: f64,
    pub calls_per_s: f64,
    /// Over those of KIST every 2 ms, with its 95 % interval.
    pub calls_vs_kist: Option<Ratio>,
    pub asked_per_s: f64,
    /// Share of a CPU.
    pub cpu: f64,
    /// Over the default's, with its 95 % interval.
    pub cpu_vs_default: Option<Ratio>,
    pub agent_cpu: Option<f64>,
    pub lag_p99_ns: Option<f64>,
    pub ns_per_segment: Option<f64>,
    pub runs_per_segment: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// System calls with `batchwise window` over those of KIST every 2 ms, 100 connections, …
    pub syscalls_vs_kist: Option<f64>,
    pub syscalls_vs_kist_interval: Option<Ratio>,
    /// … and whether that is at most 1/50.
    pub syscalls_verdict: Verdict,
    /// 99 of 100 events are heard in so many ns; with its interval.
    pub lag_p99_ns: Option<f64>,
    pub lag_p99_interval_ns: Option<[f64; 2]>,
    /// Whether that is at most 100 µs.
    pub lag_verdict: Verdict,
    /// Time of the programs for a segment that arrives at a registered connection; with its interval.
    pub ns_per_ack: Option<f64>,
    pub ns_per_ack_interval: Option<[f64; 2]>,
    /// Whether that is at most 100 ns.
    pub ack_verdict: Verdict,
    /// Runs of the programs for a segment of a connection that is not registered.
    pub runs_per_ack_of_others: Option<f64>,
    pub arms: Vec<Compared>,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let arms = MANY.iter().flat_map(|many| {
            Way::ALL.map(|way| Arm {
                connections: many.connections,
                way,
            })
        });
        let there = |arm: &Arm| points.iter().any(|p| p.arm == *arm);
        let arms: Vec<_> = arms
            .filter(there)
            .map(|arm| Compared::of(points, arm))
            .collect();
        let judged = |way| Arm {
            connections: JUDGED,
            way,
        };
        let window = judged(Way::Window);
        let calls = Ratio::of(&compare(points, window, judged(Way::Kist2), |p| {
            p.calls_per_s
        }));
        let interval = |of: fn(&Point) -> Option<f64>| {
            let points = points.iter().filter(|p| p.arm == window);
            MedianInterval::of(&points.filter_map(of).collect::<Vec<_>>())
        };
        let judged_points = points.iter().filter(|p| p.arm == window).count();
        let (lag, segment) = (interval(|p| p.lag_p99_ns), interval(|p| p.ns_per_segment));
        let beside = arms.iter().find(|c| c.arm == judged(Way::Beside));
        Self {
            syscalls_vs_kist: calls.map(|r| r.median),
            syscalls_verdict: Verdict::at_most(calls.as_ref(), CALLS),
            syscalls_vs_kist_interval: calls,
            lag_p99_ns: lag.map(|i| i.median),
            lag_p99_interval_ns: lag.map(|i| [i.low, i.high]),
            lag_verdict: at_most(judged_points, lag, LAG),
            ns_per_ack: segment.map(|i| i.median),
            ns_per_ack_interval: segment.map(|i| [i.low, i.high]),
            ack_verdict: at_most(judged_points, segment, SEGMENT),
            runs_per_ack_of_others: beside.and_then(|c| c.runs_per_segment),
            arms,
        }
    }
}

/// As [`Verdict::at_most`], of a value that was measured so often.
fn at_most(pairs: usize, interval: Option<MedianInterval>, bar: f64) -> Verdict {
    let ratio = interval.map(|i| Ratio {
        median: i.median,
        low: i.low,
        high: i.high,
        pairs,
    });
    Verdict::at_most(ratio.as_ref(), bar)
}

impl Compared {
    fn of(points: &[Point], arm: Arm) -> Self {
        let of_arm = || points.iter().filter(|p| p.arm == arm);
        let middle = |of: fn(&Point) -> f64| {
            median(&of_arm().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let some =
            |of: fn(&Point) -> Option<f64>| median(&of_arm().filter_map(of).collect::<Vec<_>>());
        let with = |way| Arm { way, ..arm };
        Self {
            arm,
            bytes_per_s: middle(|p| p.bytes_per_s),
            calls_per_s: middle(|p| p.calls_per_s),
            calls_vs_kist: Ratio::of(&compare(points, arm, with(Way::Kist2), |p| p.calls_per_s)),
            asked_per_s: middle(|p| p.asked_per_s),
            cpu: middle(|p| p.cpu),
            cpu_vs_default: Ratio::of(&compare(points, arm, with(Way::Default), |p| p.cpu)),
            agent_cpu: some(|p| p.agent_cpu),
            lag_p99_ns: some(|p| p.lag_p99_ns),
            ns_per_segment: some(|p| p.ns_per_segment),
            runs_per_segment: some(|p| p.runs_per_segment),
        }
    }
}

fn compare(points: &[Point], arm: Arm, base: Arm, of: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    pairs(points, |p| (p.round, p.arm), arm, base, of)
}
