//! Experiment `demo`: Redis under climbing load, first without Nagle's algorithm and then with it,
//! the estimates of both ends next to what the load generator measures, live; and the same climb
//! with batchwise choosing. This file owns the measuring.

mod display;
mod figures;
mod moment;
mod picture;
mod plan;
mod plots;
#[cfg(test)]
mod samples;
mod screen;
mod summary;
mod view;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::Host;
use batchwise_testbed::load::LoadReport;
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::stop::POLL;
use batchwise_testbed::topology::{NetworkSettings, TwoHosts};
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use serde::Serialize;

use crate::arm::{self, Arm};
use crate::machine::Machine;
use crate::tuner::Tuners;
use crate::{Context, Experiment};
use display::{Display, Story};
use moment::{Matcher, Moment};
use plan::{MOMENT, PHASES, Phase, Plan};
use summary::Summary;

/// Between two lines of a watcher: short, so that a second is covered whatever its phase.
const INTERVAL: Duration = Duration::from_millis(200);
/// What batchwise tunes for: the load is given, and at its top throughput follows from latency.
const POLICY: &str = "latency";
/// How long the last lines of a climb may take to arrive.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Estimate beside truth, then batchwise tuning, for a minute and a half.
pub struct Demo;

/// A climb and what the load generator said at its end.
#[derive(Clone, Debug, Serialize)]
struct Climb {
    arm: Arm,
    report: LoadReport,
}

#[derive(Serialize)]
struct Results<'a> {
    experiment: &'static str,
    machine: &'a Machine,
    network: &'a NetworkSettings,
    complete: bool,
    climbs: &'a [Climb],
    points: &'a [Moment],
    summary: &'a Summary,
}

impl Experiment for Demo {
    fn name(&self) -> &'static str {
        "demo"
    }

    fn about(&self) -> &'static str {
        "live: estimate beside truth under climbing load, and three arms at the end (1.5 minutes)"
    }

    fn run(&self, context: &Context) -> Result<()> {
        let machine = context.machine()?;
        let plan = Plan::new(context.quick);
        let mut display = display::open(&machine, &plan, &context.stop)?;
        let mut run = Run::default();
        let mut outcome = run.measure(context, &plan, &mut *display);
        // Before anything else is printed.
        outcome = outcome.and(display.finish());
        if outcome.is_ok() || !run.moments.is_empty() {
            let summary = Summary::of(&run.moments);
            let mut sentences = summary.sentences.clone();
            let wait = summary::about_cpu_wait(run.climbs.iter().map(|c| &c.report));
            sentences.extend(display::one_cpu(&machine).map(str::to_owned).or(wait));
            sentences.push("Plots and the numbers of every second:".into());
            if let Some(network) = &run.network {
                let results = Results {
                    experiment: self.name(),
                    machine: &machine,
                    network,
                    complete: outcome.is_ok(),
                    climbs: &run.climbs,
                    points: &run.moments,
                    summary: &summary,
                };
                context.output.write_result(&results)?;
                figures::write(&context.output, &results, &context.reproduce(self.name()))?;
            }
            let picture = picture::picture(&run.moments);
            if !picture.is_empty() {
                display::print_lines(&picture)?;
            }
            display::print_paragraphs(sentences.iter().map(String::as_str))?;
            if outcome.is_err() {
                println!("{}", context.output.dir().join("report.html").display());
            }
        }
        outcome
    }
}

/// What was measured so far.
#[derive(Default)]
struct Run {
    network: Option<NetworkSettings>,
    climbs: Vec<Climb>,
    moments: Vec<Moment>,
}

impl Run {
    fn measure(&mut self, context: &Context, plan: &Plan, display: &mut dyn Display) -> Result<()> {
        display.status("making two network namespaces and starting Redis")?;
        let hosts = TwoHosts::build("demo")?;
        self.network = Some(hosts.settings()?);
        let mut redis = RedisServer::start(&hosts.server, &context.stop)?;
        let arms = arm::chosen()?;
        let mut stage = Stage {
            sense: Sense::Nothing,
            hosts: &hosts,
            plan,
            matcher: Matcher::new(*plan, PHASES[0]),
            began: Instant::now(),
        };
        for phase in PHASES.into_iter().filter(|p| arms.contains(&p.arm)) {
            stage.attach(context, phase, display)?;
            display.status(phase.name())?;
            let report = stage.climb(context, phase, &mut self.moments, display)?;
            redis.check_alive()?;
            self.climbs.push(Climb {
                arm: phase.arm,
                report,
            });
        }
        let unseen = |m: &Moment| m.nagle.is_none() && m.server.is_none();
        if self.moments.iter().all(unseen) {
            bail!("the watchers ran but saw no connection to port {PORT}; see `batchwise doctor`");
        }
        Ok(())
    }
}

/// What runs at both hosts besides the load.
enum Sense {
    Nothing,
    Watchers { server: Watcher, client: Watcher },
    Tuners(Tuners),
}

/// Everything that runs while the load climbs.
struct Stage<'a> {
    // In this order: watchers and agents end before the hosts go.
    sense: Sense,
    hosts: &'a TwoHosts,
    plan: &'a Plan,
    matcher: Matcher,
    began: Instant,
}

impl Stage<'_> {
    /// Starts what a climb is watched or tuned by, unless it runs already.
    fn attach(&mut self, context: &Context, phase: Phase, display: &mut dyn Display) -> Result<()> {
        if phase.watched() && matches!(self.sense, Sense::Watchers { .. }) {
            return Ok(());
        }
        // Both write the TCP option: the old ones end before the new ones start.
        self.sense = Sense::Nothing;
        display.status("attaching batchwise's BPF programs at both ends")?;
        if !phase.watched() {
            let tuners = Tuners::start(context, self.hosts, POLICY, "demo")?;
            self.sense = Sense::Tuners(tuners);
            return Ok(());
        }
        let watch = |host: &Host| {
            let spec = WatchSpec {
                ports: &[PORT],
                interval: INTERVAL,
                units: Some("sends"),
                exchange: true,
                cgroup: Some(host.cgroup()),
            };
            Watcher::start(&context.command, host, &spec, &context.stop)
        };
        self.sense = Sense::Watchers {
            server: watch(&self.hosts.server).context("at the server's end")?,
            client: watch(&self.hosts.client).context("at the client's end")?,
        };
        Ok(())
    }

    /// Hands what was sensed since the last call to the matcher.
    fn sense(&mut self) -> Result<()> {
        match &mut self.sense {
            Sense::Nothing => {}
            Sense::Watchers { server, client } => {
                server.check().context("at the server's end")?;
                client.check().context("at the client's end")?;
                self.matcher.lines(client.take_lines(), server.take_lines());
            }
            Sense::Tuners(tuners) => {
                tuners.check()?;
                self.matcher.decisions(tuners.take()?);
            }
        }
        Ok(())
    }

    fn climb(
        &mut self,
        context: &Context,
        phase: Phase,
        moments: &mut Vec<Moment>,
        display: &mut dyn Display,
    ) -> Result<LoadReport> {
        let spec = self.plan.load(phase, self.hosts.server_address(PORT));
        let mut load = spec.start(&context.command, &self.hosts.client, Some(MOMENT))?;
        self.matcher.begin(phase);
        let mut ended: Option<Instant> = None;
        loop {
            context.stop.sleep(POLL)?;
            // In this order: what it printed last is read after it was seen to have ended.
            if ended.is_none() && load.has_ended()? {
                ended = Some(Instant::now());
            }
            for interval in load.new_intervals()? {
                self.matcher.interval(interval, Instant::now());
            }
            self.sense()?;
            while let Some(moment) = self.matcher.next(Instant::now()) {
                moments.push(moment);
                display.show(&Story {
                    phase,
                    elapsed: self.began.elapsed(),
                    length: self.plan.length(),
                    moments,
                })?;
            }
            if ended.is_some_and(|at| !self.matcher.is_waiting() || at.elapsed() > LAST_LINES) {
                return load.finish(&context.stop);
            }
        }
    }
}
