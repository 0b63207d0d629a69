//! Experiment `passive-accuracy`: how true the estimates from one direction are for a web workload
//! (the paper's Figures 3 to 5), beside other ways to estimate, and how fast they follow a server
//! whose speed changes. This file owns the measuring.

mod figures;
mod summary;

use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::triangle::{Triangle, TriangleSpec};

use super::trial::{Outcome, Point, Trial};
use super::workload::{Server, Service, Workload};
use crate::frame::{Frame, Measured, NoMore};
use crate::output::Progress;
use crate::{Context, Experiment};
use summary::Summary;

/// Requests a second in all.
const RATE: u64 = 2000;
/// Connections that share them.
const CONNECTIONS: u32 = 20;
/// Length of an epoch.
const EPOCH: Duration = Duration::from_secs(1);
/// How long the server keeps one speed, in the arm that changes it in steps.
const STEP: Duration = Duration::from_secs(5);
/// The speeds of that arm.
const STEPS: [f64; 2] = [1.0, 0.4];

/// How true estimates from one direction are.
pub struct PassiveAccuracy;

/// What was run so far.
#[derive(Default)]
struct Runs {
    outcomes: Vec<Outcome>,
}

impl Runs {
    fn of(&self, arm: &str) -> Option<&Outcome> {
        self.outcomes
            .iter()
            .find(|outcome| outcome.point.arm == arm)
    }
}

/// Four requests in flight, the committed trace of CPU shares: Figures 3 and 4.
const WEB: &str = "web";
/// One request in flight: Figure 5.
const SINGLE: &str = "single";
/// Speed in steps.
const STEPPED: &str = "steps";

impl Experiment for PassiveAccuracy {
    fn name(&self) -> &'static str {
        "passive-accuracy"
    }

    fn about(&self) -> &'static str {
        "latency from one direction of a web workload: estimate, truth and baselines"
    }

    fn run(&self, context: &Context) -> Result<()> {
        Frame::run_on_triangle(self.name(), context, &TriangleSpec::default(), measure)
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(self);
        let points: Vec<&Point> = self.outcomes.iter().map(|outcome| &outcome.point).collect();
        frame.write_result(complete, &points, &NoMore {}, &summary)?;
        figures::write(frame, complete, self, &summary)
    }
}

fn measure(frame: &Frame<'_>, triangle: &mut Triangle, measured: &mut Runs) -> Result<()> {
    let context = frame.context;
    let seconds = |quick, full| Duration::from_secs(if context.quick { quick } else { full });
    let stepped = seconds(20, 60);
    let arms = [
        (WEB, seconds(15, 120), 4, Trace::committed()?, true),
        (
            STEPPED,
            stepped,
            4,
            Trace::steps_of(&STEPS, STEP, stepped),
            false,
        ),
        (SINGLE, seconds(10, 60), 1, Trace::committed()?, true),
    ];
    let mut server = Server::start(Service::Web, &context.command, triangle, &context.stop)?;
    let mut progress = Progress::new(arms.len() as u32);
    for (arm, duration, in_flight, share, baselines) in arms {
        let trial = Trial {
            workload: Workload::web(duration, CONNECTIONS, RATE, in_flight),
            epoch: EPOCH,
            share: Some(share),
            baselines,
            captures: Vec::new(),
        };
        let outcome = trial.run(arm, context, triangle, &mut server)?;
        progress.step(&outcome.point.in_words());
        measured.outcomes.push(outcome);
        measured.write(frame, false)?;
    }
    Ok(())
}
