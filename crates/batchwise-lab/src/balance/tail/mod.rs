//! Experiment `balance-tail`, the paper's Figure 8: the 99th percentile of response latency over
//! load, with static weights and with weights that follow latency, where servers' speeds follow
//! traces; and where all servers are equal.

mod load;
mod report;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_core::balance::report::{BackendLine, Line};
use batchwise_testbed::cpu_share::trace::Trace;
use batchwise_testbed::host::Role;
use batchwise_testbed::nginx::Nginx;
use batchwise_testbed::segment::{SERVERS, Segment, SegmentSpec};
use batchwise_testbed::speed::Follower;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::agent::{Agent, NAMES, Printed, Settings, WEB};
use super::site::Site;
use crate::Context;
use crate::engine::text::{duration, name};
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Turn};
use crate::passive::workload::write_site;
use summary::Summary;

const SITE: &str = include_str!("site.toml");
/// A trace's whole share is so much of the CPU that all four servers share: together they need
/// less than all of it, so that none waits for another.
const SCALE: f64 = 0.12;
/// The share of equal servers: the mean of the traces.
const EQUAL_SHARE: f64 = 0.68;
/// Pages on a connection, mean.
const PAGES: u32 = 2;
/// Loads at which there are also a connection for each page, equal servers, and parts of the policy
/// alone; percent.
const LOADS: [u32; 2] = [50, 80];
const ALL_LOADS: [u32; 4] = [30, 50, 65, 80];

/// What is said of runs with a connection for each page.
const VISITS: &str = ", a connection a page";

pub struct BalanceTail;

/// Who decides where new connections go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Maglev, weights all the same.
    Static,
    /// The less busy of two by Maglev, weights all the same.
    Choices,
    /// Maglev alone, this project's weights by latency.
    Weights,
    /// The less busy of two by Maglev, weights by latency: `--policy latency` as it comes.
    Latency,
}

impl Policy {
    pub const ALL: [Self; 4] = [Self::Static, Self::Choices, Self::Weights, Self::Latency];

    /// The configuration's `policy` and `choices`.
    fn options(self) -> (&'static str, Option<u8>) {
        match self {
            Self::Static => ("static", None),
            Self::Choices => ("static", Some(2)),
            Self::Weights => ("latency", Some(1)),
            Self::Latency => ("latency", None),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Servers {
    /// The speed of each follows a trace of its own.
    Traced,
    /// All have the same speed all the time.
    Equal,
}

/// What differs between the runs of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub servers: Servers,
    /// Pages on a connection, mean.
    pub pages: u32,
    /// Load in percent of the capacity.
    pub load_percent: u32,
    /// Which pair of this kind in the round.
    pub pair: u32,
    pub policy: Policy,
}

impl Arm {
    fn all(quick: bool) -> Vec<Self> {
        let pair = [Policy::Static, Policy::Latency];
        let mut arms = Vec::new();
        let mut add = |servers, pages, load_percent, policies: &[Policy]| {
            arms.extend(policies.iter().map(|&policy| Self {
                servers,
                pages,
                load_percent,
                pair: 0,
                policy,
            }));
        };
        let loads: &[u32] = if quick { &LOADS } else { &ALL_LOADS };
        for load in loads {
            let parts = !quick && LOADS.contains(load);
            let policies = if parts { &Policy::ALL[..] } else { &pair };
            add(Servers::Traced, PAGES, *load, policies);
        }
        for load in LOADS {
            add(Servers::Traced, 1, load, &pair);
            add(Servers::Equal, PAGES, load, &pair);
        }
        arms
    }

    /// Of what is drawn at random in a run: the same for all policies, different otherwise.
    fn seed(self, round: u32) -> u64 {
        let equal = u64::from(self.servers == Servers::Equal) * 5;
        let visits = u64::from(self.pages == 1) * 3;
        let part = equal + visits + u64::from(self.pair);
        u64::from(1 + round) * 10_000 + u64::from(self.load_percent) * 10 + part
    }

    /// The run of which the course is shown.
    fn is_shown(self) -> bool {
        LOADS.last() == Some(&self.load_percent)
            && (self.servers, self.pages, self.policy) == (Servers::Traced, PAGES, Policy::Latency)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    #[serde(flatten)]
    pub arm: Arm,
    /// Requests a second that both clients together ask for.
    pub offered_rps: f64,
    /// Responses a second that they got.
    pub achieved_rps: f64,
    pub requests: usize,
    /// Of all responses of both clients, ns.
    pub p50_ns: f64,
    /// Of all responses of both clients, ns.
    pub p99_ns: f64,
    /// Broken connections, and those that could not be opened.
    pub broken_connections: u64,
    /// Whether the clients say that they can be believed; other points do not count.
    pub valid: bool,
    pub why_invalid: Vec<String>,
    /// Most that a client's thread waited for its CPU, as a share of the time.
    pub cpu_wait_share: f64,
    /// Packets' fates at the balancer.
    pub balancer: Option<Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// Requests a second that the servers can do at the traces' mean speed.
    pub capacity_rps: Option<f64>,
    /// Runs that do not count, because a client says so; they were repeated.
    pub discarded: usize,
    /// The servers in the latency arm's first run at the highest load.
    #[serde(default)]
    pub shown: Vec<Course>,
}

/// A server over the seconds of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Course {
    pub server: String,
    /// Its speed, as a share of the CPU.
    pub speed: Vec<(f64, f64)>,
    /// Its share of the slots.
    pub share: Vec<(f64, f64)>,
    /// Its latency as the balancer estimates it, ns.
    pub latency_ns: Vec<(f64, f64)>,
}

/// Four servers that run; dropped in this order.
pub struct Stage {
    site: Site,
    /// The file that says what the site is like.
    description: PathBuf,
    segment: Segment,
}

impl Experiment for BalanceTail {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "balance-tail"
    }

    fn about(&self) -> &'static str {
        "p99 over load, balanced by static weights and by latency (Figure 8)"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        Ok(Round::shuffled(
            if quick { 1 } else { 15 },
            &Arm::all(quick),
        ))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let segment = Segment::build("tail", SegmentSpec::default())?;
        segment.receive_on_own_cpus()?;
        let network = serde_json::to_value(segment.settings()?)?;
        let description = context.output.dir().join("site.toml");
        let writing = || format!("writing {}", description.display());
        std::fs::write(&description, SITE).with_context(writing)?;
        let site = Site::start(&segment, &context.stop, |_, folder| {
            write_site(&context.command, folder, Some(&description))
        })?;
        let stage = Stage {
            site,
            description,
            segment,
        };
        Ok((stage, network))
    }

    fn prepare(&self, run: &mut Run<'_, More>, stage: &mut Stage) -> Result<()> {
        // runs before and after an interruption are at the same loads
        if run.more.capacity_rps.is_none() {
            let capacity = stage.capacity(run.context)?;
            run.note(&format!("the servers can do {capacity:.0} requests/s"));
            run.more.capacity_rps = Some(capacity);
        }
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let capacity = run.more.capacity_rps.context("the capacity is not known")?;
        let (point, course) = stage.point(run.context, capacity, turn.round, *turn.arm)?;
        run.more.discarded += usize::from(!point.valid);
        if point.valid && point.arm.is_shown() && run.more.shown.is_empty() {
            run.more.shown = course;
        }
        Ok(vec![point])
    }

    fn judge(&self, point: &Point) -> Judgement {
        Judgement::valid_if(point.valid, point.why_invalid.join("; "))
    }

    fn describe(&self, point: &Point) -> String {
        let Arm {
            servers,
            pages,
            load_percent,
            policy,
            ..
        } = point.arm;
        format!(
            "{servers:?} servers, {load_percent} % load{}, {}: p99 {}, {:.0} of {:.0} responses/s",
            if pages == 1 { VISITS } else { "" },
            name(policy),
            duration(point.p99_ns),
            point.achieved_rps,
            point.offered_rps,
        )
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points, &results.invalid)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        report::report(results, summary)
    }
}

impl Stage {
    fn balancer<'a>(&'a self, context: &'a Context, policy: Policy) -> Result<Agent<'a>> {
        let (policy, choices) = policy.options();
        let settings = Settings {
            services: &[WEB],
            policy,
            choices,
            more: "interval = \"500ms\"\n",
            checks: "path = \"/site.toml\"\ninterval = \"1s\"\ntimeout = \"900ms\"\nfall = 3\n"
                .to_owned(),
            weights: [100; SERVERS as usize],
            without: None,
        };
        let place = (&self.segment.balancer, Role::Workload);
        Agent::start(
            "lab-tail",
            &context.command,
            place,
            &context.stop,
            &settings,
        )
    }

    /// Requests a second at the mean speed of the traces, with static weights.
    fn capacity(&self, context: &Context) -> Result<f64> {
        for speed in &self.site.speeds {
            speed.set(EQUAL_SHARE * SCALE)?;
        }
        let balancer = self.balancer(context, Policy::Static)?;
        let duration = Duration::from_secs(if context.quick { 4 } else { 10 });
        let done = self.load(context, None, PAGES, duration, 1)?;
        balancer.finish()?;
        Ok(done.achieved_rps)
    }

    fn point(
        &mut self,
        context: &Context,
        capacity: f64,
        round: u32,
        arm: Arm,
    ) -> Result<(Point, Vec<Course>)> {
        let seconds = match arm.servers {
            Servers::Traced => 20,
            Servers::Equal => 12,
        };
        // The same in both arms of a pair.
        let seed = arm.seed(round);
        let trace = |server| match arm.servers {
            Servers::Traced => Trace::generate(seed * 10 + u64::from(server), seconds + 1),
            Servers::Equal => Ok(Trace::constant(EQUAL_SHARE)),
        };
        let traces: Vec<_> = (0..SERVERS).map(trace).collect::<Result<_>>()?;
        for (speed, trace) in self.site.speeds.iter().zip(&traces) {
            let first = trace.steps().first().context("a trace without steps")?;
            speed.set(first.share * SCALE)?;
        }
        let balancer = self.balancer(context, arm.policy)?;
        let speeds: Vec<_> = self
            .site
            .speeds
            .iter()
            .cloned()
            .zip(traces.clone())
            .collect();
        let follower = Follower::start(&speeds, SCALE);
        let offered_rps = capacity * f64::from(arm.load_percent) / 100.0;
        let duration = Duration::from_secs(seconds.into());
        let done = self.load(context, Some(offered_rps), arm.pages, duration, seed)?;
        follower.finish()?;
        let printed = balancer.finish()?;
        let mut servers = self.site.servers.iter_mut();
        servers.try_for_each(Nginx::check_alive)?;
        let point = Point {
            round,
            arm,
            offered_rps,
            achieved_rps: done.achieved_rps,
            requests: done.latencies.len(),
            p50_ns: done.quantile(0.5)?,
            p99_ns: done.quantile(0.99)?,
            broken_connections: done.broken_connections,
            valid: done.why_invalid.is_empty(),
            why_invalid: done.why_invalid,
            cpu_wait_share: done.cpu_wait_share,
            balancer: Some(serde_json::to_value(Line::Totals(printed.totals.clone()))?),
        };
        let courses = NAMES.into_iter().zip(&traces);
        let course = |(name, trace)| Course::of(name, trace, &printed, done.from_ns);
        Ok((point, courses.map(course).collect()))
    }
}

impl Course {
    fn of(server: &str, trace: &Trace, printed: &Printed, from_ns: u64) -> Self {
        let own = printed.backends.iter().filter(|b| b.backend == server);
        let own = own.map(|b| ((b.ts_ns as f64 - from_ns as f64) * 1e-9, b));
        let own: Vec<_> = own.filter(|(at, _)| *at >= 0.0).collect();
        let end = own.last().map_or(0.0, |(at, _)| *at);
        let steps = trace.steps();
        let at = |i: usize| steps.get(i).map_or(end, |step| step.at.as_secs_f64());
        let corners =
            (0..steps.len()).flat_map(|i| [at(i), at(i + 1)].map(|t| (t, steps[i].share)));
        let latency = |(at, b): &(f64, &BackendLine)| Some((*at, b.latency_ns.mean? as f64));
        Self {
            speed: corners.filter(|(at, _)| *at <= end).collect(),
            share: own.iter().map(|(at, b)| (*at, b.share)).collect(),
            latency_ns: own.iter().filter_map(latency).collect(),
            server: server.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_policies_get_the_same_servers_and_pages_and_every_pair_others() {
        let arms = Arm::all(false);
        let seeds = |policy, round| -> Vec<u64> {
            let of_policy = arms.iter().filter(move |arm| arm.policy == policy);
            of_policy.map(|arm| arm.seed(round)).collect()
        };
        let mut all = seeds(Policy::Static, 0);
        assert_eq!(all, seeds(Policy::Latency, 0));
        all.extend(seeds(Policy::Static, 1));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn servers_at_full_speed_leave_some_of_their_cpu() {
        assert!(SCALE * f64::from(SERVERS) < 0.95);
    }
}
