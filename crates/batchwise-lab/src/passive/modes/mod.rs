//! Experiment `passive-modes`: flows in virtual time, and what each way of turning gaps into latency
//! says about them. Needs no network; its table is the evidence in docs/research/passive.md.

pub mod estimators;
mod figures;
pub mod flow;
#[cfg(test)]
mod tests;

use std::thread;

use anyhow::{Result, anyhow};
use serde::Serialize;

use crate::machine::Machine;
use crate::stats::quantile;
use crate::{Context, Experiment};
use estimators::{KINDS, judge};
use flow::{Path, Scenario, Shape, Spread, Think, simulate};

/// Estimators of gaps against simulated flows.
pub struct PassiveModes;

const MS: f64 = 1e6;
const SHAPES: [Shape; 6] = [
    Shape::Single,
    Shape::Burst,
    Shape::Tree,
    Shape::Upload,
    Shape::Multi,
    Shape::Window,
];
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
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// Who.
    pub estimator: String,
    /// Epochs.
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
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Which factor varies.
    pub factor: &'static str,
    /// Its value.
    pub value: String,
    /// By estimator.
    pub scores: Vec<Score>,
}

#[derive(Serialize)]
struct Results<'a> {
    experiment: &'static str,
    machine: &'a Machine,
    complete: bool,
    points: &'a [Point],
    summary: Vec<Score>,
}

impl Experiment for PassiveModes {
    fn name(&self) -> &'static str {
        "passive-modes"
    }

    fn about(&self) -> &'static str {
        "gaps to latency in virtual time: each estimator against simulated flows"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let machine = context.machine()?;
        let epochs = if context.quick { 10 } else { 40 };
        let runs = everything(if context.quick { 7 } else { 1 }, epochs)?;
        let points = points(&runs);
        let results = Results {
            experiment: self.name(),
            machine: &machine,
            complete: true,
            points: &points,
            summary: total(&runs),
        };
        context.output.write_result(&results)?;
        let reproduce = context.reproduce(self.name());
        figures::write(&context.output, &results, runs.len(), &reproduce)
    }
}

/// One scenario and its epochs' errors, by estimator.
pub struct Run {
    /// Which.
    pub scenario: Scenario,
    /// Errors of the epochs, `None` for those without an estimate.
    pub errors: Vec<Vec<Option<f64>>>,
    /// Confidence of the epochs.
    pub confidence: Vec<Vec<f64>>,
}

fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for shape in SHAPES {
        for spread in SPREADS {
            for scale in SCALES {
                for think in THINKS {
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
                }
            }
        }
    }
    all
}

/// Every `nth` scenario of the grid, about `epochs` epochs each.
pub fn everything(nth: usize, epochs: usize) -> Result<Vec<Run>> {
    let all: Vec<Scenario> = scenarios().into_iter().step_by(nth).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let parts = all.chunks(all.len().div_ceil(threads));
    thread::scope(|scope| {
        let workers: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().map(|s| run(s, epochs)).collect()))
            .collect();
        let mut runs: Vec<Run> = Vec::new();
        for w in workers {
            let part: Vec<Run> = w.join().map_err(|_| anyhow!("a simulation failed"))?;
            runs.extend(part);
        }
        Ok(runs)
    })
}

fn run(scenario: &Scenario, epochs: usize) -> Run {
    let batches = scenario.gaps as usize * (epochs + 1);
    let flow = simulate(scenario, batches * scenario.shape.packets_a_batch(), 1);
    let verdicts = KINDS.map(|kind| judge(&flow, kind, scenario.gaps));
    let pick = |what: fn(&estimators::Verdict) -> Option<f64>| {
        verdicts
            .iter()
            .map(|v| v.iter().map(what).collect())
            .collect()
    };
    Run {
        scenario: *scenario,
        errors: pick(|v| v.error),
        confidence: verdicts
            .iter()
            .map(|v| v.iter().map(|v| v.confidence).collect())
            .collect(),
    }
}

fn score<'a>(kind: usize, runs: impl Iterator<Item = &'a Run>) -> Score {
    let errors: Vec<Option<f64>> = runs.flat_map(|r| r.errors[kind].iter().copied()).collect();
    let known: Vec<f64> = errors.iter().copied().flatten().collect();
    let absolute: Vec<f64> = known.iter().map(|e| e.abs()).collect();
    let epochs = errors.len();
    let share = |n: usize| n as f64 / epochs.max(1) as f64;
    Score {
        estimator: KINDS[kind].name(),
        epochs,
        known: share(known.len()),
        bias: quantile(&known, 0.5),
        error: quantile(&absolute, 0.5),
        within_15_percent: share(absolute.iter().filter(|e| **e <= 0.15).count()),
    }
}

fn total(runs: &[Run]) -> Vec<Score> {
    (0..KINDS.len()).map(|k| score(k, runs.iter())).collect()
}

fn points(runs: &[Run]) -> Vec<Point> {
    let mut points = vec![Point {
        factor: "all",
        value: "all, window apart".into(),
        scores: scores(runs, |s| s.shape != Shape::Window),
    }];
    let apart = |s: &Scenario| s.shape != Shape::Window;
    points.extend(SHAPES.map(|x| point(runs, "shape", x, |s| s.shape == x)));
    for x in SPREADS {
        points.push(point(runs, "latency", x, |s| apart(s) && s.spread == x));
    }
    for x in SCALES {
        let value = format!("{} ms", x / MS);
        let scores = scores(runs, |s| apart(s) && s.scale == x);
        points.push(Point {
            factor: "scale",
            value,
            scores,
        });
    }
    points.extend(THINKS.map(|x| point(runs, "think", x, |s| apart(s) && s.think == x)));
    points.extend(PATHS.map(|x| point(runs, "path", x, |s| apart(s) && s.path == x)));
    points.extend(JITTERS.map(|x| point(runs, "jitter", x, |s| apart(s) && s.jitter == x)));
    points.extend(GAPS.map(|x| point(runs, "gaps", x, |s| apart(s) && s.gaps == x)));
    points
}

fn point(
    runs: &[Run],
    factor: &'static str,
    value: impl std::fmt::Debug,
    of: impl Fn(&Scenario) -> bool,
) -> Point {
    Point {
        factor,
        value: format!("{value:?}"),
        scores: scores(runs, of),
    }
}

fn scores(runs: &[Run], of: impl Fn(&Scenario) -> bool) -> Vec<Score> {
    let own = || runs.iter().filter(|r| of(&r.scenario));
    (0..KINDS.len()).map(|k| score(k, own())).collect()
}
