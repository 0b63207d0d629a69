//! Experiment `balance-policies`: who decides where new connections go, in virtual time. Needs no
//! network; its table is the evidence in docs/research/balance.md.

pub mod deciders;
mod figures;
pub mod scenarios;
#[cfg(test)]
mod tests;
pub mod world;

use std::thread;

use anyhow::{Result, anyhow};
use batchwise_core::balance::Params;
use serde::Serialize;

use crate::machine::Machine;
use crate::output::Progress;
use crate::stats::{Spread, quantile};
use crate::{Context, Experiment};
use deciders::Kind;
use scenarios::Scenario;
use world::{Outcome, Setup, run};

/// Policies against each other.
pub struct BalancePolicies;

/// Of what the servers can do on average.
const LOADS: [f64; 6] = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Time between decisions, s.
const INTERVAL: f64 = 0.5;
/// Others that are tried.
const INTERVALS: [f64; 2] = [0.2, 1.0];
/// Of its share before, what a server that has become slow has left when the policy has reacted.
const REACTED: f64 = 0.75;

/// One policy in one scenario, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Its name.
    pub scenario: String,
    /// Its name.
    pub policy: &'static str,
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

/// What programs read.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Over the loads with servers that follow traces: mean reduction of p99, by policy.
    pub p99_reduction: Vec<(&'static str, f64)>,
    /// p99 over that of static weights when servers are equal, the worse of both loads.
    pub equal_servers_ratio: f64,
    /// As `p99_reduction`, of batchwise with other times between decisions, s.
    pub by_interval: Vec<(f64, f64)>,
}

#[derive(Serialize)]
struct Results<'a> {
    experiment: &'static str,
    machine: &'a Machine,
    complete: bool,
    length_s: f64,
    seeds: u64,
    points: &'a [Point],
    summary: &'a Summary,
}

impl Experiment for BalancePolicies {
    fn name(&self) -> &'static str {
        "balance-policies"
    }

    fn about(&self) -> &'static str {
        "balancing in virtual time: latency-aware weights against static ones and the ideal"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let machine = context.machine()?;
        let (length, seeds) = if context.quick { (60.0, 3) } else { (180.0, 9) };
        let mut all: Vec<Vec<Scenario>> = LOADS
            .iter()
            .map(|load| {
                (1..=seeds)
                    .map(|seed| scenarios::traces(*load, seed, length))
                    .collect()
            })
            .collect();
        let fixed = scenarios::fixed(length);
        all.extend(fixed.iter().map(|s| vec![s.clone(); seeds as usize]));
        let mut progress = Progress::new(u32::try_from(all.len() + INTERVALS.len())?);
        let mut points = Vec::new();
        for runs in &all {
            context.stop.check()?;
            points.extend(compare(runs, &Kind::ALL, INTERVAL)?);
            progress.step(&runs[0].name);
        }
        for interval in INTERVALS {
            context.stop.check()?;
            for runs in &all[..LOADS.len()] {
                let own = compare(runs, &[Kind::Static, Kind::Latency], interval)?;
                points.extend(own.into_iter().filter(|p| p.policy == Kind::Latency.name()));
            }
            progress.step(&format!("decisions each {interval} s"));
        }
        let summary = Summary::of(&points);
        let results = Results {
            experiment: self.name(),
            machine: &machine,
            complete: true,
            length_s: length,
            seeds,
            points: &points,
            summary: &summary,
        };
        context.output.write_result(&results)?;
        let traced: Vec<_> = fixed.iter().filter(|s| s.name == "one sick").collect();
        let curves = [Kind::Paper, Kind::Latency, Kind::Oracle]
            .iter()
            .flat_map(|kind| {
                traced
                    .iter()
                    .map(move |s| (*kind, run(s, setup(*kind, INTERVAL, 1))))
            });
        let curves: Vec<(Kind, Outcome)> = curves.collect();
        let reproduce = context.reproduce(self.name());
        figures::write(&context.output, &results, &curves, &reproduce)
    }
}

fn setup(kind: Kind, interval: f64, seed: u64) -> Setup {
    Setup {
        kind,
        params: Params::default(),
        interval,
        seed,
    }
}

/// Policies, the static one among them, in a scenario that each seed has a version of.
pub fn compare(runs: &[Scenario], kinds: &[Kind], interval: f64) -> Result<Vec<Point>> {
    let outcomes: Vec<Vec<Outcome>> = thread::scope(|scope| {
        let spawn = |kind: &Kind| {
            let kind = *kind;
            scope.spawn(move || {
                let each = (1..).zip(runs);
                each.map(|(seed, s)| run(s, setup(kind, interval, seed)))
                    .collect()
            })
        };
        let all: Vec<_> = kinds.iter().map(spawn).collect();
        all.into_iter()
            .map(|t| {
                t.join()
                    .map_err(|_| anyhow!("simulating {:?} failed", runs[0].name))
            })
            .collect::<Result<_>>()
    })?;
    let tails: Vec<Vec<f64>> = outcomes
        .iter()
        .map(|o| o.iter().map(|o| tail(o, 0.99)).collect())
        .collect();
    let fixed = kinds.iter().position(|k| *k == Kind::Static).unwrap_or(0);
    let points = kinds
        .iter()
        .zip(&outcomes)
        .zip(&tails)
        .map(|((kind, own), tail_ms)| {
            let pairs = tail_ms.iter().zip(&tails[fixed]);
            let reductions: Vec<f64> = pairs.map(|(a, b)| 1.0 - a / b).collect();
            let middles: Vec<f64> = own.iter().map(|o| tail(o, 0.5)).collect();
            let reactions: Vec<f64> = own.iter().filter_map(|o| reaction(&runs[0], o)).collect();
            let failed: f64 = own.iter().map(|o| o.failed as f64).sum();
            let good: f64 = own.iter().map(|o| o.latencies.len() as f64).sum();
            Some(Point {
                scenario: runs[0].name.clone(),
                policy: kind.name(),
                interval_s: interval,
                p50_ms: quantile(&middles, 0.5)?,
                p99_ms: Spread::of(tail_ms)?,
                p99_reduction: quantile(&reductions, 0.5)?,
                failed: failed / (failed + good).max(1.0),
                reaction_s: quantile(&reactions, 0.5),
                swing: own.iter().map(swing).sum::<f64>() / own.len() as f64,
            })
        });
    Ok(points.flatten().collect())
}

/// ms.
fn tail(outcome: &Outcome, q: f64) -> f64 {
    let all: Vec<f64> = outcome
        .latencies
        .iter()
        .map(|l| f64::from(*l) * 1e3)
        .collect();
    quantile(&all, q).unwrap_or(f64::NAN)
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

impl Summary {
    fn of(points: &[Point]) -> Self {
        let mean = |policy: &str, interval: f64| {
            let own = points.iter().filter(|p| {
                p.policy == policy && p.interval_s == interval && p.scenario.starts_with("traces")
            });
            let all: Vec<f64> = own.map(|p| p.p99_reduction).collect();
            all.iter().sum::<f64>() / all.len() as f64
        };
        let own = points.iter().filter(|p| p.policy == Kind::Latency.name());
        let equal = own.filter(|p| p.scenario.starts_with("equal"));
        let name = Kind::Latency.name();
        Self {
            p99_reduction: Kind::ALL
                .map(|k| (k.name(), mean(k.name(), INTERVAL)))
                .to_vec(),
            equal_servers_ratio: equal.map(|p| 1.0 - p.p99_reduction).fold(0.0, f64::max),
            by_interval: INTERVALS.map(|i| (i, mean(name, i))).to_vec(),
        }
    }
}
