//! Experiment `balance-faults`: connections that break while weights change, servers and balancers
//! die, and configurations are wrong.

mod balancers;
mod clients;
mod outcome;
mod resting;
mod scenarios;
mod servers;

use std::collections::BTreeMap;

use anyhow::Result;
use batchwise_testbed::segment::{Segment, SegmentSpec};
use serde::Serialize;
use serde_json::Value;

use super::name;
use crate::Context;
use crate::engine::{Experiment, NoMore, Report, Results, Round, Run, Table, Turn};
pub use outcome::Outcome;
pub use scenarios::{Scenario, run};

/// What breaks when something does.
pub struct BalanceFaults;

/// All runs of all scenarios.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Connections that broke and must not have.
    broken_connections: u64,
    /// Connections that could not be opened and should have been.
    refused_connections: u64,
    /// Whatever else was not as it must be.
    wrong: usize,
    /// All connections.
    connections: u64,
    /// The last run of each.
    scenarios: BTreeMap<Scenario, Outcome>,
}

impl Experiment for BalanceFaults {
    type Stage = ();
    type Arm = Scenario;
    type Point = Outcome;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "balance-faults"
    }

    fn about(&self) -> &'static str {
        "connections that break when weights change, servers or balancers die, configurations are wrong"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Scenario>>> {
        let all = Round::in_order(Scenario::ALL);
        if quick {
            return Ok(vec![all]);
        }
        let mut rounds = vec![all; 5];
        rounds.push(Round::in_order(Scenario::LONG));
        Ok(rounds)
    }

    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        // for the facts of the report: every scenario has a segment of its own
        let segment = Segment::build("bfaults", SegmentSpec::default())?;
        Ok(((), serde_json::to_value(segment.settings()?)?))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        (): &mut (),
        turn: Turn<'_, Scenario>,
    ) -> Result<Vec<Outcome>> {
        let Context { command, stop, .. } = run.context;
        Ok(vec![scenarios::run(*turn.arm, "bfaults", command, stop)?])
    }

    fn describe(&self, outcome: &Outcome) -> String {
        format!(
            "{}: {} of {} connections broken, {} refused {:?}",
            name(outcome.scenario),
            outcome.broken,
            outcome.connections,
            outcome.refused,
            outcome.wrong
        )
    }

    fn summary(&self, results: &Results<Outcome, NoMore>) -> Summary {
        let all = &results.points;
        let sum = |of: fn(&Outcome) -> u64| all.iter().map(of).sum();
        Summary {
            broken_connections: sum(|o| o.broken),
            refused_connections: sum(|o| o.refused),
            wrong: all.iter().map(|o| o.wrong.len()).sum(),
            connections: sum(|o| o.connections),
            scenarios: all.iter().map(|o| (o.scenario, o.clone())).collect(),
        }
    }

    fn report(&self, results: &Results<Outcome, NoMore>, summary: &Summary) -> Report {
        let ms = |ns: Option<u64>| ns.map_or_else(String::new, |ns| (ns / 1_000_000).to_string());
        let row = |o: &Outcome| {
            vec![
                name(o.scenario),
                o.connections.to_string(),
                o.answers.to_string(),
                o.broken.to_string(),
                o.refused.to_string(),
                o.lost_with_server.to_string(),
                o.refused_by_server.to_string(),
                ms(o.noticed_after_ns),
                ms(o.notice_within_ns),
                o.wrong.join("; "),
            ]
        };
        let table = Table::new([
            "",
            "connections",
            "answers",
            "broken",
            "not opened",
            "lost with a server",
            "refused by it",
            "noticed, ms",
            "at most, ms",
            "wrong",
        ]);
        Report::new(
            "Balance faults: what breaks when something does",
            "Two clients keep 24 connections to four servers behind the balancer, each for 0.1 to 2 s, \
             while something is done to the balancer or to a server.",
        )
        .heading("Summary")
        .text(format!(
            "Of {} connections **{} broke** and **{} could not be opened** that should not have; {} \
             other things went wrong.",
            summary.connections,
            summary.broken_connections,
            summary.refused_connections,
            summary.wrong
        ))
        .table(table.with(results.points.iter().map(row)))
        .text(
            "Broken: a connection that ended in mid-request, although the server that it went to \
             lived. Every answer says which server gave it, so a connection that was sent to \
             another server would show. Half of the connections are IPv4 by layer 2, half IPv6 \
             through tunnels.",
        )
    }
}
