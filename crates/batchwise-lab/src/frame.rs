//! What all experiments have around their measuring: the hosts, results that are written while
//! they grow, and the facts that every report states.

use anyhow::Result;
use batchwise_testbed::topology::{NetworkSettings, TwoHosts};
use batchwise_testbed::triangle::{Triangle, TriangleSpec};
use maud::Markup;
use serde::Serialize;

use crate::Context;
use crate::machine::Machine;
use crate::report::Page;

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

/// What can be written before everything is measured.
pub trait Measured: Default {
    /// Whether there is nothing yet.
    fn is_empty(&self) -> bool;
    /// Writes results, plots and report; `complete` unless more was planned.
    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()>;
}

/// Nothing besides points and summary.
#[derive(Serialize)]
pub struct NoMore {}

impl<'a> Frame<'a> {
    /// Builds the hosts and lets `measure` measure, which writes what it has from time to time;
    /// what there is at the end, however it ends, is written, too.
    pub fn run<M: Measured>(
        name: &'static str,
        context: &'a Context,
        measure: impl FnOnce(&Frame<'a>, &TwoHosts, &mut M) -> Result<()>,
    ) -> Result<()> {
        let build = || {
            let hosts = TwoHosts::build(name)?;
            let settings = hosts.settings()?;
            Ok((hosts, settings))
        };
        Self::run_on(name, context, build, |frame, hosts, measured| {
            measure(frame, hosts, measured)
        })
    }

    /// The same on other hosts than [`TwoHosts`].
    pub fn run_on<H, M: Measured>(
        name: &'static str,
        context: &'a Context,
        build: impl FnOnce() -> Result<(H, NetworkSettings)>,
        measure: impl FnOnce(&Frame<'a>, &mut H, &mut M) -> Result<()>,
    ) -> Result<()> {
        let machine = context.machine()?;
        let (mut hosts, network) = build()?;
        let frame = Self {
            name,
            context,
            machine,
            network,
        };
        let mut measured = M::default();
        let outcome = measure(&frame, &mut hosts, &mut measured);
        if outcome.is_ok() || !measured.is_empty() {
            measured.write(&frame, outcome.is_ok())?;
        }
        outcome
    }

    /// The same on a [`Triangle`] whose hosts receive on their own CPUs.
    pub fn run_on_triangle<M: Measured>(
        name: &'static str,
        context: &'a Context,
        spec: &TriangleSpec,
        measure: impl FnOnce(&Frame<'a>, &mut Triangle, &mut M) -> Result<()>,
    ) -> Result<()> {
        let build = || {
            let triangle = Triangle::build(name, spec)?;
            triangle.receive_on_own_cpus()?;
            let settings = triangle.settings()?;
            Ok((triangle, settings))
        };
        Self::run_on(name, context, build, measure)
    }

    /// Writes `result.json`; the fields of `more` stand beside `points` and `summary`.
    pub fn write_result<P: Serialize, S: Serialize, M: Serialize>(
        &self,
        complete: bool,
        points: &[P],
        more: &M,
        summary: &S,
    ) -> Result<()> {
        self.context.output.write_result(&Results {
            experiment: self.name,
            machine: &self.machine,
            network: &self.network,
            complete,
            points,
            more,
            summary,
        })
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
