//! Experiment `balance-policies`: who decides where new connections go, in virtual time. Needs no
//! network, and the same seeds give the same results; they are the evidence in docs/research/balance.md.

mod deciders;
mod report;
mod scenarios;
#[cfg(test)]
mod tests;
mod world;

use std::thread;

use anyhow::{Result, anyhow};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::{Experiment, Report, Results, Round, Run, Turn, no_stage};
use crate::stats::{Spread, quantile};
use deciders::Kind;
use scenarios::Scenario;
use world::{Outcome, simulate};

pub struct BalancePolicies;

/// Of what the servers can do on average.
const LOADS: [f64; 6] = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Time between decisions, s.
const INTERVAL: f64 = 0.5;
/// Others that are tried.
const INTERVALS: [f64; 2] = [0.2, 1.0];
/// A policy has reacted when a server that has become slow has this part of its share left.
const REACTED: f64 = 0.75;
/// Policies whose steering of a sick server is drawn.
const DRAWN: [Kind; 2] = [Kind::Paper, Kind::Latency];

/// A scenario, in a version for each seed, and who decides in it.
#[derive(Clone, Debug)]
pub struct Arm {
    runs: Vec<Scenario>,
    kinds: &'static [Kind],
    interval: f64,
}

/// One policy in one scenario, over all seeds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub scenario: String,
    pub policy: Kind,
    /// Time between decisions, s.
    pub interval_s: f64,
    /// Median over the seeds, of good responses, ms.
    pub p50_ms: f64,
    /// Median over the seeds, and quartiles, ms.
    pub p99_ms: Spread,
    /// Median over seeds of 1 − p99 / p99 of static weights with the same seed.
    pub p99_reduction: f64,
    /// Share of responses that were errors.
    pub failed: f64,
    /// From the scenario's change until the server had less than three quarters of its share, median
    /// of the seeds, s; null when it never had, or nothing changes.
    pub reaction_s: Option<f64>,
    /// Share of the table that a decision moves, on average.
    pub swing: f64,
}

/// How much was simulated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// Each scenario, s.
    pub length_s: f64,
    /// Versions of each scenario.
    pub seeds: u64,
    /// The sick server's share of the table over seconds, by policy.
    #[serde(default)]
    pub sick_shares: Vec<(Kind, Vec<(f64, f64)>)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Over the loads with servers that follow traces: mean reduction of p99, by policy.
    pub p99_reduction: Vec<(Kind, f64)>,
    /// p99 over that of static weights when servers are equal, the worse of both loads.
    pub equal_servers_ratio: f64,
    /// As `p99_reduction`, of batchwise with other times between decisions, s.
    pub by_interval: Vec<(f64, f64)>,
}

/// Length of a scenario, s, and how many versions there are.
fn extent(quick: bool) -> (f64, u64) {
    if quick { (60.0, 3) } else { (180.0, 9) }
}

impl Experiment for BalancePolicies {
    type Stage = ();
    type Arm = Arm;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "balance-policies"
    }

    fn about(&self) -> &'static str {
        "balancing in virtual time: latency-aware weights against static ones and the ideal"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let (length, seeds) = extent(quick);
        let traced = |(kinds, interval), load| {
            let runs = (1..=seeds).map(|seed| scenarios::traces(load, seed, length));
            Arm {
                runs: runs.collect(),
                kinds,
                interval,
            }
        };
        let all = LOADS.map(|load| traced((Kind::value_variants(), INTERVAL), load));
        let fixed = scenarios::fixed(length).into_iter().map(|scenario| Arm {
            runs: vec![scenario; seeds as usize],
            kinds: Kind::value_variants(),
            interval: INTERVAL,
        });
        let pair: &[Kind] = &[Kind::Static, Kind::Latency];
        let others = INTERVALS.map(|interval| LOADS.map(|load| traced((pair, interval), load)));
        let arms = all.into_iter().chain(fixed);
        Ok(vec![Round::in_order(
            arms.chain(others.into_iter().flatten()),
        )])
    }

    fn simulates(&self) -> bool {
        true
    }

    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        no_stage()
    }

    fn prepare(&self, run: &mut Run<'_, More>, (): &mut ()) -> Result<()> {
        (run.more.length_s, run.more.seeds) = extent(run.context.quick);
        Ok(())
    }

    fn measure(
        &self,
        _run: &mut Run<'_, More>,
        (): &mut (),
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let mut points = compare(&turn.arm.runs, turn.arm.kinds, turn.arm.interval)?;
        points.retain(|p| p.interval_s == INTERVAL || p.policy != Kind::Static);
        Ok(points)
    }

    fn finish(&self, run: &mut Run<'_, More>, (): &mut (), _points: &[Point]) -> Result<()> {
        let all = scenarios::fixed(run.more.length_s);
        let sick = all.iter().find(|s| s.name == "one sick");
        let (sick, server) = sick
            .and_then(|s| Some((s, s.change?.1)))
            .ok_or_else(|| anyhow!("no server is sick in any scenario"))?;
        run.more.sick_shares = DRAWN
            .map(|kind| {
                let shares = simulate(sick, kind, INTERVAL, 1).shares;
                let of_server = shares.iter().map(|(at, all)| (*at, all[server]));
                (kind, of_server.collect())
            })
            .into();
        Ok(())
    }

    fn describe(&self, point: &Point) -> String {
        format!("{}, decisions each {} s", point.scenario, point.interval_s)
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        let points = &results.points;
        let mean = |policy: Kind, interval: f64| {
            let own = points.iter().filter(|p| {
                p.policy == policy && p.interval_s == interval && p.scenario.starts_with("traces")
            });
            let all: Vec<f64> = own.map(|p| p.p99_reduction).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let own = points.iter().filter(|p| p.policy == Kind::Latency);
        let equal = own.filter(|p| p.scenario.starts_with("equal"));
        let policies = Kind::value_variants().iter();
        Summary {
            p99_reduction: policies.map(|&k| (k, mean(k, INTERVAL))).collect(),
            equal_servers_ratio: equal.map(|p| 1.0 - p.p99_reduction).fold(0.0, f64::max),
            by_interval: INTERVALS.map(|i| (i, mean(Kind::Latency, i))).to_vec(),
        }
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        report::report(results, summary)
    }
}

/// Policies, the static one among them, in a scenario that each seed has a version of.
pub fn compare(runs: &[Scenario], kinds: &[Kind], interval: f64) -> Result<Vec<Point>> {
    let outcomes: Vec<Vec<Outcome>> = thread::scope(|scope| {
        let spawn = |&kind: &Kind| {
            scope.spawn(move || {
                let each = (1..).zip(runs);
                each.map(|(seed, s)| simulate(s, kind, interval, seed))
                    .collect()
            })
        };
        let all: Vec<_> = kinds.iter().map(spawn).collect();
        let failed = |_| anyhow!("simulating {:?} failed", runs[0].name);
        let outcomes = all.into_iter().map(|t| t.join().map_err(failed));
        outcomes.collect::<Result<_>>()
    })?;
    let quantiles = |own: &[Outcome], q| own.iter().map(|o| o.quantile_ms(q)).collect::<Vec<_>>();
    let fixed = kinds.iter().position(|k| *k == Kind::Static).unwrap_or(0);
    let fixed = quantiles(&outcomes[fixed], 0.99);
    let points = kinds.iter().zip(&outcomes).map(|(&policy, own)| {
        let tails = quantiles(own, 0.99);
        let reductions: Vec<f64> = tails.iter().zip(&fixed).map(|(a, b)| 1.0 - a / b).collect();
        let reactions: Vec<f64> = own.iter().filter_map(|o| reaction(&runs[0], o)).collect();
        let failed: f64 = own.iter().map(|o| o.failed as f64).sum();
        let good: f64 = own.iter().map(|o| o.latencies.len() as f64).sum();
        Some(Point {
            scenario: runs[0].name.clone(),
            policy,
            interval_s: interval,
            p50_ms: quantile(&quantiles(own, 0.5), 0.5)?,
            p99_ms: Spread::of(&tails)?,
            p99_reduction: quantile(&reductions, 0.5)?,
            failed: failed / (failed + good).max(1.0),
            reaction_s: quantile(&reactions, 0.5),
            swing: own.iter().map(swing).sum::<f64>() / own.len() as f64,
        })
    });
    Ok(points.flatten().collect())
}

fn reaction(scenario: &Scenario, outcome: &Outcome) -> Option<f64> {
    let (changed, server) = scenario.change?;
    let fair = 1.0 / scenario.servers.len() as f64;
    let mut later = outcome.shares.iter().filter(|(at, _)| *at > changed);
    let found = later.find(|(_, shares)| shares[server] < REACTED * fair)?;
    Some(found.0 - changed)
}

fn swing(outcome: &Outcome) -> f64 {
    let moves = outcome.shares.windows(2).map(|w| {
        let pairs = w[0].1.iter().zip(&w[1].1);
        pairs.map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0
    });
    moves.sum::<f64>() / (outcome.shares.len() as f64 - 1.0).max(1.0)
}
