//! Experiment `balance-faults`: connections that break while weights change, servers and balancers
//! die, and configurations are wrong.

mod balancers;
mod clients;
mod floods;
mod outcome;
mod resting;
mod servers;
mod stage;
mod upgrades;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use batchwise_testbed::segment::{Segment, SegmentSpec};
use batchwise_testbed::stop::Stop;
use clap::ValueEnum as _;
use serde::Serialize;
use serde_json::Value;

use crate::Context;
use crate::engine::text::name;
use crate::engine::{Experiment, NoMore, Report, Results, Round, Run, Table, Turn};
pub(crate) use clients::WHO;
pub use outcome::{Outcome, Scenario};
pub(crate) use stage::settings;
use stage::{Stage, by_latency};

/// Room for the outer header of the tunnels.
const MTU: u32 = 1600;
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

/// Runs a scenario on a segment of its own, whose names begin with `bw-TAG`.
///
/// # Errors
/// The hosts cannot be made, or a command fails. That connections broke is
/// no error: see [`Outcome::wrong`].
pub fn run(scenario: Scenario, tag: &str, command: &Path, stop: &Stop) -> Result<Outcome> {
    let segment = Segment::build(tag, SegmentSpec { mtu: MTU })?;
    let settings = match scenario {
        Scenario::WeightsByLatency => by_latency(),
        _ => settings(),
    };
    let mut stage = Stage::start(&segment, tag, command, stop, &settings)?;
    let mut outcome = match scenario {
        Scenario::WeightsChange => stage.weights_change(),
        Scenario::WeightsByLatency => stage.weights_by_latency(),
        Scenario::WeightsFlooded => stage.weights_flooded(),
        Scenario::BackendKilled => stage.backend_killed(),
        Scenario::HostVanished => stage.host_vanished(),
        Scenario::BackendDrained => stage.backend_drained(),
        Scenario::BackendRemoved => stage.backend_removed(false),
        Scenario::BackendRemovedIdle => stage.backend_removed(true),
        Scenario::BalancerKilled => stage.balancer_killed(),
        Scenario::BalancerKilledAndChanged => stage.balancer_killed_and_changed(),
        Scenario::PolicyChanged => stage.policy_changed(),
        Scenario::ConfigurationSpoiled => stage.configuration_spoiled(),
        Scenario::TypoAndCrash => stage.typo_and_crash(),
        Scenario::Upgraded => stage.upgraded(),
    }?;
    outcome.scenario = scenario;
    let decapsulators = stage.decapsulators.iter_mut();
    let mut alive: Vec<_> = decapsulators.map(|d| d.check_alive()).collect();
    alive.push(stage.agent.check_alive());
    for died in alive.into_iter().filter_map(Result::err) {
        outcome.agents_died += 1;
        outcome.wrong.push(format!("{died:#}"));
    }
    let printed = stage.agent.printed();
    outcome.totals = printed.totals.clone();
    let events = printed.events.iter().filter(|e| e.what != "reload");
    outcome.events = events.cloned().collect();
    drop(printed);
    Ok(outcome)
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
        let short = |s: &Scenario| *s != Scenario::BackendRemovedIdle;
        let short = Scenario::value_variants().iter().copied().filter(short);
        let mut rounds = vec![Round::in_order(short); if quick { 1 } else { 5 }];
        if !quick {
            rounds.push(Round::in_order([Scenario::BackendRemovedIdle]));
        }
        Ok(rounds)
    }

    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        // for the facts of the report: every scenario has a segment of its own
        let segment = Segment::build("bfaults", SegmentSpec::default())?;
        Ok(((), serde_json::to_value(segment.settings()?)?))
    }

    fn measure(
        &self,
        this: &mut Run<'_, NoMore>,
        (): &mut (),
        turn: Turn<'_, Scenario>,
    ) -> Result<Vec<Outcome>> {
        let Context { command, stop, .. } = this.context;
        Ok(vec![run(*turn.arm, "bfaults", command, stop)?])
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
        let table = Table::of(
            &results.points,
            &[
                ("", &|o| name(o.scenario)),
                ("connections", &|o| o.connections.to_string()),
                ("answers", &|o| o.answers.to_string()),
                ("broken", &|o| o.broken.to_string()),
                ("not opened", &|o| o.refused.to_string()),
                ("lost with a server", &|o| o.lost_with_server.to_string()),
                ("refused by it", &|o| o.refused_by_server.to_string()),
                ("noticed, ms", &|o| ms(o.noticed_after_ns)),
                ("at most, ms", &|o| ms(o.notice_within_ns)),
                ("wrong", &|o| o.wrong.join("; ")),
            ],
        );
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
        .table(table)
        .text(
            "Broken: a connection that ended in mid-request, although the server that it went to \
             lived. Every answer says which server gave it, so a connection that was sent to \
             another server would show. Half of the connections are IPv4 by layer 2, half IPv6 \
             through tunnels.",
        )
    }
}
