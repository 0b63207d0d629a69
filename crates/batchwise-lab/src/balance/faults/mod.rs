//! Experiment `balance-faults`: connections that break while weights change, servers and balancers
//! die, and configurations are wrong. This file owns the results.

mod agent;
mod balancers;
mod clients;
mod kept;
mod outcome;
mod scenarios;
mod servers;

use std::collections::BTreeMap;

use anyhow::Result;
use batchwise_testbed::segment::{Segment, SegmentSpec};
use maud::html;
use serde::Serialize;

use crate::frame::{Frame, Measured, NoMore};
use crate::output::Progress;
use crate::report::Table;
use crate::{Context, Experiment};
pub use outcome::Outcome;
pub use scenarios::{Scenario, run};

/// What breaks when something does.
pub struct BalanceFaults;

#[derive(Default)]
struct Runs {
    outcomes: Vec<Outcome>,
}

/// All runs of all scenarios.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    /// Connections that broke and must not have.
    broken_connections: u64,
    /// Connections that could not be opened and should have been.
    refused_connections: u64,
    /// Whatever else was not as it must be.
    wrong: usize,
    /// All connections.
    connections: u64,
    /// By name; the last run of each.
    scenarios: BTreeMap<&'static str, Outcome>,
}

impl Summary {
    fn of(outcomes: &[Outcome]) -> Self {
        Self {
            broken_connections: outcomes.iter().map(|o| o.broken).sum(),
            refused_connections: outcomes.iter().map(|o| o.refused).sum(),
            wrong: outcomes.iter().map(|o| o.wrong.len()).sum(),
            connections: outcomes.iter().map(|o| o.connections).sum(),
            scenarios: outcomes
                .iter()
                .map(|o| (o.scenario.name(), o.clone()))
                .collect(),
        }
    }
}

impl Experiment for BalanceFaults {
    fn name(&self) -> &'static str {
        "balance-faults"
    }

    fn about(&self) -> &'static str {
        "connections that break when weights change, servers or balancers die, configurations are wrong"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let build = || {
            // for the facts of the report: every scenario has a segment of its own
            let segment = Segment::build("bfaults", SegmentSpec::default())?;
            Ok(((), segment.settings()?))
        };
        Frame::run_on(self.name(), context, build, |frame, (), runs: &mut Runs| {
            let rounds = if context.quick { 1 } else { 5 };
            let mut all = Scenario::ALL.repeat(rounds);
            if !context.quick {
                all.extend(Scenario::LONG);
            }
            let mut progress = Progress::new(u32::try_from(all.len())?);
            for scenario in all {
                let outcome = run(scenario, "bfaults", &context.command, &context.stop)?;
                progress.step(&format!(
                    "{}: {} of {} connections broken, {} refused {:?}",
                    scenario.name(),
                    outcome.broken,
                    outcome.connections,
                    outcome.refused,
                    outcome.wrong
                ));
                runs.outcomes.push(outcome);
                runs.write(frame, false)?;
            }
            Ok(())
        })
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.outcomes);
        frame.write_result(complete, &self.outcomes, &NoMore {}, &summary)?;
        let mut table = Table::new([
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
        let ms = |ns: Option<u64>| ns.map_or_else(String::new, |ns| (ns / 1_000_000).to_string());
        for o in &self.outcomes {
            table.row([
                o.scenario.name().to_owned(),
                o.connections.to_string(),
                o.answers.to_string(),
                o.broken.to_string(),
                o.refused.to_string(),
                o.lost_with_server.to_string(),
                o.refused_by_server.to_string(),
                ms(o.noticed_after_ns),
                ms(o.notice_within_ns),
                o.wrong.join("; "),
            ]);
        }
        let body = html! {
            (table.html())
            p {
                "Broken: a connection that ended in mid-request, although the server that it went to \
                 lived. Every answer says which server gave it, so a connection that was sent to \
                 another server would show. Half of the connections are IPv4 by layer 2, half IPv6 \
                 through tunnels."
            }
        };
        frame.write_report(
            complete,
            "Balance faults: what breaks when something does",
            "Two clients keep 24 connections to four servers behind the balancer, each for 0.1 to 2 s, \
             while something is done to the balancer or to a server.",
            &body,
        )
    }
}
