//! What an experiment declares, and what it is given while it measures.

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::report::Report;
use crate::Context;
use crate::output::Progress;

/// How often a turn is measured whose points are invalid.
pub const ATTEMPTS: u32 = 3;
/// How often a load that could not be carried is measured: twice tells a collapse from a disturbance.
pub const SATURATED_ATTEMPTS: u32 = 2;

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
    /// The same of a run of the context's length, where it takes one.
    fn rounds_of(&self, context: &Context) -> Result<Vec<Round<Self::Arm>>> {
        self.rounds(context.quick)
    }
    /// Builds the stage; gives the settings of its network (`Value::Null` if there is none).
    fn stage(&self, context: &Context) -> Result<(Self::Stage, Value)>;
    fn measure(
        &self,
        run: &mut Run<'_, Self::More>,
        stage: &mut Self::Stage,
        turn: Turn<'_, Self::Arm>,
    ) -> Result<Vec<Self::Point>>;
    /// One line about a point, for progress.
    fn describe(&self, point: &Self::Point) -> String;
    fn summary(&self, results: &Results<Self::Point, Self::More>) -> Self::Summary;
    fn report(&self, results: &Results<Self::Point, Self::More>, summary: &Self::Summary)
    -> Report;

    /// Whether it only calculates: it needs neither root nor the other commands.
    fn simulates(&self) -> bool {
        false
    }
    /// Whether it lasts as long as it is told.
    fn takes_length(&self) -> bool {
        false
    }
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
    fn judge(&self, _point: &Self::Point) -> Judgement {
        Judgement::Valid
    }
    /// What an arm is a part of that can be run without the rest.
    fn part(&self, _arm: &Self::Arm) -> Option<String> {
        None
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
        _arms: &[Self::Arm],
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
    pub arms: Vec<A>,
    pub shuffled: bool,
}

impl<A: Clone> Round<A> {
    /// So many rounds of the same arms, each in an order of its own.
    pub fn shuffled(rounds: u32, arms: &[A]) -> Vec<Self> {
        let (arms, shuffled) = (arms.to_vec(), true);
        vec![Self { arms, shuffled }; rounds as usize]
    }

    /// One round in this order.
    pub fn in_order(arms: impl IntoIterator<Item = A>) -> Self {
        Self {
            arms: arms.into_iter().collect(),
            shuffled: false,
        }
    }
}

#[derive(Debug)]
pub struct Turn<'a, A> {
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    /// 0, or 1 for the second measurement of a load that could not be carried.
    pub attempt: u32,
    pub arm: &'a A,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
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

#[derive(Clone, Debug)]
pub struct Results<P, M> {
    pub quick: bool,
    /// Points that count.
    pub points: Vec<P>,
    /// Points that were invalid in every attempt; they decide nothing.
    pub invalid: Vec<P>,
    /// Fields beside the points.
    pub more: M,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NoMore {}

/// What an experiment may use while it measures.
pub struct Run<'a, M> {
    /// The command, the output's directory, the flag that stops, whether it is a quick run.
    pub context: &'a Context,
    /// Fields beside the points.
    pub more: &'a mut M,
    pub(super) progress: &'a Progress,
}

impl<M> Run<'_, M> {
    /// Something besides the turns was done.
    pub fn note(&self, what: &str) {
        self.progress.note(what);
    }
}
