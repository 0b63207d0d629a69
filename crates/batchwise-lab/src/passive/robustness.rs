//! Experiment `passive-robustness`: loss and reordering between client and vantage, and loads up to
//! saturation (the paper's Figures 6 and 7).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::triangle::{Triangle, TriangleSpec};
use batchwise_testbed::wire::WireSpec;
use maud::html;
use plotters::style::BLACK;
use serde::Serialize;

use super::figures::{
    OURS, TRIGGERED, error_table, estimates, latencies, point_table, relative_errors, truths,
};
use super::trial::{Baseline, Outcome, Point, Trial};
use super::workload::{Server, Service, Workload};
use crate::frame::{Frame, Measured, NoMore};
use crate::output::Progress;
use crate::plot::{self, BATCHWISE, Curve};
use crate::report::figure;
use crate::truth::{Errors, by_connection};
use crate::{Context, Experiment};

/// Requests a second of the arms with loss and reordering.
const RATE: u64 = 2000;
/// Connections.
const CONNECTIONS: u32 = 20;
/// Length of an epoch.
const EPOCH: Duration = Duration::from_secs(1);
/// Loads, as shares of what the server can do.
const LOADS: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0];
const QUICK_LOADS: [f64; 3] = [0.25, 0.7, 1.0];

/// Loss, reordering, load.
pub struct PassiveRobustness;

#[derive(Default)]
struct Runs {
    impaired: Vec<Outcome>,
    loaded: Vec<Outcome>,
    saturation_rps: Option<f64>,
}

/// The experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Summary {
    /// Median of `(truth - estimate) / truth` with 1 % loss.
    loss_1_percent: Option<f64>,
    /// The same with 25 % of the packets reordered.
    reorder_25_percent: Option<f64>,
    /// The same with neither.
    clean: Option<f64>,
    /// Median over connections of the error of a connection's mean, absolute: the worst load.
    worst_connection_median: Option<f64>,
    /// Requests a second at which the server is saturated.
    saturation_rps: Option<f64>,
    /// Errors by arm.
    per_arm: BTreeMap<String, Errors>,
    /// Errors of connections' means by load.
    per_load: BTreeMap<String, Errors>,
}

impl Summary {
    fn of(runs: &Runs) -> Self {
        let by_arm = |outcomes: &[Outcome], errors: fn(&Point) -> Errors| -> BTreeMap<_, _> {
            let entry = |o: &Outcome| (o.point.arm.clone(), errors(&o.point));
            outcomes.iter().map(entry).collect()
        };
        let per_arm = by_arm(&runs.impaired, |point| point.errors);
        let per_load = by_arm(&runs.loaded, |point| point.by_connection);
        let median = |arm: &str| per_arm.get(arm).and_then(|errors| errors.median_rel_error);
        let worst = per_load
            .values()
            .filter_map(|errors| errors.median_abs_rel_error);
        Self {
            loss_1_percent: median("loss-1%"),
            reorder_25_percent: median("reorder-25%"),
            clean: median("clean"),
            worst_connection_median: worst.max_by(f64::total_cmp),
            saturation_rps: runs.saturation_rps,
            per_arm,
            per_load,
        }
    }
}

impl Experiment for PassiveRobustness {
    fn name(&self) -> &'static str {
        "passive-robustness"
    }

    fn about(&self) -> &'static str {
        "latency from one direction under loss, reordering, and loads up to saturation"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let spec = TriangleSpec {
            access: Some(WireSpec::default()),
            back: None,
        };
        Frame::run_on_triangle(self.name(), context, &spec, measure)
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.impaired.is_empty() && self.loaded.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let points: Vec<_> = self
            .impaired
            .iter()
            .chain(&self.loaded)
            .map(|o| &o.point)
            .collect();
        let summary = Summary::of(self);
        frame.write_result(complete, &points, &NoMore {}, &summary)?;
        report(frame, complete, self, &summary)
    }
}

fn measure(frame: &Frame<'_>, triangle: &mut Triangle, measured: &mut Runs) -> Result<()> {
    let context = frame.context;
    let mut arms = vec![
        ("clean", WireSpec::default()),
        ("loss-1%", WireSpec::losing(0.01)),
        ("reorder-25%", WireSpec::reordering(0.25)),
    ];
    if !context.quick {
        arms.push(("loss-0.5%", WireSpec::losing(0.005)));
        arms.push(("loss-2%", WireSpec::losing(0.02)));
        arms.push(("reorder-5%", WireSpec::reordering(0.05)));
    }
    let loads = if context.quick {
        &QUICK_LOADS[..]
    } else {
        &LOADS[..]
    };
    let seconds = |quick, full| Duration::from_secs(if context.quick { quick } else { full });
    let mut progress = Progress::new((arms.len() + loads.len() + 1) as u32);
    let trial = |workload| Trial {
        workload,
        epoch: EPOCH,
        share: None,
        baselines: false,
        captures: Vec::new(),
    };

    let web = Workload::web(seconds(7, 60), CONNECTIONS, RATE, 4);
    let mut server = Server::start(Service::Web, &context.command, triangle, &context.stop)?;
    for (arm, spec) in arms {
        triangle
            .access
            .as_ref()
            .context("the triangle has no wire")?
            .set(&spec);
        let outcome = trial(web.clone()).run(arm, context, triangle, &mut server)?;
        progress.step(&outcome.point.in_words());
        measured.impaired.push(outcome);
        measured.write(frame, false)?;
    }
    drop(server);

    // Without a wire, whose work would be part of the load.
    let mut triangle = Triangle::build("passive-load", &TriangleSpec::default())?;
    triangle.receive_on_own_cpus()?;
    let mut server = Server::start(Service::Web, &context.command, &triangle, &context.stop)?;
    let most = Workload {
        rate: None,
        options: ["--in-flight", "1", "--think", "none"]
            .map(str::to_owned)
            .to_vec(),
        ..Workload::web(seconds(4, 15), CONNECTIONS, RATE, 1)
    };
    let load = most.start(&context.command, &triangle)?;
    let (report, _) = load.finish(&context.stop)?;
    let saturation = report["achieved_rps"].as_f64();
    let saturation = saturation.context("the load does not say how much it achieved")?;
    measured.saturation_rps = Some(saturation);
    progress.step(&format!("the server can do {saturation:.0} requests/s"));
    for share in loads {
        let rate = (saturation * share).round() as u64;
        let workload = Workload::web(seconds(5, 30), CONNECTIONS, rate, 1);
        let arm = format!("{:.0}%", share * 100.0);
        let outcome = trial(workload).run(&arm, context, &mut triangle, &mut server)?;
        progress.step(&outcome.point.in_words());
        measured.loaded.push(outcome);
        measured.write(frame, false)?;
    }
    Ok(())
}

fn report(frame: &Frame<'_>, complete: bool, runs: &Runs, summary: &Summary) -> Result<()> {
    let output = &frame.context.output;
    let mut arms = Vec::new();
    for outcome in &runs.impaired {
        let arm = &outcome.point.arm;
        let mut curves = truths(outcome).to_vec();
        curves.push(estimates(OURS, BATCHWISE, false, &outcome.paired));
        let svg = latencies(&format!("Latencies, {arm}"), &curves)?;
        output.write(&format!("latencies-{}.svg", arm.replace('%', "")), &svg)?;
        arms.push((outcome, svg));
    }
    let mut load_figures = Vec::new();
    if !runs.loaded.is_empty() {
        let curve = |label: &str, color, estimated, value: fn(&Errors) -> Option<f64>| Curve {
            label: label.into(),
            color,
            estimated,
            points: runs
                .loaded
                .iter()
                .filter_map(|o| Some((o.point.achieved_rps, value(&o.point.errors)?)))
                .collect(),
        };
        let curves = [
            curve("req-to-res", BLACK, false, |errors| errors.truth_ns),
            curve(OURS, BATCHWISE, true, |errors| errors.estimate_ns),
        ];
        let svg = plot::latency_over_load("Average latency of all connections", &curves, &[])?;
        output.write("latency-over-load.svg", &svg)?;
        load_figures.push(svg);
    }
    if let Some(last) = runs.loaded.last() {
        let ours = by_connection(&last.paired);
        let client = last.baselines.get(&Baseline::ReqToReq);
        let client = client
            .map(|epochs| by_connection(epochs))
            .unwrap_or_default();
        let ways = [
            (Baseline::ReqToReq.label(), TRIGGERED, client.as_slice()),
            (OURS, BATCHWISE, ours.as_slice()),
        ];
        let title = "Errors of connections' means, at the highest load";
        let svg = relative_errors(title, "share of responses", &ways)?;
        output.write("errors-at-load.svg", &svg)?;
        load_figures.push(svg);
    }
    let body = html! {
        h2 { "Figure 6: loss and reordering between client and vantage" }
        (error_table(summary.per_arm.iter().map(|(arm, errors)| (arm.as_str(), errors))))
        @for (outcome, svg) in &arms {
            h3 { (outcome.point.arm) }
            (figure(svg))
            (point_table(&outcome.point))
            @if let Some(wire) = &outcome.point.wire {
                p { "Of " (wire.arrived) " packets of the client, " (wire.lost) " were lost and "
                    (wire.reordered) " overtaken on purpose; " (wire.overflowed)
                    " were lost because the wire could not keep up." }
            }
        }
        h2 { "Figure 7: load" }
        p { "One request in flight on each connection; errors of connections' means." }
        (error_table(runs.loaded.iter().map(|o| (o.point.arm.as_str(), &o.point.by_connection))))
        @for svg in &load_figures { (figure(svg)) }
    };
    frame.write_report(
        complete,
        "Passive robustness: loss, reordering, load",
        "A web client's requests pass a wire that loses and reorders them, then the vantage; \
         responses take another way.",
        &body,
    )
}
