//! Experiment `passive-transports`: memcached, and QUIC with small and with large responses (the
//! paper's Figures 9 and 10). QUIC's acknowledgments cannot be told from data by their headers: an
//! oracle, which knows that the requests here are larger, shows what they cost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::triangle::{Triangle, TriangleSpec};
use maud::html;
use plotters::style::RGBColor;
use serde::Serialize;

use super::figures::{OURS, error_table, estimates, latencies, point_table, truths};
use super::observer::PassiveSpec;
use super::trial::{Outcome, Trial};
use super::workload::{Server, Service, Workload};
use crate::frame::{Frame, Measured, NoMore};
use crate::output::Progress;
use crate::plot::BATCHWISE;
use crate::report::figure;
use crate::truth::{Errors, Paired};
use crate::{Context, Experiment};

/// Length of an epoch.
const EPOCH: Duration = Duration::from_secs(1);
/// Bytes of an Ethernet frame, at least, that the oracle takes to carry a request: the lab's
/// requests have headers of more than a hundred bytes, acknowledgments have none.
const REQUEST_FRAME: u32 = 150;
const ORACLE: RGBColor = RGBColor(32, 96, 168);

/// Other transports and applications.
pub struct PassiveTransports;

#[derive(Default)]
struct Runs(Vec<Run>);

struct Run {
    outcome: Outcome,
    /// What was estimated from requests alone.
    oracle: Option<Vec<Paired>>,
}

/// The experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Summary {
    /// Median of the absolute relative errors, by arm.
    median_abs_rel_error: BTreeMap<String, Option<f64>>,
    /// Signed, by arm.
    median_rel_error: BTreeMap<String, Option<f64>>,
    /// Errors by arm.
    per_arm: BTreeMap<String, Errors>,
    /// Errors by arm with an oracle that tells acknowledgments from requests.
    oracle: BTreeMap<String, Errors>,
}

impl Summary {
    fn of(runs: &Runs) -> Self {
        let name = |run: &Run| run.outcome.point.arm.clone();
        let errors = |run: &Run| run.outcome.point.errors;
        let runs = || runs.0.iter();
        let oracle = |run: &Run| Some((name(run), Errors::of(run.oracle.as_ref()?)));
        Self {
            median_abs_rel_error: runs()
                .map(|run| (name(run), errors(run).median_abs_rel_error))
                .collect(),
            median_rel_error: runs()
                .map(|run| (name(run), errors(run).median_rel_error))
                .collect(),
            per_arm: runs().map(|run| (name(run), errors(run))).collect(),
            oracle: runs().filter_map(oracle).collect(),
        }
    }
}

impl Experiment for PassiveTransports {
    fn name(&self) -> &'static str {
        "passive-transports"
    }

    fn about(&self) -> &'static str {
        "latency from one direction of memcached and of QUIC"
    }

    fn run(&self, context: &Context) -> Result<()> {
        Frame::run_on_triangle(self.name(), context, &TriangleSpec::default(), measure)
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let points: Vec<_> = self.0.iter().map(|run| &run.outcome.point).collect();
        let summary = Summary::of(self);
        frame.write_result(complete, &points, &NoMore {}, &summary)?;
        report(frame, complete, self)
    }
}

fn measure(frame: &Frame<'_>, triangle: &mut Triangle, measured: &mut Runs) -> Result<()> {
    let context = frame.context;
    let duration = Duration::from_secs(if context.quick { 8 } else { 120 });
    let workload = |service, connections, options: &[&str]| Workload {
        service,
        duration,
        connections,
        rate: None,
        options: options.iter().map(|&option| option.to_owned()).collect(),
    };
    let quic = |size| {
        workload(
            Service::Quic,
            1,
            &["--streams", "1..16", "--response-size", size],
        )
    };
    let arms = [
        (
            "memcached",
            workload(Service::Memcached, 10, &["--value-size", "40..10000"]),
        ),
        ("quic-small", quic("30..130")),
        ("quic-large", quic("1600..15100")),
    ];
    let mut progress = Progress::new(arms.len() as u32);
    for (arm, workload) in arms {
        let service = workload.service;
        let mut server = Server::start(service, &context.command, triangle, &context.stop)?;
        let requests = format!("udp port {} and greater {REQUEST_FRAME}", service.port());
        let trial = Trial {
            workload,
            epoch: EPOCH,
            share: None,
            baselines: false,
            captures: (service == Service::Quic)
                .then_some(requests)
                .into_iter()
                .collect(),
        };
        let mut outcome = trial.run(arm, context, triangle, &mut server)?;
        let spec = PassiveSpec {
            port: service.port(),
            epoch: EPOCH,
            estimator: None,
        };
        let oracle = match outcome.captures.pop() {
            Some(capture) => {
                let observed = spec.over_capture(&context.command, capture.file())?;
                Some(outcome.pair(&observed.epochs))
            }
            None => None,
        };
        progress.step(&outcome.point.in_words());
        measured.0.push(Run { outcome, oracle });
        measured.write(frame, false)?;
    }
    Ok(())
}

fn report(frame: &Frame<'_>, complete: bool, runs: &Runs) -> Result<()> {
    let mut shown = Vec::new();
    for Run { outcome, oracle } in &runs.0 {
        let arm = &outcome.point.arm;
        let mut curves = truths(outcome).to_vec();
        if let Some(oracle) = oracle {
            curves.push(estimates("with an oracle", ORACLE, true, oracle));
        }
        curves.push(estimates(OURS, BATCHWISE, false, &outcome.paired));
        let svg = latencies(&format!("Latencies, {arm}"), &curves)?;
        frame
            .context
            .output
            .write(&format!("latencies-{arm}.svg"), &svg)?;
        let oracle = oracle.as_deref().map(Errors::of);
        shown.push(html! {
            h2 { (arm) }
            (figure(&svg))
            (point_table(&outcome.point))
            @if let Some(oracle) = &oracle {
                (error_table([("with an oracle", oracle)]))
            }
        });
    }
    let body = html! {
        @for part in &shown { (part) }
        p { "The oracle takes packets for requests by their size, which is known here: it has what \
             the paper assumed of QUIC's acknowledgments." }
    };
    frame.write_report(
        complete,
        "Passive estimates of other transports",
        "memcached with as many gets as sets of 40 to 10000 bytes (Figure 10), and QUIC with 1 to \
         16 requests in flight (Figure 9).",
        &body,
    )
}
