//! Experiment `passive-robustness`: loss and reordering between client and vantage, and loads up to
//! saturation (the paper's Figures 6 and 7).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::wire::WireSpec;
use serde::Serialize;

use super::curves::{Shown, Way};
use super::trial::{Point, Trial};
use super::trials::{More, Trials, by_arm, section, table};
use super::workload::Workload;
use crate::engine::color::{BATCHWISE, BLACK};
use crate::engine::{Figure, Report};
use crate::truth::Errors;

/// Loads, as shares of what the server can do.
const LOADS: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0];
const QUICK_LOADS: [f64; 3] = [0.25, 0.7, 1.0];

pub const ROBUSTNESS: Trials<Summary> = Trials {
    name: "passive-robustness",
    about: "latency from one direction under loss, reordering, and loads up to saturation",
    trials,
    summary: Summary::of,
    report,
};

#[allow(clippy::unnecessary_wraps)] // what `Trials::trials` gives
fn trials(quick: bool) -> Result<Vec<Trial>> {
    let web = |quick_s, full_s, in_flight| {
        let duration = Duration::from_secs(if quick { quick_s } else { full_s });
        Workload::web(duration, in_flight)
    };
    let impaired = |(arm, wire): (&str, WireSpec)| Trial {
        wire: Some(wire),
        ..Trial::new(arm, web(7, 60, 4), &[Shown::Latencies])
    };
    let arms = [
        ("clean", WireSpec::default()),
        ("loss-1%", WireSpec::losing(0.01)),
        ("reorder-25%", WireSpec::reordering(0.25)),
        ("loss-0.5%", WireSpec::losing(0.005)),
        ("loss-2%", WireSpec::losing(0.02)),
        ("reorder-5%", WireSpec::reordering(0.05)),
    ];
    let arms = arms.into_iter().take(if quick { 3 } else { 6 });
    let loaded = |share: &f64| {
        let arm = format!("{:.0}%", share * 100.0);
        let shows: &[_] = &[Shown::ConnectionErrors];
        Trial {
            of_saturation: Some(*share),
            ..Trial::new(arm, web(5, 30, 1), shows)
        }
    };
    let loads = if quick { &QUICK_LOADS[..] } else { &LOADS[..] };
    Ok(arms.map(impaired).chain(loads.iter().map(loaded)).collect())
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Median of `(truth - estimate) / truth` with 1 % loss.
    pub loss_1_percent: Option<f64>,
    /// The same with 25 % of the packets reordered.
    pub reorder_25_percent: Option<f64>,
    /// The same with neither.
    pub clean: Option<f64>,
    /// Median over connections of the error of a connection's mean, absolute: the worst load.
    pub worst_connection_median: Option<f64>,
    /// Requests a second at which the server is saturated.
    pub saturation_rps: Option<f64>,
    pub per_arm: BTreeMap<String, Errors>,
    /// Errors of connections' means by load.
    pub per_load: BTreeMap<String, Errors>,
}

/// The points with a wire, and those without: the loads.
fn halves(points: &[Point]) -> (Vec<&Point>, Vec<&Point>) {
    points.iter().partition(|point| point.wire.is_some())
}

impl Summary {
    fn of(points: &[Point], more: &More) -> Self {
        let (impaired, loaded) = halves(points);
        let per_arm = by_arm(impaired, |point| point.errors);
        let per_load = by_arm(loaded, |point| point.by_connection);
        let median = |arm: &str| per_arm.get(arm)?.median_rel_error;
        let each = per_load.values().filter_map(|e| e.median_abs_rel_error);
        Self {
            loss_1_percent: median("loss-1%"),
            reorder_25_percent: median("reorder-25%"),
            clean: median("clean"),
            worst_connection_median: each.max_by(f64::total_cmp),
            saturation_rps: more.saturation_rps,
            per_arm,
            per_load,
        }
    }
}

fn report(points: &[Point], summary: &Summary) -> Report {
    let (impaired, loaded) = halves(points);
    let over_load = |value: fn(&Errors) -> Option<f64>| -> Vec<(f64, f64)> {
        let point = |p: &&Point| Some((p.achieved_rps, value(&p.errors)?));
        loaded.iter().filter_map(point).collect()
    };
    let latency = "Average latency of all connections";
    let latency = Figure::latency_over_load("latency-over-load.svg", latency)
        .measured("req-to-res", BLACK, over_load(|e| e.truth_ns))
        .estimated(
            Way::Passive.label(),
            BATCHWISE,
            over_load(|e| e.estimate_ns),
        );
    let means = loaded.iter().map(|p| (p.arm.as_str(), &p.by_connection));
    Report::new(
        "Passive robustness: loss, reordering, load",
        "A web client's requests pass a wire that loses and reorders them, then the vantage; \
         responses take another way.",
    )
    .heading("Figure 6: loss and reordering between client and vantage")
    .table(table(summary.per_arm.iter().map(|(a, e)| (a.as_str(), e))))
    .parts(impaired.into_iter().flat_map(section))
    .heading("Figure 7: load")
    .text("One request in flight on each connection; errors of connections' means.")
    .table(table(means))
    .figure(latency)
    .parts(loaded.into_iter().flat_map(section))
}
