//! Experiment `passive-modes`: flows in virtual time, and what each way of turning gaps into latency
//! says about them. Needs no network; its table is the evidence in docs/research/passive.md.

mod estimators;
mod flow;
mod report;
#[cfg(test)]
mod tests;

use std::thread;

use anyhow::{Result, anyhow};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::{Experiment, Report, Results, Round, Run, Turn, no_stage};
use crate::stats::quantile;
use estimators::{KINDS, judge};
use flow::{Path, Scenario, Shape, Spread, Think, simulate};

pub struct PassiveModes;

const MS: f64 = 1e6;
const SPREADS: [Spread; 8] = [
    Spread::Constant,
    Spread::LogNormal(0.3),
    Spread::LogNormal(0.6),
    Spread::LogNormal(1.0),
    Spread::Bimodal,
    Spread::Tail,
    Spread::Drift,
    Spread::Step,
];
const SCALES: [f64; 4] = [0.05 * MS, MS, 20.0 * MS, 100.0 * MS];
const THINKS: [Think; 5] = [
    Think::None,
    Think::Micros,
    Think::Times(10.0),
    Think::Times(100.0),
    Think::Idle,
];
const PATHS: [Path; 3] = [Path::Clean, Path::Loss, Path::Reorder];
const JITTERS: [f64; 3] = [0.0, 0.3, 0.6];
const GAPS: [u32; 3] = [5, 20, 200];

/// An estimator over the epochs of one or more scenarios.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub estimator: String,
    pub epochs: usize,
    /// Of these, with an estimate.
    pub known: f64,
    /// Median of estimate over truth, less one.
    pub bias: Option<f64>,
    /// Median of its absolute value.
    pub error: Option<f64>,
    /// Share of epochs within 15 % of the truth; without an estimate is not within.
    pub within_15_percent: f64,
}

/// A row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub factor: String,
    pub value: String,
    pub scores: Vec<Score>,
}

/// What the rows do not hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    #[serde(default)]
    pub flows: usize,
    /// Scores over all flows. They are the summary, and are read back from there.
    #[serde(rename = "summary", skip_serializing, default)]
    pub all: Vec<Score>,
}

impl Experiment for PassiveModes {
    type Stage = ();
    type Arm = ();
    type Point = Point;
    type More = More;
    type Summary = Vec<Score>;

    fn name(&self) -> &'static str {
        "passive-modes"
    }

    fn about(&self) -> &'static str {
        "gaps to latency in virtual time: each estimator against simulated flows"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<()>>> {
        Ok(vec![Round::in_order([()])])
    }

    fn simulates(&self) -> bool {
        true
    }

    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        no_stage()
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        _stage: &mut (),
        _turn: Turn<'_, ()>,
    ) -> Result<Vec<Point>> {
        let (nth, epochs) = if run.context.quick { (7, 10) } else { (1, 40) };
        let flows = everything(nth, epochs)?;
        run.more.flows = flows.len();
        run.more.all = scores(&flows, |_| true);
        Ok(points(&flows))
    }

    fn describe(&self, point: &Point) -> String {
        let epochs: usize = point.scores.iter().map(|score| score.epochs).sum();
        format!("{} {}: {epochs} epochs", point.factor, point.value)
    }

    fn summary(&self, results: &Results<Point, More>) -> Vec<Score> {
        results.more.all.clone()
    }

    fn report(&self, results: &Results<Point, More>, _summary: &Vec<Score>) -> Report {
        report::of(&results.points, results.more.flows)
    }
}

/// A simulated flow: of each estimator the errors of its epochs, `None` for those without an estimate.
pub struct Simulated {
    scenario: Scenario,
    errors: Vec<Vec<Option<f64>>>,
}

fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut of = |shape, spread, scale, think| {
        for path in PATHS {
            for jitter in JITTERS {
                all.extend(GAPS.map(|gaps| Scenario {
                    shape,
                    spread,
                    scale,
                    think,
                    path,
                    jitter,
                    gaps,
                }));
            }
        }
    };
    for &shape in Shape::value_variants() {
        for spread in SPREADS {
            for scale in SCALES {
                for think in THINKS {
                    of(shape, spread, scale, think);
                }
            }
        }
    }
    all
}

/// Every `nth` scenario of the grid, about `epochs` epochs each.
pub fn everything(nth: usize, epochs: usize) -> Result<Vec<Simulated>> {
    let all: Vec<Scenario> = scenarios().into_iter().step_by(nth).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let parts = all.chunks(all.len().div_ceil(threads));
    thread::scope(|scope| {
        let one = |part: &[Scenario]| part.iter().map(|s| run(s, epochs)).collect::<Vec<_>>();
        let workers: Vec<_> = parts.map(|part| scope.spawn(move || one(part))).collect();
        let mut flows = Vec::new();
        for worker in workers {
            flows.extend(worker.join().map_err(|_| anyhow!("a simulation failed"))?);
        }
        Ok(flows)
    })
}

fn run(scenario: &Scenario, epochs: usize) -> Simulated {
    let batches = scenario.gaps as usize * (epochs + 1);
    let flow = simulate(scenario, batches * scenario.shape.packets_a_batch(), 1);
    Simulated {
        scenario: *scenario,
        errors: KINDS
            .map(|(kind, ..)| judge(&flow, kind, scenario.gaps))
            .into(),
    }
}

fn score<'a>(kind: usize, flows: impl Iterator<Item = &'a Simulated>) -> Score {
    let errors: Vec<Option<f64>> = flows.flat_map(|f| f.errors[kind].iter().copied()).collect();
    let known: Vec<f64> = errors.iter().copied().flatten().collect();
    let absolute: Vec<f64> = known.iter().map(|e| e.abs()).collect();
    let epochs = errors.len();
    let share = |n: usize| n as f64 / epochs.max(1) as f64;
    Score {
        estimator: KINDS[kind].1.into(),
        epochs,
        known: share(known.len()),
        bias: quantile(&known, 0.5),
        error: quantile(&absolute, 0.5),
        within_15_percent: share(absolute.iter().filter(|e| **e <= 0.15).count()),
    }
}

fn scores(flows: &[Simulated], of: impl Fn(&Scenario) -> bool) -> Vec<Score> {
    let own = || flows.iter().filter(|flow| of(&flow.scenario));
    (0..KINDS.len()).map(|kind| score(kind, own())).collect()
}

/// A row for each value of each factor. All but those of `shape` leave `Window` out.
fn points(flows: &[Simulated]) -> Vec<Point> {
    let point = |factor: &str, value: String, of: &dyn Fn(&Scenario) -> bool| Point {
        factor: factor.into(),
        value,
        scores: scores(flows, of),
    };
    let apart = |factor, value, of: &dyn Fn(&Scenario) -> bool| {
        point(factor, value, &|s| s.shape != Shape::Window && of(s))
    };
    let mut points = vec![apart("all", "all, window apart".into(), &|_| true)];
    let shapes = Shape::value_variants().iter();
    points.extend(shapes.map(|x| point("shape", format!("{x:?}"), &|s| s.shape == *x)));
    points.extend(SPREADS.map(|x| apart("latency", format!("{x:?}"), &|s| s.spread == x)));
    points.extend(SCALES.map(|x| apart("scale", format!("{} ms", x / MS), &|s| s.scale == x)));
    points.extend(THINKS.map(|x| apart("think", format!("{x:?}"), &|s| s.think == x)));
    points.extend(PATHS.map(|x| apart("path", format!("{x:?}"), &|s| s.path == x)));
    points.extend(JITTERS.map(|x| apart("jitter", format!("{x:?}"), &|s| s.jitter == x)));
    points.extend(GAPS.map(|x| apart("gaps", format!("{x:?}"), &|s| s.gaps == x)));
    points
}
