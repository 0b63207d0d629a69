//! What all experiments have around their measuring: the hosts, results that are written while
//! they grow, and the facts that every report states.

use anyhow::Result;
use maud::Markup;
use serde::Serialize;

use crate::Context;
use crate::machine::Machine;
use crate::report::Page;
use crate::topology::{NetworkSettings, TwoHosts};

/// Where an experiment runs.
pub struct Frame<'a> {
    /// Name of the experiment.
    pub name: &'static str,
    /// What it was asked for.
    pub context: &'a Context,
    /// The machine.
    pub machine: Machine,
    /// The network between its hosts.
    pub network: NetworkSettings,
}

#[derive(Serialize)]
struct Results<'a, P, S, M> {
    experiment: &'static str,
    machine: &'a Machine,
    network: &'a NetworkSettings,
    complete: bool,
    points: &'a [P],
    #[serde(flatten)]
    more: &'a M,
    summary: &'a S,
}

/// What was measured so far: it can be written before it is all.
pub trait Measured: Default {
    /// A measured point.
    type Point: Serialize;
    /// What the points say.
    type Summary: Serialize;
    /// All points.
    fn points(&self) -> &[Self::Point];
    /// What they say.
    fn summary(&self) -> Self::Summary;
    /// Fields that stand beside points and summary in `result.json`.
    fn more(&self) -> impl Serialize {
        NoMore {}
    }
    /// Writes plots and report.
    fn write_figures(
        &self,
        frame: &Frame<'_>,
        complete: bool,
        summary: &Self::Summary,
    ) -> Result<()>;
    /// Writes results, plots and report; `complete` unless more was planned.
    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = self.summary();
        frame.context.output.write_result(&Results {
            experiment: frame.name,
            machine: &frame.machine,
            network: &frame.network,
            complete,
            points: self.points(),
            more: &self.more(),
            summary: &summary,
        })?;
        self.write_figures(frame, complete, &summary)
    }
}

/// Nothing besides points and summary.
#[derive(Serialize)]
struct NoMore {}

impl<'a> Frame<'a> {
    /// Builds the hosts and lets `measure` measure, which writes what it has from time to time;
    /// what there is at the end, however it ends, is written, too.
    pub fn run<M: Measured>(
        name: &'static str,
        context: &'a Context,
        measure: impl FnOnce(&Frame<'a>, &TwoHosts, &mut M) -> Result<()>,
    ) -> Result<()> {
        let machine = context.machine()?;
        let hosts = TwoHosts::build(name)?;
        let frame = Self {
            name,
            context,
            machine,
            network: hosts.settings()?,
        };
        let mut measured = M::default();
        let outcome = measure(&frame, &hosts, &mut measured);
        if outcome.is_ok() || !measured.points().is_empty() {
            measured.write(&frame, outcome.is_ok())?;
        }
        outcome
    }

    /// Writes `report.html`.
    pub fn write_report(
        &self,
        complete: bool,
        title: &str,
        lead: &str,
        body: &Markup,
    ) -> Result<()> {
        let page = Page {
            title,
            lead,
            machine: &self.machine,
            facts: self.network.facts(),
            complete,
            reproduce: &self.context.reproduce(self.name),
        };
        self.context.output.write("report.html", &page.html(body))
    }
}
