//! Experiment `passive-heuristics`: several estimators over one capture of the web workload (the
//! paper's Figure 11).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::triangle::{Triangle, TriangleSpec};
use maud::html;
use plotters::style::RGBColor;
use serde::Serialize;

use super::figures::{error_table, estimates, latencies, relative_errors, truths};
use super::observer::PassiveSpec;
use super::trial::{Outcome, Trial};
use super::workload::{Server, Service, Workload};
use crate::frame::{Frame, Measured, NoMore};
use crate::plot::BATCHWISE;
use crate::report::figure;
use crate::truth::{Errors, Paired};
use crate::{Context, Experiment};

/// Length of an epoch.
const EPOCH: Duration = Duration::from_secs(1);
/// The estimators and the colours of their curves; the first is the default one.
const ESTIMATORS: [(&str, RGBColor); 5] = [
    ("auto", BATCHWISE),
    ("modes", RGBColor(72, 140, 92)),
    ("paper", RGBColor(196, 78, 32)),
    ("paper:100us", RGBColor(226, 168, 76)),
    ("fixed:1ms", RGBColor(164, 118, 168)),
];

/// Estimators beside each other.
pub struct PassiveHeuristics;

#[derive(Default)]
struct Runs {
    outcome: Option<Outcome>,
    estimators: Vec<(&'static str, RGBColor, Vec<Paired>)>,
}

/// An estimator in `result.json`.
#[derive(Serialize)]
struct Point {
    estimator: &'static str,
    errors: Errors,
}

/// The experiment.
#[derive(Serialize)]
struct Summary {
    median_rel_error: BTreeMap<&'static str, Option<f64>>,
    median_abs_rel_error: BTreeMap<&'static str, Option<f64>>,
    within_15_percent: BTreeMap<&'static str, Option<f64>>,
}

impl Experiment for PassiveHeuristics {
    fn name(&self) -> &'static str {
        "passive-heuristics"
    }

    fn about(&self) -> &'static str {
        "several estimators of latency over one capture of one direction"
    }

    fn run(&self, context: &Context) -> Result<()> {
        Frame::run_on_triangle(self.name(), context, &TriangleSpec::default(), measure)
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.estimators.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let points: Vec<_> = self
            .estimators
            .iter()
            .map(|(estimator, _, paired)| Point {
                estimator,
                errors: Errors::of(paired),
            })
            .collect();
        let each = |value: fn(&Errors) -> Option<f64>| {
            points
                .iter()
                .map(|point| (point.estimator, value(&point.errors)))
                .collect()
        };
        let summary = Summary {
            median_rel_error: each(|errors| errors.median_rel_error),
            median_abs_rel_error: each(|errors| errors.median_abs_rel_error),
            within_15_percent: each(|errors| errors.within_15_percent),
        };
        frame.write_result(complete, &points, &NoMore {}, &summary)?;
        report(frame, complete, self, &points)
    }
}

fn measure(frame: &Frame<'_>, triangle: &mut Triangle, measured: &mut Runs) -> Result<()> {
    let context = frame.context;
    let duration = Duration::from_secs(if context.quick { 15 } else { 60 });
    let mut server = Server::start(Service::Web, &context.command, triangle, &context.stop)?;
    let port = Service::Web.port();
    let trial = Trial {
        workload: Workload::web(duration, 20, 2000, 4),
        epoch: EPOCH,
        share: Some(Trace::committed()?),
        baselines: false,
        captures: vec![format!("tcp port {port}")],
    };
    let outcome = trial.run("web", context, triangle, &mut server)?;
    drop(server);
    let capture = outcome.captures.first().context("there is no capture")?;
    for (estimator, color) in ESTIMATORS {
        let spec = PassiveSpec {
            port,
            epoch: EPOCH,
            estimator: Some(estimator),
        };
        let observed = spec.over_capture(&context.command, capture.file())?;
        measured
            .estimators
            .push((estimator, color, outcome.pair(&observed.epochs)));
        context.stop.check()?;
    }
    measured.outcome = Some(outcome);
    Ok(())
}

fn report(frame: &Frame<'_>, complete: bool, runs: &Runs, points: &[Point]) -> Result<()> {
    let mut figures = Vec::new();
    if let Some(outcome) = &runs.outcome {
        let mut curves = truths(outcome).to_vec();
        for (name, color, paired) in &runs.estimators {
            curves.push(estimates(name, *color, false, paired));
        }
        figures.push((
            "latencies.svg",
            latencies("Latencies, by estimator", &curves)?,
        ));
    }
    let ways: Vec<_> = runs
        .estimators
        .iter()
        .map(|(n, c, p)| (*n, *c, p.as_slice()))
        .collect();
    let errors = relative_errors("Relative errors, by estimator", "share of responses", &ways)?;
    figures.push(("relative-errors.svg", errors));
    for (name, svg) in &figures {
        frame.context.output.write(name, svg)?;
    }
    let body = html! {
        (error_table(points.iter().map(|point| (point.estimator, &point.errors))))
        @for (_, svg) in &figures { (figure(svg)) }
        p { "All see the same capture at the vantage. " code { "fixed" } " is the paper's Algorithm \
             1 with that threshold, " code { "paper" } " its Algorithm 2 as written, with that \
             width of a mode, " code { "modes" } " gaps with both of the paper's heuristics, as batchwise \
             does where it sees no acknowledgments, " code { "auto" } " requests in flight by TCP's \
             acknowledgments, its default." }
    };
    frame.write_report(
        complete,
        "Passive heuristics: estimators over one capture",
        "A web client's requests, captured at the vantage while the server's CPU share changes \
         (Figure 11).",
        &body,
    )
}
