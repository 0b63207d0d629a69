//! Experiment `others`: what other tools for the same job cost the same Redis, and what they tell. One
//! run on the same connections; a tool is started, and what it costs once it is attached and calm is
//! compared with the times just before it and after its end, in which nothing is attached.

mod attached;
mod says;
mod summary;
mod tools;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::busy::{Busy, CONNECTIONS, Stretch};
use crate::engine::color::{BATCHWISE, GREY, NAGLE, NODELAY};
use crate::engine::report::Part;
use crate::engine::stalls::Monitor;
use crate::engine::text::{maybe_duration, percent, quartiles};
use crate::engine::{Experiment, Figure, Ratio, Report, Results, Round, Run, Strip, Table, Turn};
use crate::redis::Redis;
use attached::{Attached, used};
use summary::{Summary, ToolSummary, of_turns};
use tools::{ELSEWHERE, TOOLS, Tool};

/// Left out after a tool was attached or has ended.
const SETTLE: Duration = Duration::from_millis(30);
/// What is measured with a tool, and without it: short, since what drifts slower cancels.
const LENGTH: Duration = Duration::from_millis(300);
/// The same for one that works once a second.
const PERIODIC_LENGTH: Duration = Duration::from_secs(2);
/// How often others than those are attached in a round.
const TIMES: usize = 4;
/// Before anything is measured: connections are made, caches are warm.
const WARM_UP: Duration = Duration::from_secs(1);

pub struct Others;

/// What a request costs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Requests a second of the time that the host did not take away.
    pub rps: f64,
    /// CPU time of the server process a request, ns.
    pub server_cpu_ns_per_request: f64,
    /// CPU time of the benchmark process a request, ns.
    pub client_cpu_ns_per_request: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    pub tool: String,
    /// While it is attached.
    pub with: Cost,
    /// Geometric mean of just before and just after.
    pub base: Cost,
    /// Share that the host took away, and that is cut: the largest of the three times.
    pub cut_share: f64,
    /// CPU time of the tool, as a share of one CPU.
    pub agent_cpu_share: f64,
    /// From its start until it was attached and calm, s.
    pub start_s: f64,
    /// CPU time that it used until then, s.
    pub start_cpu_s: f64,
    /// The typical latency that it said, ns.
    pub says_ns: Option<f64>,
    /// What a request took meanwhile, ns: connections over throughput.
    pub request_ns: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// Tools that cannot be measured, and why.
    pub missing: BTreeMap<String, String>,
}

/// Everything that runs all the time.
pub struct Stage {
    busy: Busy,
    /// The last time without a tool, and its length, if nothing came after it.
    without: Option<(Duration, Stretch)>,
    redis: Redis,
}

impl Experiment for Others {
    type Stage = Stage;
    type Arm = &'static Tool;
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "others"
    }

    fn about(&self) -> &'static str {
        "what other tools for the same job cost Redis, and what they tell"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<&'static Tool>>> {
        let times = |tool: &Tool| if tool.is_periodic { 1 } else { TIMES };
        let tools = TOOLS.iter().flat_map(|tool| vec![tool; times(tool)]);
        let tools: Vec<_> = tools.collect();
        Ok(Round::shuffled(if quick { 4 } else { 18 }, &tools))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (redis, network) = Redis::start(context, "others")?;
        let busy = Busy::start(&redis.hosts)?;
        context.stop.sleep(WARM_UP)?;
        let stage = Stage {
            busy,
            without: None,
            redis,
        };
        Ok((stage, network))
    }

    fn prepare(&self, run: &mut Run<'_, More>, _stage: &mut Stage) -> Result<()> {
        let elsewhere = ELSEWHERE.iter();
        let reasons = elsewhere.map(|&(name, why)| (name.into(), why.into()));
        run.more.missing.extend(reasons);
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        turn: Turn<'_, &'static Tool>,
    ) -> Result<Vec<Point>> {
        let (tool, context) = (*turn.arm, run.context);
        if run.more.missing.contains_key(tool.name) {
            return Ok(Vec::new());
        }
        let length = match tool.is_periodic {
            true => PERIODIC_LENGTH,
            false => LENGTH,
        };
        let before = match stage.without.take() {
            Some((its_length, without)) if its_length == length => without,
            _ => stage.stretch(context, length, None)?,
        };
        let attached = match Attached::start(tool, context, &stage.redis.hosts.server)? {
            Ok(attached) => attached,
            Err(why) => {
                run.note(&format!("{} is missing: {why}", tool.name));
                run.more.missing.insert(tool.name.into(), why);
                return Ok(Vec::new());
            }
        };
        let with = stage.stretch(context, length, Some(attached.pid()))?;
        let (took, cpu) = (attached.took, attached.cpu);
        let printed = attached.end(context)?;
        let after = stage.stretch(context, length, None)?;
        stage.without = Some((length, after));
        let all = [before, with, after];
        Ok(vec![Point {
            round: turn.round,
            position: turn.position,
            tool: tool.name.into(),
            with: Cost::of(&with),
            base: Cost::between(&Cost::of(&before), &Cost::of(&after)),
            cut_share: all
                .map(|part| part.cut_share)
                .into_iter()
                .fold(0.0, f64::max),
            agent_cpu_share: with.agents_cpu_share,
            start_s: took.as_secs_f64(),
            start_cpu_s: cpu.as_secs_f64(),
            says_ns: tool.says.read(&printed),
            request_ns: 1e9 * f64::from(CONNECTIONS) / with.rps,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "{}: {:.0} requests/s, {:.3} of those without; says {}, a request takes {}",
            point.tool,
            point.with.rps,
            point.with.rps / point.base.rps,
            maybe_duration(point.says_ns),
            maybe_duration(Some(point.request_ns)),
        )
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        let strip = |(tool, color)| {
            let turns = of_turns(&results.points, tool, |cost| cost.rps);
            Strip::new(tool, color, &turns)
        };
        let strips = [
            ("nothing", GREY),
            ("watch", BATCHWISE),
            ("bpftrace-request", NODELAY),
            ("tcpdump", NAGLE),
        ]
        .map(strip);
        Report::new(
            "Others: what tools for the same job cost Redis, and what they tell",
            "redis-benchmark, 64-byte SETs, 10 connections, one request in flight on each. Tools are \
             attached and detached in random order within one run.",
        )
        .heading("What they cost")
        .table(costs(summary))
        .text(format!(
            "With a tool over without it, just before and just after: medians of the turns with 95 % \
             bootstrap intervals. Without any tool: {} requests/s (median and quartiles). `nothing` is \
             a process that sleeps, and shows how far the method itself is off. Tools run on whichever \
             CPU the scheduler gives them, as they would in use; server and client keep one CPU each \
             busy, so that what a tool does in user space is taken from them on a machine with two. \
             What a tool does before it is attached and calm, such as compiling, is not in the ratios. \
             The host took away {} of the time, which is cut in all arms by the same rule; {} turns \
             of which it took more than a quarter are left out.",
            summary.rps.map_or_else(|| "–".into(), quartiles),
            percent(summary.cut_share),
            summary.turns_left_out,
        ))
        .text(
            "`says` is the typical latency in the tool's own output, of a histogram the middle of the \
             median's bucket. `a request takes` is the mean from one answer to the next on a connection \
             meanwhile (connections over throughput): a little more than the latency, since the client \
             needs time between an answer and its next request.",
        )
        .figure(Figure::ratios(
            "throughput-ratio.svg",
            "Throughput over that just before and after, with nothing attached",
            "throughput ratio",
            strips.into(),
        ))
        .heading("What they tell")
        .table(telling())
        .heading("Missing")
        .part(Part::missing(&summary.missing))
    }
}

fn costs(summary: &Summary) -> Table {
    type Row<'a> = (&'a &'static str, &'a ToolSummary);
    let seconds = |value: Option<f64>| value.map_or_else(|| "–".into(), |s| format!("{s:.1} s"));
    Table::of(
        &summary.per_tool,
        &[
            ("tool", &|row: &Row| (*row.0).into()),
            ("throughput ratio", &|row| {
                Ratio::text(row.1.interval.as_ref())
            }),
            ("server CPU ratio", &|row| {
                Ratio::text(row.1.server_cpu_interval.as_ref())
            }),
            ("its own CPU", &|row| percent(row.1.agent_cpu_share)),
            ("to start", &|row| seconds(row.1.start_s)),
            ("CPU for that", &|row| seconds(row.1.start_cpu_s)),
            ("says", &|row| maybe_duration(row.1.says_ns)),
            ("a request takes", &|row| maybe_duration(row.1.request_ns)),
        ],
    )
}

fn telling() -> Table {
    Table::of(
        TOOLS.iter().filter(|tool| tool.name != "nothing"),
        &[
            ("tool", &|tool| tool.name.into()),
            ("number", &|tool| tool.tells.number.into()),
            ("by service", &|tool| tool.tells.per_service.into()),
            ("request latency", &|tool| tool.tells.request_latency.into()),
            ("both ends", &|tool| tool.tells.both_ends.into()),
            ("p99", &|tool| tool.tells.p99.into()),
            ("change of applications", &|tool| {
                tool.tells.app_change.into()
            }),
            ("coverage", &|tool| tool.tells.coverage.into()),
        ],
    )
}

impl Cost {
    fn of(stretch: &Stretch) -> Self {
        Self {
            rps: stretch.rps,
            server_cpu_ns_per_request: stretch.server_cpu_ns_per_request,
            client_cpu_ns_per_request: stretch.client_cpu_ns_per_request,
        }
    }

    /// Geometric mean.
    fn between(before: &Self, after: &Self) -> Self {
        let mean = |value: fn(&Self) -> f64| (value(before) * value(after)).sqrt();
        Self {
            rps: mean(|cost| cost.rps),
            server_cpu_ns_per_request: mean(|cost| cost.server_cpu_ns_per_request),
            client_cpu_ns_per_request: mean(|cost| cost.client_cpu_ns_per_request),
        }
    }
}

impl Stage {
    /// Measures while this tool, or none, is attached. Time that it took from the others is not cut.
    fn stretch(
        &mut self,
        context: &Context,
        length: Duration,
        tool: Option<Pid>,
    ) -> Result<Stretch> {
        let (busy, redis) = (&mut self.busy, &mut self.redis);
        let cpus = [redis.hosts.server.cpu(), redis.hosts.client.cpu()];
        let monitor = Monitor::start(&cpus, tool.as_slice());
        let mut sample = || busy.sample(&redis.server, || tool.map_or(Ok(Duration::ZERO), used));
        context.stop.sleep(SETTLE)?;
        let before = sample()?;
        context.stop.sleep(length)?;
        let after = sample()?;
        let gaps = monitor.gaps(before.at, after.at);
        redis.server.check_alive()?;
        busy.check_alive()?;
        Ok(Stretch::between(&before, &after, &gaps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ratio::ENOUGH_PAIRS;

    #[test]
    fn what_a_tool_is_compared_with_is_the_geometric_mean_of_before_and_after() {
        let cost = |rps| Cost {
            rps,
            server_cpu_ns_per_request: 1e9 / rps,
            client_cpu_ns_per_request: 1e9 / rps,
        };
        let base = Cost::between(&cost(40_000.0), &cost(90_000.0));
        assert!((base.rps - 60_000.0).abs() < 1e-6);
        // a ratio of throughputs is that of CPU times the other way round
        assert!((base.server_cpu_ns_per_request - 1e9 / 60_000.0).abs() < 1e-6);
    }

    #[test]
    fn there_are_enough_turns_of_every_tool() {
        let turns = |quick, periodic| {
            let rounds = Others.rounds(quick).unwrap();
            let all = rounds.iter().flat_map(|round| &round.arms);
            let name = if periodic { "watch" } else { "tcpdump" };
            all.filter(|tool| tool.name == name).count()
        };
        assert!(turns(false, true) >= ENOUGH_PAIRS && turns(false, false) >= 4 * ENOUGH_PAIRS);
        // a quick run decides about what is attached often
        assert!(turns(true, false) >= ENOUGH_PAIRS);
    }
}
