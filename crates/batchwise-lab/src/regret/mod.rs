//! Experiment `regret`: policies in simulated time. A client, a link and a server with the paper's
//! costs, loads that are stationary, drifting, bursty and adversarial, and what deciding as one
//! policy does costs against the better static arm and against knowing the better arm all the time.

mod agent;
mod costs;
mod policies;
mod report;
mod run;
mod scenarios;
#[cfg(test)]
mod tests;
mod world;

use std::thread;

use anyhow::{Result, anyhow};
use batchwise_core::tune::Arm;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::{Experiment, Report, Results, Round, Run, Turn, no_stage};
use crate::stats::quantile;
use policies::Kind;
use run::{Outcome, run};
use scenarios::Scenario;

/// What policies lose against the best arm, in simulated time.
pub(crate) struct Regret;

/// Who is compared.
const KINDS: [Kind; 7] = [
    Kind::Static(Arm::On),
    Kind::Static(Arm::Off),
    Kind::Oracle,
    Kind::Greedy {
        epsilon: 0.1,
        ticks: 40,
    },
    Kind::Greedy {
        epsilon: 0.05,
        ticks: 40,
    },
    Kind::Greedy {
        epsilon: 0.1,
        ticks: 4,
    },
    Kind::Controller,
];

/// How long it took until the better arm was in force after a change.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Settle {
    changes: usize,
    median_s: f64,
    p95_s: f64,
    worst_s: f64,
}

/// One policy in one scenario, over all seeds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    scenario: String,
    policy: String,
    /// Mean of all messages, from when they were due.
    latency_ns: f64,
    throughput_per_s: f64,
    /// Mean latency over that of the static arm whose mean latency is lower.
    vs_best_static: f64,
    /// Over that of who always knows.
    vs_oracle: f64,
    /// Over that of the arm that the application asked for.
    vs_default: f64,
    /// The same in the worst window of 10 s, the first left out.
    worst_window_vs_default: f64,
    /// Share of time under an arm that was worse by more than 5 %.
    wrong: f64,
    switches_per_min: f64,
    probes_per_min: f64,
    /// Share of time in which the kernel counted.
    sensing: f64,
    /// `None` where no arm becomes clearly better than the other.
    settle: Option<Settle>,
    /// Ticks in which both ends tried an arm.
    both_probing: u64,
}

/// What programs read, of batchwise.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Over the best static arm, worst of the stationary scenarios.
    worst_stationary: f64,
    /// The worst window of 10 s against the default, in any scenario.
    worst_window_vs_default: f64,
    worst_settle_s: f64,
    /// 95 % of changes settled within this (worst scenario).
    p95_settle_s: f64,
}

/// How much was simulated.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Simulated {
    /// All runs.
    simulated_s: f64,
    /// Runs of each scenario and policy.
    seeds: u64,
}

/// How long a scenario is, s, and with how many seeds it is run.
fn extent(quick: bool) -> (f64, u64) {
    if quick { (120.0, 1) } else { (600.0, 3) }
}

impl Experiment for Regret {
    type Stage = ();
    type Arm = Scenario;
    type Point = Point;
    type More = Simulated;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "regret"
    }

    fn about(&self) -> &'static str {
        "policies in simulated time: what deciding costs against the best arm"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Scenario>>> {
        Ok(vec![Round::in_order(scenarios::all(extent(quick).0))])
    }

    fn simulates(&self) -> bool {
        true
    }

    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        no_stage()
    }

    fn measure(
        &self,
        run: &mut Run<'_, Simulated>,
        (): &mut (),
        turn: Turn<'_, Scenario>,
    ) -> Result<Vec<Point>> {
        let seeds = extent(run.context.quick).1;
        run.more.seeds = seeds;
        run.more.simulated_s += turn.arm.seconds * (KINDS.len() as u64 * seeds) as f64;
        compare(turn.arm, seeds)
    }

    fn describe(&self, point: &Point) -> String {
        let (scenario, over) = (&point.scenario, point.vs_best_static);
        format!("{scenario}: {over:.2} of the better arm")
    }

    fn summary(&self, results: &Results<Point, Simulated>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, Simulated>, _summary: &Summary) -> Report {
        report::report(results)
    }
}

/// Every policy in a scenario.
fn compare(scenario: &Scenario, seeds: u64) -> Result<Vec<Point>> {
    let outcomes: Vec<Vec<Outcome>> = thread::scope(|scope| {
        let all = KINDS.map(|kind| {
            scope.spawn(move || {
                let one = |seed| run(scenario, kind, seed);
                (1..=seeds).map(one).collect()
            })
        });
        let failed = |_| anyhow!("simulating {:?} failed", scenario.name);
        let joined = all.into_iter().map(|t| t.join().map_err(failed));
        joined.collect::<Result<_>>()
    })?;
    let means: Vec<f64> = outcomes.iter().map(|o| mean(o, |o| o.latency_ns)).collect();
    let default = usize::from(scenario.app_setting == Arm::Off);
    let point = |index: usize| {
        let own = &outcomes[index];
        let pairs = own.iter().zip(&outcomes[default]);
        let windows = pairs.flat_map(|(a, b)| a.windows.iter().zip(&b.windows).skip(1));
        Point {
            scenario: scenario.name.into(),
            policy: KINDS[index].name(),
            latency_ns: means[index],
            throughput_per_s: mean(own, |o| o.throughput_per_s),
            vs_best_static: means[index] / means[0].min(means[1]),
            vs_oracle: means[index] / means[2],
            vs_default: means[index] / means[default],
            worst_window_vs_default: windows.map(|(a, b)| a / b).fold(0.0, f64::max),
            wrong: mean(own, |o| o.wrong),
            switches_per_min: mean(own, |o| o.switches_per_min),
            probes_per_min: mean(own, |o| o.probes_per_min),
            sensing: mean(own, |o| o.sensing),
            settle: settle(own),
            both_probing: own.iter().map(|o| o.both_probing).sum(),
        }
    };
    Ok((0..KINDS.len()).map(point).collect())
}

fn mean(outcomes: &[Outcome], what: impl Fn(&Outcome) -> f64) -> f64 {
    outcomes.iter().map(what).sum::<f64>() / outcomes.len() as f64
}

fn settle(outcomes: &[Outcome]) -> Option<Settle> {
    let times: Vec<f64> = outcomes.iter().flat_map(|o| o.settle_s.clone()).collect();
    Some(Settle {
        changes: times.len(),
        median_s: quantile(&times, 0.5)?,
        p95_s: quantile(&times, 0.95)?,
        worst_s: quantile(&times, 1.0)?,
    })
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let controller = Kind::Controller.name();
        let own = || points.iter().filter(|p| p.policy == controller);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let settles = || own().filter_map(|p| p.settle);
        let steady = own().filter(|p| p.scenario.starts_with("steady"));
        Self {
            worst_stationary: most(&mut steady.map(|p| p.vs_best_static)),
            worst_window_vs_default: most(&mut own().map(|p| p.worst_window_vs_default)),
            worst_settle_s: most(&mut settles().map(|s| s.worst_s)),
            p95_settle_s: most(&mut settles().map(|s| s.p95_s)),
        }
    }
}
