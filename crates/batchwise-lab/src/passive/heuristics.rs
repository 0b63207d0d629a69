//! Experiment `passive-heuristics`: several estimators over one capture of the web workload (the
//! paper's Figure 11).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::cpu_share::trace::Trace;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::curves::{Curve, Shown, Way};
use super::trial::{Stage, Trial, why_invalid};
use super::trials::table;
use super::workload::{Service, Workload};
use crate::Context;
use crate::engine::{Experiment, Judgement, NoMore, Report, Results, Round, Run, Turn};
use crate::truth::Errors;

/// The estimators; the first is the default one.
const ESTIMATORS: [Way; 5] = [
    Way::Auto,
    Way::Modes,
    Way::Paper,
    Way::Paper100us,
    Way::Fixed1ms,
];

pub struct PassiveHeuristics;

#[derive(Serialize, Deserialize)]
pub struct Point {
    estimator: Way,
    errors: Errors,
    #[serde(default)]
    why_invalid: Vec<String>,
    /// With the first, of all.
    #[serde(default)]
    curves: BTreeMap<Shown, Vec<Curve>>,
}

#[derive(Serialize)]
pub struct Summary {
    median_rel_error: BTreeMap<Way, Option<f64>>,
    median_abs_rel_error: BTreeMap<Way, Option<f64>>,
    within_15_percent: BTreeMap<Way, Option<f64>>,
}

impl Experiment for PassiveHeuristics {
    type Stage = Stage;
    type Arm = Trial;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "passive-heuristics"
    }

    fn about(&self) -> &'static str {
        "several estimators of latency over one capture of one direction"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Trial>>> {
        let duration = Duration::from_secs(if quick { 15 } else { 60 });
        let workload = Workload::web(duration, 4);
        let capture = format!("tcp port {}", Service::Web.port());
        let trial = Trial {
            share: Some(Trace::committed()?),
            capture: Some((capture, &ESTIMATORS)),
            ..Trial::new("web", workload, &[Shown::Latencies, Shown::RelativeErrors])
        };
        Ok(vec![Round::in_order([trial])])
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let rounds = self.rounds(context.quick)?;
        Stage::build(Experiment::name(self), &rounds[0].arms[0])
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Trial>,
    ) -> Result<Vec<Point>> {
        let mut trial = turn.arm.run(run.context, stage)?;
        for curves in trial.curves.values_mut() {
            curves.retain(|curve| curve.way != Way::Passive);
        }
        let mut curves = Some(trial.curves);
        let point = |estimator: &Way| Point {
            estimator: *estimator,
            errors: trial.baselines.get(estimator).copied().unwrap_or_default(),
            why_invalid: why_invalid(&trial.load),
            curves: curves.take().unwrap_or_default(),
        };
        Ok(ESTIMATORS.iter().map(point).collect())
    }

    fn judge(&self, point: &Point) -> Judgement {
        Judgement::valid_if(point.why_invalid.is_empty(), point.why_invalid.join("; "))
    }

    fn describe(&self, _point: &Point) -> String {
        format!("{} estimators over one capture", ESTIMATORS.len())
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        let each = |value: fn(&Errors) -> Option<f64>| {
            let entry = |point: &Point| (point.estimator, value(&point.errors));
            results.points.iter().map(entry).collect()
        };
        Summary {
            median_rel_error: each(|errors| errors.median_rel_error),
            median_abs_rel_error: each(|errors| errors.median_abs_rel_error),
            within_15_percent: each(|errors| errors.within_15_percent),
        }
    }

    fn report(&self, results: &Results<Point, NoMore>, _summary: &Summary) -> Report {
        let points = || results.points.iter();
        let figure = |shown: Shown| {
            let curves = points().filter_map(|p| p.curves.get(&shown)).flatten();
            shown.figure("web", curves)
        };
        Report::new(
            "Passive heuristics: estimators over one capture",
            "A web client's requests, captured at the vantage while the server's CPU share changes \
             (Figure 11).",
        )
        .table(table(points().map(|p| (p.estimator.label(), &p.errors))))
        .figure(figure(Shown::Latencies))
        .figure(figure(Shown::RelativeErrors))
        .text(
            "All see the same capture at the vantage. `fixed` is the paper's Algorithm 1 with that \
             threshold, `paper` its Algorithm 2 as written, with that width of a mode, `modes` gaps \
             with both of the paper's heuristics, as batchwise does where it sees no acknowledgments, \
             `auto` requests in flight by TCP's acknowledgments, its default.",
        )
    }
}
