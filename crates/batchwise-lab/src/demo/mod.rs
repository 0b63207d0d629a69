//! Experiment `demo`: Redis under climbing load without Nagle's algorithm, with it, and with
//! batchwise choosing; the estimates of both ends next to what the load generator measures, live.
//! This file owns the measuring.

mod bins;
mod display;
mod moment;
mod others;
mod plan;
mod report;
#[cfg(test)]
mod samples;
mod summary;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use batchwise_core::tune::report::Decision;
use batchwise_testbed::host::Host;
use batchwise_testbed::load::LoadReport;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stop::POLL;
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::stalls::{Monitor, now_ns};
use crate::engine::{Experiment, Report, Results, Round, Run, Turn};
use crate::redis::Redis;
use crate::tuner::Tuners;
use display::{Display, WIDTH};
use moment::{Moment, Recording};
use others::Others;
use plan::{Climb, PASSES, Plan, SLICE, WARMUP, watched};
use summary::Summary;

/// Between two lines of a watcher: a window for each passage. With shorter ones, more of what sensing
/// may cost goes into their beginnings.
const INTERVAL: Duration = Duration::from_millis(600);
/// What batchwise tunes for: the load is given, and at its top throughput follows from latency.
const POLICY: &str = "latency";
/// Between two looks at what other work has used: reading it takes time as well.
const OTHERS_EVERY: Duration = Duration::from_millis(100);
/// How long the last lines of a climb may take to arrive.
const LAST_LINES: Duration = Duration::from_millis(800);

/// Estimate beside truth, and three arms under climbing load.
pub struct Demo;

/// What the load generator said at the end of a climb.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClimbReport {
    arm: Arm,
    report: LoadReport,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Climbs {
    climbs: Vec<ClimbReport>,
    /// Server and generator share a CPU.
    #[serde(default)]
    one_cpu: bool,
}

/// What runs at both hosts besides the load.
enum Sense {
    Nothing,
    Watchers {
        server: Box<Watcher>,
        client: Box<Watcher>,
    },
    Tuners(Tuners),
}

/// Everything that runs while the load climbs.
pub struct Stage {
    // In this order: watchers and agents end before the hosts go.
    monitor: Option<Monitor>,
    others: Others,
    sense: Sense,
    redis: Redis,
    plan: Plan,
    decisions: Vec<Decision>,
    display: Display,
}

impl Experiment for Demo {
    type Stage = Stage;
    type Arm = Climb;
    type Point = Moment;
    type More = Climbs;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "demo"
    }

    fn about(&self) -> &'static str {
        "live: estimate beside truth under climbing load, and three arms at the end (1.5 minutes)"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Climb>>> {
        Ok(plan::rounds(&arm::chosen()?))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let plan = Plan::new(context.quick);
        let mut display = Display::open(&plan)?;
        display.status("making two network namespaces and starting Redis")?;
        let (redis, network) = Redis::start(context, "demo")?;
        let server = &redis.hosts.server;
        let mut cpus = vec![server.cpu(), redis.hosts.client.cpu()];
        cpus.dedup();
        let all = server.cgroup().parent();
        let stage = Stage {
            monitor: None,
            others: Others::new(cpus, all.unwrap_or_else(|| server.cgroup())),
            sense: Sense::Nothing,
            redis,
            plan,
            decisions: Vec::new(),
            display,
        };
        Ok((stage, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, Climbs>,
        stage: &mut Stage,
        turn: Turn<'_, Climb>,
    ) -> Result<Vec<Moment>> {
        let climb = *turn.arm;
        run.more.one_cpu = stage.others.cpus.len() == 1;
        stage.attach(run.context, climb.arm)?;
        let (arm, pass) = (climb.arm.label(), climb.pass + 1);
        let climbing = format!("{arm}: climb {pass} of {PASSES}");
        stage.display.status(&climbing)?;
        let before = match watched(climb.arm) {
            true => turn.round * Arm::STATIC.len() as u32 + turn.position as u32,
            false => Arm::STATIC.len() as u32 * PASSES + climb.pass,
        };
        let (moments, report) = stage.climb(run.context, climb, before)?;
        stage.redis.server.check_alive()?;
        let arm = climb.arm;
        run.more.climbs.push(ClimbReport { arm, report });
        Ok(moments)
    }

    fn describe(&self, point: &Moment) -> String {
        format!("{:?} up to {:.0} requests/s", point.arm, point.offered_rps)
    }

    fn shows_progress(&self) -> bool {
        true
    }

    fn finish(
        &self,
        _run: &mut Run<'_, Climbs>,
        _stage: &mut Stage,
        points: &[Moment],
    ) -> Result<()> {
        let is_blind = |m: &Moment| m.client.is_none() && m.server.is_none();
        if points.iter().all(is_blind) {
            bail!("the watchers ran but saw no connection to port {PORT}; see `batchwise doctor`");
        }
        Ok(())
    }

    fn summary(&self, results: &Results<Moment, Climbs>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Moment, Climbs>, summary: &Summary) -> Report {
        report::report(results, summary)
    }

    fn closing_words(
        &self,
        results: &Results<Moment, Climbs>,
        summary: &Summary,
    ) -> Option<String> {
        let (headline, others) = summary.sentences.split_first()?;
        let notes = report::notes(&results.more);
        let lines = |texts: Vec<&str>| textwrap::fill(&texts.join("\n"), WIDTH);
        let first = std::iter::once(headline).chain(&notes);
        Some(format!(
            "\n{}\n\n{}\n\n{}\nPlots and all numbers:",
            lines(first.map(String::as_str).collect()),
            display::text(&summary.bins),
            lines(others.iter().map(String::as_str).collect()),
        ))
    }
}

impl Stage {
    /// Starts what an arm is watched or tuned by, unless it runs already.
    fn attach(&mut self, context: &Context, arm: Arm) -> Result<()> {
        match (&self.sense, watched(arm)) {
            (Sense::Watchers { .. }, true) | (Sense::Tuners(_), false) => return Ok(()),
            _ => {}
        }
        // Two kinds of agents at once would disturb each other: the old ones end before the new ones start.
        (self.monitor, self.sense) = (None, Sense::Nothing);
        self.display
            .status("attaching batchwise's BPF programs at both ends")?;
        let own: Vec<Pid>;
        if watched(arm) {
            let watch = |host: &Host| {
                let spec = WatchSpec {
                    ports: &[PORT],
                    interval: INTERVAL,
                    units: Some("sends"),
                    exchange: true,
                    cgroup: Some(host.cgroup()),
                    cost: None,
                };
                Watcher::start(&context.command, host, &spec, &context.stop)
            };
            let hosts = &self.redis.hosts;
            let server = watch(&hosts.server).context("at the server's end")?;
            let client = watch(&hosts.client).context("at the client's end")?;
            own = vec![server.pid(), client.pid()];
            self.sense = Sense::Watchers {
                server: Box::new(server),
                client: Box::new(client),
            };
        } else {
            let tuners = Tuners::start(context, &self.redis.hosts, POLICY, "demo")?;
            own = tuners.pids();
            self.sense = Sense::Tuners(tuners);
        }
        self.monitor = Some(Monitor::start(&self.others.cpus, &own));
        Ok(())
    }

    /// Reads what was sensed since the last call.
    fn sense(&mut self, recording: &mut Recording, since: u64) -> Result<()> {
        match &mut self.sense {
            Sense::Nothing => {}
            Sense::Watchers { server, client } => {
                server.check().context("at the server's end")?;
                client.check().context("at the client's end")?;
                recording.client.extend(client.take_lines());
                recording.server.extend(server.take_lines());
            }
            Sense::Tuners(tuners) => {
                tuners.check()?;
                self.decisions.extend(tuners.take());
                recording.decisions.clone_from(&self.decisions);
            }
        }
        let now = now_ns();
        let last = recording.used.last().map_or(0, |used| used.ts_ns);
        if now > last + OTHERS_EVERY.as_nanos() as u64 {
            recording.used.extend(self.others.read(now));
        }
        let gaps = self
            .monitor
            .as_ref()
            .map(|monitor| monitor.gaps(since, now));
        recording.gaps = gaps.unwrap_or_default();
        Ok(())
    }

    /// One climb: its passages, as they come, and what the generator says at the end. `before`
    /// climbs are before it by plan.
    fn climb(
        &mut self,
        context: &Context,
        climb: Climb,
        before: u32,
    ) -> Result<(Vec<Moment>, LoadReport)> {
        let (plan, since) = (self.plan, now_ns());
        let mut recording = Recording::new(climb, plan, before, self.others.cpus.len());
        let spec = self.redis.load(climb.arm, WARMUP, vec![plan.phase()]);
        let client = &self.redis.hosts.client;
        let mut load = spec.start(&context.command, client, Some(SLICE))?;
        let mut moments = Vec::new();
        let (mut next, mut ended) = (0, None::<Instant>);
        while next < plan.bins {
            context.stop.sleep(POLL)?;
            // In this order: what it printed last is read after it was seen to have ended.
            if ended.is_none() && load.has_ended()? {
                ended = Some(Instant::now());
            }
            recording.intervals.extend(load.new_intervals()?);
            self.sense(&mut recording, since)?;
            let over = ended.is_some_and(|at| at.elapsed() > LAST_LINES);
            while next < plan.bins && (over || recording.is_complete(next)) {
                if let Some(moment) = recording.moment(next) {
                    self.display.show(&moment)?;
                    moments.push(moment);
                }
                next += 1;
            }
        }
        Ok((moments, load.finish(&context.stop)?))
    }
}

#[cfg(test)]
mod tests {
    use super::samples::climbs;
    use super::*;
    use crate::engine::summarise;

    #[test]
    fn the_summary_follows_from_the_points_of_a_result() {
        let points = climbs(|arm, load| match arm {
            Arm::Nodelay if load > 200_000 => 14e6,
            _ => 50e3,
        });
        let result = serde_json::json!({
            "experiment": "demo", "machine": {}, "network": {}, "complete": true,
            "climbs": [], "points": points,
        });
        let replayed = summarise("demo", &result).expect("it can be read");
        assert_eq!(
            replayed,
            serde_json::to_value(Summary::of(&points)).unwrap()
        );
        let said = replayed["sentences"][0].as_str().unwrap();
        assert!(said.starts_with("From 215k requests/s on"), "{said}");
    }
}
