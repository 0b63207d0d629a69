//! The lab: experiments on hosts made of network namespaces (`batchwise-testbed`) that redo the
//! papers' figures. This file owns the list of experiments and how one is started.

pub mod accuracy;
pub mod arm;
pub mod balance;
pub mod balancer;
pub mod cdf;
pub mod client_cost;
pub mod decisions;
pub mod demo;
pub mod frame;
pub mod ladder;
pub mod machine;
pub mod output;
pub mod overhead;
pub mod packet_cost;
pub mod passive;
pub mod plot;
pub mod redis_nagle;
pub mod regret;
pub mod report;
pub mod rounds;
pub mod shift;
pub mod stats;
pub mod timeplot;
pub mod truth;
pub mod tune_cost;
pub mod tuner;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use batchwise_testbed::commands;
use batchwise_testbed::stop::Stop;

use crate::machine::Machine;
use crate::output::Output;

/// What one run was asked to do.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Fewer points, shorter ones.
    pub quick: bool,
    /// Where results go; `out/<experiment>` when `None`.
    pub out: Option<PathBuf>,
}

/// What an experiment works with.
pub struct Context {
    /// Fewer points, shorter ones.
    pub quick: bool,
    /// The `batchwise` command that provides `watch` and `load`.
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
        format!(
            "batchwise lab run {name}{quick} --out {}",
            self.output.dir().display()
        )
    }

    /// Facts about this machine at this moment.
    pub fn machine(&self) -> Result<Machine> {
        Machine::probe()
    }
}

/// Something the lab can measure.
pub trait Experiment: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;
    /// One line for `lab list`.
    fn about(&self) -> &'static str;
    /// Measures, and writes `result.json`, plots and `report.html` into the context's output.
    fn run(&self, context: &Context) -> Result<()>;
}

/// Every experiment, in the order `lab list` shows them.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &[
        &demo::Demo,
        &redis_nagle::RedisNagle,
        &client_cost::ClientCost,
        &shift::Shift,
        &tune_cost::TuneCost,
        &accuracy::Accuracy,
        &overhead::Overhead,
        &regret::Regret,
        &passive::accuracy::PassiveAccuracy,
        &passive::robustness::PassiveRobustness,
        &passive::transports::PassiveTransports,
        &passive::heuristics::PassiveHeuristics,
        &passive::cost::PassiveCost,
        &passive::modes::PassiveModes,
        &balance::policies::BalancePolicies,
        &balance::tail::BalanceTail,
        &balance::faults::BalanceFaults,
        &balance::cost::BalanceCost,
    ]
}

/// Runs the experiment called `name`; gives the directory that holds its results.
pub fn run(name: &str, options: &RunOptions) -> Result<PathBuf> {
    let Some(experiment) = experiments().iter().find(|e| e.name() == name) else {
        let known: Vec<_> = experiments().iter().map(|e| e.name()).collect();
        bail!(
            "there is no experiment called {name:?}; there are: {}",
            known.join(", ")
        );
    };
    if !nix::unistd::geteuid().is_root() {
        bail!("the lab makes network namespaces and cgroups, which needs root: run it with sudo");
    }
    let command = commands::find("batchwise")?;
    // `batchwise load` needs it: better to miss it now than in the middle of a run
    commands::find("batchwise-load")?;
    let dir = options
        .out
        .clone()
        .unwrap_or_else(|| Path::new("out").join(name));
    let context = Context {
        quick: options.quick,
        command,
        output: Output::create(&dir)?,
        stop: Stop::install()?,
    };
    experiment.run(&context)?;
    Ok(dir)
}
