//! The lab: experiments on hosts made of network namespaces (`batchwise-testbed`) that redo the
//! papers' figures. This file owns the list of experiments and how one is started.

mod accuracy;
mod applications;
mod arm;
pub mod balance;
mod budget;
mod burst;
mod busy;
pub mod cli;
mod client_cost;
mod decisions;
mod demo;
mod drills;
mod engine;
mod fleet;
mod h2load;
mod headroom;
mod held;
mod hook_cost;
mod hops;
mod ladder;
mod machine;
mod multiplexed;
mod others;
mod output;
mod overhead;
mod packet_cost;
mod passive;
mod profile;
mod real_client;
mod redis;
mod redis_nagle;
pub mod regret;
mod shift;
mod soak;
mod stats;
mod tails;
mod truth;
mod tune_cost;
mod tuner;
mod window;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::commands;
use batchwise_testbed::stop::Stop;
use humantime::format_duration;
use serde::Deserialize;
use serde_json::Value;

use crate::output::Output;

pub use engine::summarise;

/// What an experiment works with.
pub struct Context {
    /// Fewer points, shorter ones.
    pub quick: bool,
    /// Only these parts of the experiment; empty: all.
    pub only: Vec<String>,
    /// How long, if the experiment takes that.
    pub length: Option<Duration>,
    /// The `batchwise` command; empty in simulations. It starts `batchwise-load` from beside it.
    pub command: PathBuf,
    /// Where results go.
    pub output: Output,
    /// Set by Ctrl-C and SIGTERM.
    pub stop: Stop,
}

impl Context {
    /// The command line that repeats this run.
    pub fn reproduce(&self, name: &str) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        let only = |part: &String| format!(" --only \"{part}\"");
        let only: String = self.only.iter().map(only).collect();
        let length = self.length.map(|length| {
            format!(
                " --for {}",
                format_duration(length).to_string().replace(' ', "")
            )
        });
        let length = length.unwrap_or_default();
        format!(
            "batchwise lab run {name}{quick}{only}{length} --out {}",
            self.output.dir().display()
        )
    }
}

/// Says it on standard output. Where nobody reads that any more, a run still goes on to its results.
pub fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Something the lab can measure.
pub trait Experiment: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;
    /// One line for `lab list`.
    fn about(&self) -> &'static str;
    /// Whether it only calculates: it needs neither root nor the other commands.
    fn simulates(&self) -> bool;
    /// Whether it lasts as long as it is told.
    fn takes_length(&self) -> bool;
    /// Measures, and writes `result.json`, plots and `report.html` into the context's output.
    fn run(&self, context: &Context) -> Result<()>;
    /// The summary that follows from the points of a `result.json`.
    fn summarise(&self, result: &Value) -> Result<Value>;
    /// Writes plots and report again, from the `result.json` in the context's output.
    fn redraw(&self, context: &Context) -> Result<()>;
}

/// Every experiment, in the order `lab list` shows them.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &[
        &demo::Demo,
        &redis_nagle::RedisNagle,
        &held::Held,
        &hops::Hops,
        &fleet::FleetExperiment,
        &multiplexed::Multiplexed,
        &headroom::Headroom,
        &client_cost::ClientCost,
        &shift::Shift,
        &tune_cost::TuneCost,
        &accuracy::Accuracy,
        &tails::Tails,
        &applications::Applications,
        &overhead::Overhead,
        &hook_cost::HookCost,
        &budget::Budget,
        &others::Others,
        &regret::Regret,
        &burst::BurstSim,
        &burst::tc_cost::BurstTcCost,
        &burst::live::incast::BurstIncast,
        &burst::live::mixed::BurstMixed,
        &burst::live::jumbo::BurstJumbo,
        &burst::live::abuse::BurstAbuse,
        &passive::accuracy::ACCURACY,
        &passive::robustness::ROBUSTNESS,
        &passive::transports::TRANSPORTS,
        &passive::heuristics::PassiveHeuristics,
        &passive::cost::PassiveCost,
        &passive::modes::PassiveModes,
        &window::latency::WindowLatency,
        &window::cost::WindowCost,
        &window::priority::WindowPriority,
        &window::lives::WindowLives,
        &profile::ProfilePatterns,
        &balance::policies::BalancePolicies,
        &balance::tail::BalanceTail,
        &balance::faults::BalanceFaults,
        &balance::cost::BalanceCost,
        &drills::Drills,
        &soak::Soak,
    ]
}

/// The experiment called `name`.
pub fn find(name: &str) -> Result<&'static dyn Experiment> {
    let found = experiments().iter().find(|e| e.name() == name);
    found.copied().with_context(|| {
        let known: Vec<_> = experiments().iter().map(|e| e.name()).collect();
        let known = known.join(", ");
        format!("there is no experiment called {name:?}; there are: {known}")
    })
}

/// Draws the report of the results in `dir` again.
pub fn report(dir: &Path) -> Result<()> {
    let path = dir.join("result.json");
    if !path.is_file() {
        bail!(
            "{} has no result.json; `lab run NAME --out DIR` writes one",
            dir.display()
        );
    }
    let reading = || format!("reading {}", path.display());
    let text = std::fs::read_to_string(&path).with_context(reading)?;
    let result: Value = serde_json::from_str(&text).with_context(reading)?;
    let name = result["experiment"].as_str().unwrap_or_default();
    let context = Context {
        quick: result["run"]["quick"].as_bool().unwrap_or_default(),
        only: Vec::deserialize(&result["run"]["only"]).unwrap_or_default(),
        length: None,
        command: PathBuf::new(),
        output: Output::create(dir)?,
        stop: Stop::default(),
    };
    find(name)?.redraw(&context)
}

/// Runs the experiment called `name`; gives the directory that holds its results.
///
/// These are in `out`, or else in `out/<name>`. A `quick` run has fewer points and shorter ones; `only`
/// names the parts of it that are run, all if it is empty; `length` says how long, if it takes that.
pub fn run(
    name: &str,
    quick: bool,
    only: Vec<String>,
    length: Option<Duration>,
    out: Option<PathBuf>,
) -> Result<PathBuf> {
    let experiment = find(name)?;
    if length.is_some() && !experiment.takes_length() {
        bail!("{name} lasts as long as it takes: --for is for `soak`");
    }
    let mut command = PathBuf::new();
    if !experiment.simulates() {
        if !nix::unistd::geteuid().is_root() {
            bail!("it makes network namespaces and cgroups, which needs root: run it with sudo");
        }
        command = commands::find("batchwise")?;
        // `batchwise load` needs it: better to miss it now than in the middle of a run
        commands::find("batchwise-load")?;
    }
    let dir = out.unwrap_or_else(|| Path::new("out").join(name));
    let context = Context {
        quick,
        only,
        length,
        command,
        output: Output::create(&dir)?,
        stop: Stop::install()?,
    };
    experiment.run(&context)?;
    Ok(dir)
}
