//! Running a declared experiment: turns, repeats, ladders, progress, writing, resuming.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;

use super::experiment::{
    ATTEMPTS, Experiment, Judgement, Results, Round, Run, SATURATED_ATTEMPTS, Turn,
};
use super::page;
use super::record::{Progressed, Record, Refused};
use crate::machine::Machine;
use crate::output::Progress;
use crate::{Context, say};

type RecordOf<E> = Record<<E as Experiment>::Point, <E as Experiment>::More>;

/// An experiment of which the list in the crate's root knows only the name.
impl<E: Experiment> crate::Experiment for E {
    fn name(&self) -> &'static str {
        Experiment::name(self)
    }

    fn about(&self) -> &'static str {
        Experiment::about(self)
    }

    fn simulates(&self) -> bool {
        Experiment::simulates(self)
    }

    fn takes_length(&self) -> bool {
        Experiment::takes_length(self)
    }

    /// Measures, and writes what there is after each round and at the end, however that comes.
    fn run(&self, context: &Context) -> Result<()> {
        let rounds = parts(self, self.rounds_of(context)?, &context.only)?;
        let arms = |rounds: &[Round<E::Arm>]| rounds.iter().map(|round| round.arms.len()).sum();
        let turns = arms(&rounds);
        let machine = serde_json::to_value(Machine::probe()?)?;
        let mut record = resumed(self, context, turns, &machine);
        record.machine = machine;
        let mut progress = Progress::new(turns, self.shows_progress());
        if record.progressed.resumed > 0 {
            let over: usize = arms(&rounds[..record.progressed.round.min(rounds.len())]);
            let done = over + record.progressed.done.len();
            progress.note(&format!(
                "continues after {done} of {turns} turns; remove result.json to begin anew"
            ));
            progress.skip(done);
        }
        let (mut stage, network) = self.stage(context)?;
        record.network = network;
        let mut running = Running {
            experiment: self,
            context,
            record,
            progress,
        };
        let outcome = running.measure(&mut stage, &rounds);
        drop(stage);
        running.record.complete = outcome.is_ok();
        if outcome.is_ok() || !running.record.results.points.is_empty() {
            write(self, context, &running.record)?;
            let results = &running.record.results;
            if let Some(words) = self.closing_words(results, &self.summary(results)) {
                say(&words);
                if outcome.is_err() {
                    say(&context.output.dir().join("report.html").to_string_lossy());
                }
            }
        }
        outcome
    }

    fn summarise(&self, result: &Value) -> Result<Value> {
        let record = Record::parse(self, result)?;
        Ok(serde_json::to_value(self.summary(&record.results))?)
    }

    fn redraw(&self, context: &Context) -> Result<()> {
        let path = context.output.dir().join("result.json");
        let record = Record::parse(self, &read(&path)?)
            .with_context(|| format!("reading {}", path.display()))?;
        let summary = self.summary(&record.results);
        let report = self.report(&record.results, &summary);
        page::write(Experiment::name(self), context, &record, &report)
    }
}

/// What is left of a plan where only some parts of it are wanted.
fn parts<E: Experiment>(
    experiment: &E,
    mut rounds: Vec<Round<E::Arm>>,
    only: &[String],
) -> Result<Vec<Round<E::Arm>>> {
    let arms = rounds.iter().flat_map(|round| &round.arms);
    let all: BTreeSet<_> = arms.filter_map(|arm| experiment.part(arm)).collect();
    if let Some(unknown) = only.iter().find(|name| !all.contains(*name)) {
        ensure!(!all.is_empty(), "it has no parts, so nothing for --only");
        let all = Vec::from_iter(all).join("; ");
        bail!("it has no part {unknown:?}; it has: {all}");
    }
    if !only.is_empty() {
        let wanted = |arm: &E::Arm| {
            experiment
                .part(arm)
                .is_some_and(|part| only.contains(&part))
        };
        for round in &mut rounds {
            round.arms.retain(wanted);
        }
        rounds.retain(|round| !round.arms.is_empty());
    }
    Ok(rounds)
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path)?;
    Ok(serde_json::from_str(&text)?)
}

/// What an interrupted run of the same plan left in the output's directory, or nothing yet.
fn resumed<E: Experiment>(
    experiment: &E,
    context: &Context,
    turns: usize,
    machine: &Value,
) -> RecordOf<E> {
    let quick = context.quick;
    let path = context.output.dir().join("result.json");
    let left = read(&path).and_then(|value| Record::parse(experiment, &value));
    match left {
        Ok(mut left) if left.continues(context, turns, machine) => {
            left.progressed.resumed += 1;
            left
        }
        _ => Record {
            machine: Value::Null,
            network: Value::Null,
            complete: false,
            progressed: Progressed {
                quick,
                only: context.only.clone(),
                turns,
                ..Progressed::default()
            },
            results: Results {
                quick,
                points: Vec::new(),
                invalid: Vec::new(),
                more: E::More::default(),
            },
        },
    }
}

fn write<E: Experiment>(experiment: &E, context: &Context, record: &RecordOf<E>) -> Result<()> {
    let summary = experiment.summary(&record.results);
    let text = record.write(experiment.name(), &summary)?;
    context.output.write("result.json", &text)?;
    let report = experiment.report(&record.results, &summary);
    page::write(experiment.name(), context, record, &report)
}

struct Running<'a, E: Experiment> {
    experiment: &'a E,
    context: &'a Context,
    record: RecordOf<E>,
    progress: Progress,
}

impl<E: Experiment> Running<'_, E> {
    fn measure(&mut self, stage: &mut E::Stage, rounds: &[Round<E::Arm>]) -> Result<()> {
        let experiment = self.experiment;
        experiment.prepare(&mut self.handle(), stage)?;
        let mut rng = StdRng::seed_from_u64(rand::rng().random());
        while let Some(round) = rounds.get(self.record.progressed.round) {
            self.round(stage, round, &mut rng)?;
            let progressed = &mut self.record.progressed;
            progressed.round += 1;
            progressed.done.clear();
            progressed.ended.clear();
            if progressed.round < rounds.len() {
                write(experiment, self.context, &self.record)?;
            }
        }
        let (mut run, points) = self.split();
        experiment.finish(&mut run, stage, points)
    }

    fn handle(&mut self) -> Run<'_, E::More> {
        self.split().0
    }

    fn split(&mut self) -> (Run<'_, E::More>, &[E::Point]) {
        let run = Run {
            context: self.context,
            more: &mut self.record.results.more,
            progress: &self.progress,
        };
        (run, &self.record.results.points)
    }

    fn round(
        &mut self,
        stage: &mut E::Stage,
        round: &Round<E::Arm>,
        rng: &mut StdRng,
    ) -> Result<()> {
        let experiment = self.experiment;
        let number = u32::try_from(self.record.progressed.round)?;
        let done = self.record.progressed.done.clone();
        let mut order: Vec<_> = (0..round.arms.len()).collect();
        if round.shuffled {
            order.shuffle(rng);
        }
        order.retain(|index| !done.contains(index));
        experiment.begin(&mut self.handle(), stage, number, &round.arms)?;
        for (position, index) in (done.len()..).zip(order) {
            self.context.stop.check()?;
            let arm = &round.arms[index];
            let ladder = experiment.ladder(arm);
            let ended = |name: &String| self.record.progressed.ended.contains(name);
            if ladder.as_ref().is_some_and(ended) {
                self.progress.skip(1);
            } else {
                let saturated = self.turn(stage, (number, position), arm)?;
                let ended = &mut self.record.progressed.ended;
                ended.extend(ladder.filter(|_| saturated));
            }
            self.record.progressed.done.push(index);
        }
        experiment.end(&mut self.handle(), stage, number, &round.arms)
    }

    /// Measures a turn until its points count; whether it is saturated for good.
    fn turn(
        &mut self,
        stage: &mut E::Stage,
        (round, position): (u32, usize),
        arm: &E::Arm,
    ) -> Result<bool> {
        let experiment = self.experiment;
        let (mut saturated, mut refused) = (0, 0);
        loop {
            let turn = Turn {
                round,
                position,
                attempt: saturated,
                arm,
            };
            let points = experiment.measure(&mut self.handle(), stage, turn)?;
            let describe = |point| experiment.describe(point);
            let text = points.last().map_or_else(|| "done".into(), describe);
            let judgements: Vec<_> = points.iter().map(|p| experiment.judge(p)).collect();
            let why = judgements.iter().find_map(|judged| match judged {
                Judgement::Invalid(why) => Some(why.clone()),
                _ => None,
            });
            if let Some(why) = why {
                refused += 1;
                self.progress
                    .note(&format!("{text}; does not count: {why}"));
                let refusal = Refused { what: text, why };
                if refused < ATTEMPTS {
                    self.record.progressed.repeated.push(refusal);
                    continue;
                }
                self.progress.step("missing: invalid in every attempt");
                self.record.progressed.missing.push(refusal);
                self.record.results.invalid.extend(points);
                return Ok(false);
            }
            self.record.results.points.extend(points);
            if judgements.contains(&Judgement::Saturated) {
                saturated += 1;
                if saturated < SATURATED_ATTEMPTS {
                    self.progress.note(&text);
                    continue;
                }
            }
            self.progress.step(&text);
            return Ok(saturated == SATURATED_ATTEMPTS);
        }
    }
}
