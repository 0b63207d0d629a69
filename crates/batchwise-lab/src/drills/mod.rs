//! Experiment `drills`: what goes wrong on machines that carry traffic, done on purpose while applications
//! are at work. Whether an agent stood it is told by something other than the agent: the applications'
//! own getsockopt(), the kernel's lists of programs, processes and devices, captures.

mod callbacks;
mod crowd;
mod death;
mod disks;
mod forwarding;
mod hostile;
mod load;
mod memory;
mod neighbours;
mod nopush;
mod outcome;
mod outputs;
mod peer;
mod scene;

use std::collections::BTreeMap;

use anyhow::Result;
use batchwise_testbed::stop::Stopped;
use batchwise_testbed::topology::TwoHosts;
use clap::ValueEnum as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use serde_json::Value;

use crate::Context;
use crate::balance::faults::Scenario;
use crate::engine::text::name;
use crate::engine::{Experiment, NoMore, Report, Results, Round, Run, Table, Turn};
pub(crate) use load::echo;
pub(crate) use outcome::Traffic;
use outcome::{Drill, Outcome};

pub struct Drills;

/// Rounds of a full run.
const ROUNDS: usize = 3;

/// All runs of all drills.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    drills: BTreeMap<Drill, Told>,
    /// Whether all held.
    all_held: bool,
    connections: u64,
    requests: u64,
    broken_connections: u64,
    wrong_replies: u64,
    settings_not_given_back: u64,
    agents_died: u64,
    /// Runs that broke off: the sums are without them.
    not_done: u64,
}

/// What is told of a drill.
#[derive(Clone, Debug, Serialize)]
struct Told {
    /// 1: in every run; 0: not in all.
    held: u8,
    runs: usize,
    evidence: Evidence,
}

/// Of its last run that did not hold, or of its last.
#[derive(Clone, Debug, Serialize)]
struct Evidence {
    said: String,
    #[serde(flatten)]
    numbers: BTreeMap<String, f64>,
    connections: u64,
    requests: u64,
    wrong: Vec<String>,
}

fn run(drill: Drill, context: &Context) -> Result<Outcome> {
    let done = match drill {
        Drill::AgentKilled => death::killed(context),
        Drill::AgentKilledAsFirst => death::killed_as_first(context),
        Drill::HostileHttp => hostile::http(context),
        Drill::HintFlood => hostile::hints(context),
        Drill::HintHandles => hostile::handles(context),
        Drill::WindowFlood => hostile::window(context),
        Drill::HostilePeer => peer::one_of_a_thousand(context),
        Drill::NginxNopush => nopush::stays_corked(context),
        Drill::Connections1k => crowd::connections(context, drill, 1_000),
        Drill::Connections10k => crowd::connections(context, drill, 10_000),
        Drill::Connections50k => crowd::of_many_processes(context, drill, 50_000),
        Drill::DiskFull => outputs::disk_full(context),
        Drill::DiskHangs => outputs::disk_hangs(context),
        Drill::ReaderLeaves => outputs::reader_leaves(context),
        Drill::TerminalGone => outputs::terminal_gone(context),
        Drill::NamespaceDeleted => neighbours::namespace_deleted(context),
        Drill::ManyNamespaces => neighbours::many_namespaces(context),
        Drill::OtherSockOps => callbacks::survive(context),
        Drill::MemoryLimit => memory::limit(context),
        Drill::BalanceFloods => forwarding::run(context, Scenario::WeightsFlooded),
        Drill::BalanceTypoCrash => forwarding::run(context, Scenario::TypoAndCrash),
        Drill::BalanceUpgrade => forwarding::run(context, Scenario::Upgraded),
    };
    match done {
        Ok(outcome) => Ok(Outcome { drill, ..outcome }),
        Err(error) if error.is::<Stopped>() => Err(error),
        Err(error) => Ok(Outcome::failed(drill, &error)),
    }
}

impl Experiment for Drills {
    type Stage = ();
    type Arm = Drill;
    type Point = Outcome;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "drills"
    }

    fn about(&self) -> &'static str {
        "agents killed, starved, flooded and bereft of disk, memory and readers under load: what breaks?"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Drill>>> {
        let all = Drill::value_variants().iter().copied();
        Ok(vec![Round::in_order(all); if quick { 1 } else { ROUNDS }])
    }

    fn part(&self, arm: &Drill) -> Option<String> {
        Some(name(arm))
    }

    fn stage(&self, _context: &Context) -> Result<((), Value)> {
        // this process has thousands of connections, and copies of others'
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        // for the facts of the report: every drill has hosts of its own
        let hosts = TwoHosts::build("drills")?;
        Ok(((), serde_json::to_value(hosts.settings()?)?))
    }

    fn measure(
        &self,
        this: &mut Run<'_, NoMore>,
        (): &mut (),
        turn: Turn<'_, Drill>,
    ) -> Result<Vec<Outcome>> {
        Ok(vec![run(*turn.arm, this.context)?])
    }

    fn describe(&self, outcome: &Outcome) -> String {
        let held = if outcome.held() { "held" } else { "NOT HELD" };
        let wrong = outcome.wrong.join("; ");
        format!("{}: {held}: {} {wrong}", name(outcome.drill), outcome.said)
    }

    fn summary(&self, results: &Results<Outcome, NoMore>) -> Summary {
        let points = &results.points;
        let mut traffic = Traffic::default();
        points.iter().for_each(|o| traffic.add(o.traffic));
        let mut by_drill: BTreeMap<Drill, Vec<&Outcome>> = BTreeMap::new();
        for outcome in points {
            by_drill.entry(outcome.drill).or_default().push(outcome);
        }
        let drills: BTreeMap<_, _> = by_drill
            .into_iter()
            .filter_map(|(drill, runs)| Some((drill, told(&runs)?)))
            .collect();
        let sum = |of: fn(&Outcome) -> u64| points.iter().map(of).sum();
        Summary {
            all_held: drills.values().all(|told| told.held == 1),
            drills,
            connections: traffic.connections,
            requests: traffic.requests,
            broken_connections: traffic.broken,
            wrong_replies: traffic.wrong_replies,
            settings_not_given_back: sum(|o| o.not_given_back),
            agents_died: sum(|o| o.agents_died),
            not_done: sum(|o| u64::from(o.not_done)),
        }
    }

    fn report(&self, results: &Results<Outcome, NoMore>, summary: &Summary) -> Report {
        let held = |o: &Outcome| if o.held() { "yes" } else { "**no**" };
        let table = Table::of(
            &results.points,
            &[
                ("", &|o| name(o.drill)),
                ("held", &|o| held(o).to_owned()),
                ("evidence", &|o| o.said.clone()),
                ("connections", &|o| o.traffic.connections.to_string()),
                ("requests", &|o| o.traffic.requests.to_string()),
                ("broken", &|o| o.traffic.broken.to_string()),
                ("wrong replies", &|o| o.traffic.wrong_replies.to_string()),
                ("not given back", &|o| o.not_given_back.to_string()),
                ("agents died", &|o| o.agents_died.to_string()),
                ("wrong", &|o| o.wrong.join("; ")),
            ],
        );
        let drills = &summary.drills;
        let held = drills.values().filter(|told| told.held == 1).count();
        Report::new(
            "Drills: what goes wrong, done on purpose under load",
            "Applications ask Redis for echoes over many connections as fast as they can, and check every \
             byte. Meanwhile something is done to an agent or to what it stands on.",
        )
        .heading("Summary")
        .text(format!(
            "**{held} of {}** drills held; {} runs broke off and are in no sum. Of {} connections with {} requests {} broke, {} got a wrong \
             reply; {} settings of sockets were not given back, {} agents died that must not have.",
            drills.len(),
            summary.not_done,
            summary.connections,
            summary.requests,
            summary.broken_connections,
            summary.wrong_replies,
            summary.settings_not_given_back,
            summary.agents_died
        ))
        .table(table)
        .text(
            "What agents said on standard error, and the logs of `tune`, are beside this page.",
        )
    }
}

fn told(runs: &[&Outcome]) -> Option<Told> {
    let last = runs.last()?;
    let shown = runs.iter().rfind(|o| !o.held()).unwrap_or(last);
    let mut traffic = Traffic::default();
    runs.iter().for_each(|o| traffic.add(o.traffic));
    Some(Told {
        held: u8::from(runs.iter().all(|o| o.held())),
        runs: runs.len(),
        evidence: Evidence {
            said: shown.said.clone(),
            numbers: shown.numbers.clone(),
            connections: traffic.connections,
            requests: traffic.requests,
            wrong: shown.wrong.clone(),
        },
    })
}
