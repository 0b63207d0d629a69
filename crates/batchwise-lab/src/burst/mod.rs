//! Experiment `burst-sim`: bursts that a router admits whole, in simulated time. A bottleneck with a
//! queue of 100 packets, TCP, and what becomes of flows under drop-tail, RED, fq_codel, CAKE, the paper's
//! Algorithm 1 and batchwise; then liars; then batchwise without one of its rules.

mod abuse;
mod discipline;
pub(crate) mod live;
mod network;
mod packet;
mod report;
mod rules;
mod scenarios;
mod summary;
pub(crate) mod tc_cost;
mod tcp;
#[cfg(test)]
mod tests;

use std::thread;

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::{Experiment, NoMore, Report, Results, Round, Run, Turn, no_stage, text};
use crate::stats::{median, quantile};
use abuse::{Strategy, carried};
use discipline::Which;
use rules::Variant;
use scenarios::{Scenario, Traffic};
use summary::Summary;
use tcp::Recovery;

/// Bursts in simulated time.
pub(crate) struct BurstSim;

/// What a turn simulates, with all seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arm {
    Flows(Scenario),
    Abuse(Strategy),
    Without(Variant),
}

/// What the seeds came to, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Point {
    Flows(FlowsPoint),
    Abuse(AbusePoint),
}

/// A scenario under a discipline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlowsPoint {
    scenario: String,
    recovery: Recovery,
    discipline: Which,
    /// The rule that batchwise was run without.
    without: Option<Variant>,
    /// Completion of the flows that have an end, ns.
    fct_mean_ns: Vec<f64>,
    fct_p99_ns: Vec<f64>,
    /// What the flows without an end carried together, segments.
    long: Vec<f64>,
    /// What the one of the 49 + 1 carried over the mean of the others.
    one: Vec<f64>,
    /// Flows that were not complete at the end, and packets that were dropped, over all seeds.
    incomplete: usize,
    dropped: u64,
}

/// A liar, at batchwise's queue and at one that does not know marks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AbusePoint {
    strategy: Strategy,
    without: Option<Variant>,
    /// What honest flows carried, over drop-tail.
    honest: Vec<f64>,
    /// The same of the liar, if it is TCP.
    liar: Vec<f64>,
}

/// Seeds of a scenario, and of a strategy of the search, where links are full and runs alike.
fn seeds(quick: bool) -> (u64, u64) {
    if quick { (15, 5) } else { (40, 15) }
}

impl Experiment for BurstSim {
    type Stage = ();
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "burst-sim"
    }

    fn about(&self) -> &'static str {
        "bursts that are admitted whole, in simulated time: completion of flows, and liars"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let flows = scenarios::all(quick).into_iter().map(Arm::Flows);
        let abuse = abuse::strategies(quick).into_iter().map(Arm::Abuse);
        let without = Variant::ALL.map(Arm::Without);
        Ok(vec![Round::in_order(flows.chain(abuse).chain(without))])
    }

    fn simulates(&self) -> bool {
        true
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        let part = match arm {
            Arm::Flows(scenario) => match scenario.traffic {
                Traffic::Incast { .. } | Traffic::Series | Traffic::Besieged => "incast",
                Traffic::Mixed(_) => "mixed",
                Traffic::OneOf50 { .. } => "49+1",
            },
            Arm::Abuse(_) => "abuse",
            Arm::Without(_) => "rules",
        };
        Some(part.into())
    }

    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        no_stage()
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        (): &mut (),
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (of_flows, of_abuse) = seeds(run.context.quick);
        match *turn.arm {
            Arm::Flows(scenario) => in_parallel(scenario.disciplines(), |which| {
                Point::Flows(flows(&scenario, which, None, of_flows))
            }),
            Arm::Abuse(strategy) => Ok(vec![Point::Abuse(lies(strategy, None, of_abuse))]),
            Arm::Without(variant) => {
                let flows = in_parallel(rules::SCENARIOS.to_vec(), |scenario| {
                    let which = Which::Batchwise;
                    Point::Flows(flows(&scenario, which, Some(variant), of_flows))
                });
                let abuse = in_parallel(abuse::strategies(run.context.quick), |strategy| {
                    Point::Abuse(lies(strategy, Some(variant), of_abuse))
                });
                Ok(flows?.into_iter().chain(abuse?).collect())
            }
        }
    }

    fn describe(&self, point: &Point) -> String {
        match point {
            Point::Flows(p) => {
                let name = text::name(p.discipline);
                let mean = text::maybe_duration(median(&p.fct_mean_ns));
                let long = median(&p.long).unwrap_or_default();
                format!("{}, {name}: {mean}, {long:.0} segments", p.scenario)
            }
            Point::Abuse(p) => {
                let honest = text::ratio(median(&p.honest));
                format!("{}: honest flows {honest} of drop-tail", p.strategy.name())
            }
        }
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        report::report(&results.points, summary)
    }
}

/// The points of all of these, in order.
fn in_parallel<T: Copy + Send>(
    of: Vec<T>,
    point: impl Fn(T) -> Point + Sync,
) -> Result<Vec<Point>> {
    thread::scope(|scope| {
        let all: Vec<_> = of
            .into_iter()
            .map(|each| {
                let point = &point;
                scope.spawn(move || point(each))
            })
            .collect();
        let failed = |_| anyhow!("a simulation failed");
        all.into_iter().map(|t| t.join().map_err(failed)).collect()
    })
}

/// A scenario under a discipline, with so many seeds.
fn flows(
    scenario: &Scenario,
    discipline: Which,
    without: Option<Variant>,
    seeds: u64,
) -> FlowsPoint {
    let mut point = FlowsPoint {
        scenario: scenario.name(),
        recovery: scenario.recovery,
        discipline,
        without,
        fct_mean_ns: Vec::new(),
        fct_p99_ns: Vec::new(),
        long: Vec::new(),
        one: Vec::new(),
        incomplete: 0,
        dropped: 0,
    };
    for seed in 1..=seeds {
        let rules = without.map_or(Variant::NONE, Variant::rules);
        let spec = scenario.spec(discipline, rules, seed);
        let outcomes = network::run(&spec, seed);
        point.dropped += outcomes.dropped;
        let with_end: Vec<_> = outcomes.flows.iter().filter(|f| f.took.is_some()).collect();
        point.incomplete += with_end.iter().filter(|f| !f.is_complete).count();
        let times: Vec<f64> = with_end
            .iter()
            .filter_map(|f| f.took)
            .map(|t| t as f64)
            .collect();
        if !times.is_empty() {
            point
                .fct_mean_ns
                .push(times.iter().sum::<f64>() / times.len() as f64);
            point.fct_p99_ns.extend(quantile(&times, 0.99));
        }
        let carried = |f: &network::Outcome| f.arrived as f64;
        let endless = outcomes.flows.iter().filter(|f| f.took.is_none());
        let long: Vec<f64> = endless.map(carried).collect();
        match scenario.traffic {
            Traffic::OneOf50 { unit, jumbo } => {
                let size = if jumbo { f64::from(unit) } else { 1.0 };
                let others = long[1..].iter().sum::<f64>() / (long.len() - 1) as f64;
                point.one.push(long[0] * size / others);
            }
            Traffic::Mixed(_) => point.long.push(long.iter().sum()),
            Traffic::Incast { .. } | Traffic::Series | Traffic::Besieged => {}
        }
    }
    point
}

/// A liar, with so many seeds.
fn lies(strategy: Strategy, without: Option<Variant>, seeds: u64) -> AbusePoint {
    let rules = without.map_or(Variant::NONE, Variant::rules);
    let (mut honest, mut liar) = (Vec::new(), Vec::new());
    for seed in 1..=seeds {
        let base = carried(strategy, Which::DropTail, rules, seed);
        let own = carried(strategy, Which::Batchwise, rules, seed);
        honest.push(own.honest as f64 / base.honest as f64);
        if base.liar > 0 {
            liar.push(own.liar as f64 / base.liar as f64);
        }
    }
    AbusePoint {
        strategy,
        without,
        honest,
        liar,
    }
}
