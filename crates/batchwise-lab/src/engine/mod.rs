//! The engine: runs, repeats, records, resumes and draws what an experiment declares.
//!
//! An experiment is a type that implements [`Experiment`]. It says what it measures and what
//! follows from that; the engine does the rest:
//!
//! | the experiment states | the engine does |
//! |---|---|
//! | [`rounds`](Experiment::rounds): arms to measure, by round | runs them, each round in random or in the given order, shows progress |
//! | [`stage`](Experiment::stage): hosts, servers, agents | builds it once, removes it at the end or when stopped |
//! | [`measure`](Experiment::measure): one arm → points | writes `result.json` and `report.html` after each round and at an interruption |
//! | [`judge`](Experiment::judge): valid, saturated, or invalid | repeats an invalid turn up to [`ATTEMPTS`] times, then lists it as missing |
//! | [`ladder`](Experiment::ladder): which arms climb together | skips higher loads once a ladder was saturated twice |
//! | [`summary`](Experiment::summary), [`report`](Experiment::report) | draws [`Figure`]s, `lab report DIR`, [`summarise`] for replays |
//!
//! A run that was interrupted continues when the same `lab run` is given its directory again. Only
//! points that are valid (or saturated, which is a result, too) reach the summary's
//! [`Results::points`]. Ratios come from [`ratio`], which never gives a number without its interval
//! and calls fewer than [`ratio::ENOUGH_PAIRS`] pairs undecided. Arms that can be switched within
//! a run are interleaved by [`slices`]; time that the host took away is found by [`stalls`].
//!
//! ```ignore
//! pub struct Ping;
//!
//! struct Stage { redis: RedisServer, hosts: TwoHosts } // dropped in this order
//!
//! #[derive(Clone, Serialize, Deserialize)]
//! pub struct Point { round: u32, arm: Arm, mean_ns: f64, valid: bool }
//!
//! impl Experiment for Ping {
//!     type Stage = Stage;
//!     type Arm = Arm; // Copy, such as an enum, or a struct of workload, arm and load
//!     type Point = Point;
//!     type More = NoMore; // or a struct: its fields stand beside `points` in result.json
//!     type Summary = Summary;
//!
//!     fn name(&self) -> &'static str { "ping" }
//!     fn about(&self) -> &'static str { "what a ping takes" }
//!     fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
//!         Ok(Round::shuffled(if quick { 15 } else { 60 }, &Arm::ALL))
//!     }
//!     fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
//!         let (hosts, network) = two_hosts("ping")?;
//!         let redis = RedisServer::start(&hosts.server, &context.stop)?;
//!         Ok((Stage { redis, hosts }, network))
//!     }
//!     fn measure(&self, run: &mut Run<'_, NoMore>, stage: &mut Stage, turn: Turn<'_, Arm>) -> Result<Vec<Point>> {
//!         let report = load(*turn.arm).run(&run.context.command, &stage.hosts.client, &run.context.stop)?;
//!         Ok(vec![Point { round: turn.round, arm: *turn.arm, mean_ns: report.latency_ns.mean, valid: report.valid }])
//!     }
//!     fn judge(&self, point: &Point) -> Judgement {
//!         Judgement::valid_if(point.valid, "the generator was late")
//!     }
//!     fn describe(&self, point: &Point) -> String { format!("{:?}: {} ns", point.arm, point.mean_ns) }
//!     fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
//!         let pairs = pairs(&results.points, |p| (p.round, p.arm), Arm::On, Arm::Off, |p| p.mean_ns);
//!         Summary { latency: Ratio::of(&pairs), verdict: Verdict::at_most(&Ratio::of(&pairs), 1.05) }
//!     }
//!     fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
//!         Report::new("Ping", "One connection, one request in flight.")
//!             .heading("Summary")
//!             .text("On average `on` takes as long as **off**.") // `code` and **strong**
//!             .figure(Figure::ratios("ratios.svg", "on / off", "ratio of means", vec![
//!                 Strip::new("latency", BATCHWISE, &pairs(…)),
//!             ]))
//!     }
//! }
//! ```
//!
//! What a turn needs beyond its arm stays in the stage; what is measured once
//! ([`prepare`](Experiment::prepare)), or beside points, goes to [`Run::more`]. A simulator has
//! `type Stage = ()` and gives [`no_stage`]. Agents that stay for a ladder begin and end with its
//! round ([`begin`](Experiment::begin), [`end`](Experiment::end)). Points are read back from
//! `result.json`: names are enums or `String`s, and an `f64` that may be infinite or not a number
//! is marked `#[serde(deserialize_with = "engine::float")]`.

pub mod color;
mod draw;
pub mod figure;
mod page;
pub mod ratio;
mod record;
pub mod report;
mod run;
pub mod slices;
pub mod stalls;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::Context;
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::triangle::{Triangle, TriangleSpec};

pub use figure::{Axis, Figure, Strip, Unit};
pub use ratio::{Ratio, Verdict, pairs};
pub use report::{Report, Table};
pub use run::Run;

/// How often a turn is measured whose points are invalid.
pub const ATTEMPTS: u32 = 3;

/// What an experiment declares; see the module's text.
pub trait Experiment: Sync {
    /// What stands while it runs: hosts, servers, generators, agents.
    type Stage;
    /// What a turn measures.
    type Arm: Clone;
    /// What a turn gives.
    type Point: Serialize + DeserializeOwned;
    /// Fields beside `points`; [`NoMore`] if there are none.
    type More: Default + Serialize + DeserializeOwned;
    /// What follows from the points.
    type Summary: Serialize;

    /// What it is called on the command line.
    fn name(&self) -> &'static str;
    /// One line for `lab list`.
    fn about(&self) -> &'static str;
    /// Everything that is to be measured.
    fn rounds(&self, quick: bool) -> Result<Vec<Round<Self::Arm>>>;
    /// Builds the stage; gives the settings of its network (`Value::Null` if there is none).
    fn stage(&self, context: &Context) -> Result<(Self::Stage, Value)>;
    /// Measures one turn.
    fn measure(
        &self,
        run: &mut Run<'_, Self::More>,
        stage: &mut Self::Stage,
        turn: Turn<'_, Self::Arm>,
    ) -> Result<Vec<Self::Point>>;
    /// One line about a point, for progress.
    fn describe(&self, point: &Self::Point) -> String;
    /// What follows.
    fn summary(&self, results: &Results<Self::Point, Self::More>) -> Self::Summary;
    /// How it is shown.
    fn report(&self, results: &Results<Self::Point, Self::More>, summary: &Self::Summary)
    -> Report;

    /// Whether it shows by itself how far it has come.
    fn shows_progress(&self) -> bool {
        false
    }
    /// What is printed last, once the results are written; also when the run was stopped.
    fn closing_words(
        &self,
        _results: &Results<Self::Point, Self::More>,
        _summary: &Self::Summary,
    ) -> Option<String> {
        None
    }
    /// Whether a point counts.
    fn judge(&self, _point: &Self::Point) -> Judgement {
        Judgement::Valid
    }
    /// The ladder that an arm is a step of; its name need be unique within a round only.
    fn ladder(&self, _arm: &Self::Arm) -> Option<String> {
        None
    }
    /// Before the first round; again when a run is resumed.
    fn prepare(&self, _run: &mut Run<'_, Self::More>, _stage: &mut Self::Stage) -> Result<()> {
        Ok(())
    }
    /// Before the turns of a round.
    fn begin(
        &self,
        _run: &mut Run<'_, Self::More>,
        _stage: &mut Self::Stage,
        _round: u32,
        _arms: &[Self::Arm],
    ) -> Result<()> {
        Ok(())
    }
    /// After the turns of a round.
    fn end(
        &self,
        _run: &mut Run<'_, Self::More>,
        _stage: &mut Self::Stage,
        _round: u32,
    ) -> Result<()> {
        Ok(())
    }
    /// After the last round; an error says that what was measured is not an answer.
    fn finish(
        &self,
        _run: &mut Run<'_, Self::More>,
        _stage: &mut Self::Stage,
        _points: &[Self::Point],
    ) -> Result<()> {
        Ok(())
    }
}

/// Arms that are measured one after another and compared with each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Round<A> {
    /// What is measured.
    pub arms: Vec<A>,
    /// Whether in random order.
    pub shuffled: bool,
}

impl<A: Clone> Round<A> {
    /// So many rounds of the same arms, each in an order of its own.
    pub fn shuffled(rounds: u32, arms: &[A]) -> Vec<Self> {
        let arms = arms.to_vec();
        vec![
            Self {
                arms,
                shuffled: true
            };
            rounds as usize
        ]
    }

    /// One round in this order.
    pub fn in_order(arms: impl IntoIterator<Item = A>) -> Self {
        Self {
            arms: arms.into_iter().collect(),
            shuffled: false,
        }
    }

    /// Indices of the arms in the order in which they are measured.
    fn order(&self, rng: &mut StdRng) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.arms.len()).collect();
        if self.shuffled {
            order.shuffle(rng);
        }
        order
    }
}

/// What is to be measured now.
#[derive(Debug)]
pub struct Turn<'a, A> {
    /// Index of its round.
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    /// 0, or 1 for the second measurement of a load that could not be carried.
    pub attempt: u32,
    /// What is measured.
    pub arm: &'a A,
}

impl<A> Clone for Turn<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Turn<'_, A> {}

/// Whether a point counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It does.
    Valid,
    /// The load was more than could be carried. Counts, and ends its ladder when it is confirmed.
    Saturated,
    /// It decides nothing, for this reason.
    Invalid(String),
}

impl Judgement {
    /// Valid, or invalid for this reason.
    pub fn valid_if(valid: bool, why_not: impl Into<String>) -> Self {
        match valid {
            true => Self::Valid,
            false => Self::Invalid(why_not.into()),
        }
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Results<P, M> {
    /// Whether it is a quick run.
    pub quick: bool,
    /// Points that count.
    pub points: Vec<P>,
    /// Points that were invalid in every attempt; they decide nothing.
    pub invalid: Vec<P>,
    /// Fields beside the points.
    pub more: M,
}

/// Nothing beside the points.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NoMore {}

/// An experiment of which the list in the crate's root knows only the name.
impl<E: Experiment> crate::Experiment for E {
    fn name(&self) -> &'static str {
        Experiment::name(self)
    }

    fn about(&self) -> &'static str {
        Experiment::about(self)
    }

    fn run(&self, context: &Context) -> Result<()> {
        run::run(self, context)
    }

    fn summarise(&self, result: &Value) -> Result<Value> {
        let record = record::Record::parse(self, result)?;
        Ok(serde_json::to_value(self.summary(&record.results))?)
    }

    fn redraw(&self, context: &Context) -> Result<()> {
        run::redraw(self, context)
    }
}

/// The summary of the experiment `name`, computed anew from the points of a `result.json`.
pub fn summarise(name: &str, result: &Value) -> Result<Value> {
    crate::find(name)?.summarise(result)
}

/// Two hosts joined by a link, and their network's settings.
pub fn two_hosts(tag: &str) -> Result<(TwoHosts, Value)> {
    let hosts = TwoHosts::build(tag)?;
    let network = serde_json::to_value(hosts.settings()?)?;
    Ok((hosts, network))
}

/// A triangle whose hosts receive on their own CPUs, and its network's settings.
pub fn triangle(tag: &str, spec: &TriangleSpec) -> Result<(Triangle, Value)> {
    let triangle = Triangle::build(tag, spec)?;
    triangle.receive_on_own_cpus()?;
    let network = serde_json::to_value(triangle.settings()?)?;
    Ok((triangle, network))
}

/// The stage of a simulator.
#[allow(clippy::unnecessary_wraps)] // what `Experiment::stage` gives
pub fn no_stage() -> Result<((), Value)> {
    Ok(((), Value::Null))
}

/// Reads a number that JSON has no way to write: null is infinite.
pub fn float<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests;
