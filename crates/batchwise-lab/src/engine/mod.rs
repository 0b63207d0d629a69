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
//! `tune_cost/` is a short one to begin from. What a turn needs beyond its arm stays in the stage; what is measured once
//! ([`prepare`](Experiment::prepare)), or beside points, goes to [`Run::more`]. A simulator has
//! `type Stage = ()`, gives [`no_stage`], and says that it [`simulates`](Experiment::simulates). Agents that stay for a ladder begin and end with its
//! round ([`begin`](Experiment::begin), [`end`](Experiment::end)). Points are read back from
//! `result.json`: names are enums or `String`s, and an `f64` that may be infinite or not a number
//! is marked `#[serde(deserialize_with = "crate::engine::float")]`. Numbers are written by [`text`].

pub mod color;
pub(crate) mod draw;
mod experiment;
pub mod figure;
pub(crate) mod page;
pub mod ratio;
mod record;
pub mod report;
mod run;
pub mod slices;
pub mod stalls;
pub mod text;

use anyhow::Result;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::triangle::{Triangle, TriangleSpec};

pub use experiment::{
    ATTEMPTS, Experiment, Judgement, NoMore, Results, Round, Run, SATURATED_ATTEMPTS, Turn,
};
pub use figure::{Axis, Figure, Strip, Unit};
pub use ratio::{Ratio, Verdict, pairs};
pub use report::{Report, Table};

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
