//! Experiment `soak`: all agents at once for as long as wanted, under load that comes and goes, with
//! restarts, reloads and faults at random. Does anything of theirs grow?

mod agents;
mod churn;
mod faults;
mod ground;
mod lives;
mod report;
mod stage;
mod summary;
mod trend;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use batchwise_testbed::stop::Stopped;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::drills::Traffic;
use crate::engine::{Experiment, Report, Results, Round, Run, Turn};
use agents::{Has, Kind};
use stage::Stage;
use summary::Summary;

pub struct Soak;

/// Without `--for`.
const LENGTH: Duration = Duration::from_secs(600);
const QUICK: Duration = Duration::from_secs(60);
/// Results are written so often.
const SLICE: Duration = Duration::from_secs(60);
/// Between two looks at what agents have.
const LOOK: Duration = Duration::from_secs(5);

/// What agents have at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Look {
    /// Which stage it was on: one that was interrupted is built anew.
    part: u32,
    /// Since that began, s.
    at_s: f64,
    agents: BTreeMap<Kind, Has>,
    machine: Machine,
    /// All on this stage so far.
    traffic: Traffic,
}

/// What there is in the whole kernel.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Machine {
    pins: u64,
    maps: u64,
    programs: u64,
}

/// Beside the looks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// Faults are drawn from it and the number of the stage.
    seed: u64,
    /// Stages so far.
    parts: u32,
    /// How often what was done.
    faults: BTreeMap<String, u64>,
    /// Connections of random life.
    lives: u64,
    /// Agents that ended and must not have, and whatever else went wrong, in words.
    died: Vec<String>,
    wrong: Vec<String>,
}

/// What stands, and when what comes next.
pub struct Running {
    stage: Stage,
    rng: StdRng,
    began: Instant,
    next_fault: Instant,
    next_look: Instant,
}

fn slices(length: Duration) -> Vec<Round<Duration>> {
    let mut rounds = Vec::new();
    let mut left = length;
    while !left.is_zero() {
        let slice = left.min(SLICE);
        rounds.push(Round::in_order([slice]));
        left -= slice;
    }
    rounds
}

impl Experiment for Soak {
    type Stage = Running;
    type Arm = Duration;
    type Point = Look;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "soak"
    }

    fn about(&self) -> &'static str {
        "all agents at once under churn, restarts and faults, --for DURATION: does anything of theirs grow?"
    }

    fn takes_length(&self) -> bool {
        true
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Duration>>> {
        Ok(slices(if quick { QUICK } else { LENGTH }))
    }

    fn rounds_of(&self, context: &Context) -> Result<Vec<Round<Duration>>> {
        match context.length {
            Some(length) => Ok(slices(length)),
            None => self.rounds(context.quick),
        }
    }

    fn stage(&self, context: &Context) -> Result<(Running, Value)> {
        let stage = Stage::build(context)?;
        let network = serde_json::to_value(stage.settings()?)?;
        let now = Instant::now();
        let running = Running {
            stage,
            rng: StdRng::seed_from_u64(0),
            began: now,
            next_fault: now,
            next_look: now,
        };
        Ok((running, network))
    }

    fn prepare(&self, run: &mut Run<'_, More>, running: &mut Running) -> Result<()> {
        if run.more.parts == 0 {
            run.more.seed = rand::random();
        }
        running.rng = StdRng::seed_from_u64(run.more.seed.wrapping_add(run.more.parts.into()));
        run.more.parts += 1;
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        running: &mut Running,
        turn: Turn<'_, Duration>,
    ) -> Result<Vec<Look>> {
        let end = Instant::now() + *turn.arm;
        let mut looks = Vec::new();
        while Instant::now() < end {
            match running.go_on(run, end) {
                Ok(look) => looks.extend(look),
                // what was seen of this slice counts; the engine stops before the next
                Err(error) if error.is::<Stopped>() && !looks.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(looks)
    }

    fn finish(&self, run: &mut Run<'_, More>, running: &mut Running, _: &[Look]) -> Result<()> {
        let stop = &run.context.stop;
        stop.check()?;
        for agent in std::mem::take(&mut running.stage.agents) {
            let kind = agent.kind;
            if let Err(error) = agent.finish(stop) {
                run.more
                    .wrong
                    .push(format!("{kind:?} at its end: {error:#}"));
            }
        }
        Ok(())
    }

    fn describe(&self, look: &Look) -> String {
        let mib = look.agents.values().map(|has| has.rss).sum::<u64>() as f64 / f64::from(1 << 20);
        let sum = |of: fn(&Has) -> u64| look.agents.values().map(of).sum::<u64>();
        format!(
            "agents: {mib:.1} MiB, {} descriptors, {} lost events; {} pins; {} connections, {} broken",
            sum(|has| has.descriptors),
            sum(|has| has.lost_events),
            look.machine.pins,
            look.traffic.connections,
            look.traffic.broken + look.traffic.wrong_replies,
        )
    }

    fn summary(&self, results: &Results<Look, More>) -> Summary {
        Summary::of(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Look, More>, summary: &Summary) -> Report {
        report::report(&results.points, summary)
    }
}

impl Running {
    /// Sleeps until something is due, and does it.
    fn go_on(&mut self, run: &mut Run<'_, More>, end: Instant) -> Result<Option<Look>> {
        let stop = &run.context.stop;
        let due = self.next_fault.min(self.next_look).min(end);
        stop.sleep(due.saturating_duration_since(Instant::now()))?;
        self.revive(run)?;
        if Instant::now() >= self.next_fault {
            match faults::something(&mut self.stage, &mut self.rng, stop) {
                Ok(what) => *run.more.faults.entry(what).or_default() += 1,
                Err(error) if error.is::<Stopped>() => return Err(error),
                Err(error) => run.more.wrong.push(format!("{error:#}")),
            }
            self.next_fault = Instant::now() + faults::pause(&mut self.rng);
            self.revive(run)?;
        }
        if Instant::now() < self.next_look {
            return Ok(None);
        }
        self.next_look = Instant::now() + LOOK;
        for what in self.stage.churn.take_what() {
            run.note(&what);
            run.more.wrong.push(what);
        }
        match self.stage.lives.take() {
            Ok(lives) => run.more.lives += lives,
            Err(error) => run.more.wrong.push(format!("{error:#}")),
        }
        match self.look(run.more.parts) {
            Ok(look) => Ok(Some(look)),
            // an agent that does not answer in time: the next look may be better
            Err(error) => {
                run.more.wrong.push(format!("{error:#}"));
                Ok(None)
            }
        }
    }

    /// Starts agents again that have ended by themselves, which is written down.
    fn revive(&mut self, run: &mut Run<'_, More>) -> Result<()> {
        self.stage.check_servers()?;
        let ground = &self.stage.ground;
        for agent in &mut self.stage.agents {
            if let Err(error) = agent.check() {
                let what = format!("{error:#}");
                run.note(&what);
                run.more.died.push(what);
                agent.revive(ground, &run.context.stop)?;
            }
        }
        Ok(())
    }

    fn look(&self, part: u32) -> Result<Look> {
        let ground = &self.stage.ground;
        let has = |agent: &agents::Agent| Ok((agent.kind, agent.has(ground)?));
        let agents: Result<_> = self.stage.agents.iter().map(has).collect();
        Ok(Look {
            part,
            at_s: self.began.elapsed().as_secs_f64(),
            agents: agents?,
            machine: Machine {
                pins: stage::pins(),
                maps: MapInfoIter::default().count() as u64,
                programs: ProgInfoIter::default().count() as u64,
            },
            traffic: self.stage.churn.traffic(),
        })
    }
}
