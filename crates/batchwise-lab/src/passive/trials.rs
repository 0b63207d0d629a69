//! Experiments that are lists of trials: how they run, and what their reports say alike.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::curves::Way;
use super::trial::{Point, Stage, Trial, why_invalid};
use crate::Context;
use crate::engine::figure::{Layer, Span};
use crate::engine::report::Part;
use crate::engine::text::{maybe_duration, percent};
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Table, Turn};
use crate::truth::Errors;

/// An experiment of trials, one after another.
pub struct Trials<S> {
    pub name: &'static str,
    pub about: &'static str,
    pub trials: fn(bool) -> Result<Vec<Trial>>,
    pub summary: fn(&[Point], &More) -> S,
    pub report: fn(&[Point], &S) -> Report,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// Requests a second that the server carried, where loads are shares of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation_rps: Option<f64>,
}

impl<S: Serialize> Experiment for Trials<S> {
    type Stage = Stage;
    type Arm = Trial;
    type Point = Point;
    type More = More;
    type Summary = S;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    /// A round each: what there is is written after each.
    fn rounds(&self, quick: bool) -> Result<Vec<Round<Trial>>> {
        let trials = (self.trials)(quick)?.into_iter();
        Ok(trials.map(|trial| Round::in_order([trial])).collect())
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let trials = (self.trials)(context.quick)?;
        Stage::build(self.name, trials.first().context("there is no trial")?)
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        turn: Turn<'_, Trial>,
    ) -> Result<Vec<Point>> {
        let mut trial = turn.arm.clone();
        if let Some(share) = trial.of_saturation {
            if run.more.saturation_rps.is_none() {
                let most = stage.saturation(run.context, &trial)?;
                run.note(&format!("the server carries {most:.0} requests/s"));
                run.more.saturation_rps = Some(most);
            }
            let most = run.more.saturation_rps.unwrap_or_default();
            trial.workload.rate = Some((most * share).round() as u64);
        }
        Ok(vec![trial.run(run.context, stage)?])
    }

    fn judge(&self, point: &Point) -> Judgement {
        let why = why_invalid(&point.load);
        Judgement::valid_if(why.is_empty(), why.join("; "))
    }

    fn describe(&self, point: &Point) -> String {
        let errors = &point.errors;
        format!(
            "{}: {:.0} responses/s, median error {}, absolute {}, within 15 %: {}",
            point.arm,
            point.achieved_rps,
            fine_percent(errors.median_rel_error),
            fine_percent(errors.median_abs_rel_error),
            percent(errors.within_15_percent),
        )
    }

    fn summary(&self, results: &Results<Point, More>) -> S {
        (self.summary)(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Point, More>, summary: &S) -> Report {
        (self.report)(&results.points, summary)
    }
}

pub fn of<'a>(points: &'a [Point], arm: &str) -> Option<&'a Point> {
    points.iter().find(|point| point.arm == arm)
}

/// A value of each point by its arm.
pub fn by_arm<'a, T>(
    points: impl IntoIterator<Item = &'a Point>,
    value: impl Fn(&Point) -> T,
) -> BTreeMap<String, T> {
    let entry = |point: &Point| (point.arm.clone(), value(point));
    points.into_iter().map(entry).collect()
}

/// A heading, the figures of a point, ours and all baselines.
pub fn section(point: &Point) -> Vec<Part> {
    let mut parts = vec![Part::Subheading(point.arm.clone())];
    let spans = point.speeds.iter().map(|&(from, to, share)| Span {
        from,
        to,
        name: format!("share {share}"),
    });
    let spans = Layer::Spans(spans.collect());
    for (shown, curves) in &point.curves {
        let figure = shown.figure(&point.arm, curves).layer(spans.clone());
        parts.push(Part::Figure(Box::new(figure)));
    }
    let ours = [
        (Way::Passive.label(), &point.errors),
        ("its means by connection", &point.by_connection),
    ];
    let others = point.baselines.iter();
    let others = others.map(|(way, errors)| (way.label(), errors));
    parts.push(Part::Table(table(ours.into_iter().chain(others))));
    if let Some(wire) = &point.wire {
        parts.push(Part::Text(format!(
            "Of {} packets of the client, {} were lost and {} overtaken on purpose; {} were lost \
             because the wire could not keep up.",
            wire.arrived, wire.lost, wire.reordered, wire.overflowed
        )));
    }
    parts
}

/// A table of errors, a row a way of estimating.
pub fn table<'a>(rows: impl IntoIterator<Item = (&'a str, &'a Errors)>) -> Table {
    Table::of(
        rows,
        &[
            ("against req-to-res", &|(name, _)| (*name).into()),
            ("responses", &|(_, e)| e.responses.to_string()),
            ("with an estimate", &|(_, e)| percent(Some(e.covered))),
            ("truth", &|(_, e)| maybe_duration(e.truth_ns)),
            ("estimate", &|(_, e)| maybe_duration(e.estimate_ns)),
            ("median error", &|(_, e)| fine_percent(e.median_rel_error)),
            ("median |error|", &|(_, e)| {
                fine_percent(e.median_abs_rel_error)
            }),
            ("90th percentile", &|(_, e)| {
                fine_percent(e.p90_abs_rel_error)
            }),
            ("within 15 %", &|(_, e)| percent(e.within_15_percent)),
        ],
    )
}

/// With two decimals: errors are less than a percent.
pub fn fine_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |share| format!("{:.2} %", share * 100.0))
}
