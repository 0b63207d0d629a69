//! Experiment `overhead`: what watching costs a Redis server that `redis-benchmark` keeps busy, in
//! throughput, CPU time and time inside the hooks. One run on the same connections; agents that
//! stay begin and end counting from slice to slice.

mod agents;
mod budget;
mod hooks;
mod summary;

use std::time::Duration;

use anyhow::Result;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::busy::{Busy, Sample, Stretch};
use crate::engine::color::{NAGLE, NODELAY};
use crate::engine::slices::{Slice, USUAL};
use crate::engine::stalls::{Gap, Monitor, now_ns};
use crate::engine::text::{percent, quartiles};
use crate::engine::{Experiment, Figure, Ratio, Report, Results, Round, Run, Strip, Table, Turn};
use crate::redis::Redis;
use agents::Agents;
use batchwise_testbed::bpf_stats::{StatsEnabled, runs_of};
use batchwise_testbed::process::cpu_time;
use budget::{Kept, Tick};
use hooks::HookCost;
use summary::{ArmSummary, Summary, compared};

/// Blocks of slices that are measured, and written, together.
const BLOCKS: u32 = 20;
/// For how long the time inside the hooks is taken.
const HOOKS: Duration = Duration::from_secs(2);
/// Before anything is measured: connections are made, caches are warm.
const WARM_UP: Duration = Duration::from_secs(1);

pub struct Overhead;

/// Who counts during a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Nobody.
    Off,
    /// One watcher that sees both ends, with the default budget.
    Watch,
    /// A watcher at each end, which exchange queue states, with the default budget.
    WatchExchange,
    /// As `Watch`, but everything is counted.
    All,
    /// As `WatchExchange`, but everything is counted.
    AllExchange,
}

impl Arm {
    pub const EACH: [Self; 5] = [
        Self::Off,
        Self::Watch,
        Self::WatchExchange,
        Self::All,
        Self::AllExchange,
    ];
    /// These keep a budget, and are recorded, …
    const BUDGETED: [Self; 2] = [Self::Watch, Self::WatchExchange];
    /// … and these are compared in slices.
    const SLICED: [Self; 3] = [Self::Off, Self::All, Self::AllExchange];

    pub fn exchanges(self) -> bool {
        matches!(self, Self::WatchExchange | Self::AllExchange)
    }

    pub fn counts_all(self) -> bool {
        matches!(self, Self::All | Self::AllExchange)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Watch => "watch",
            Self::WatchExchange => "watch-exchange",
            Self::All => "all",
            Self::AllExchange => "all-exchange",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Slices of one block are compared with each other.
    pub round: u32,
    /// Position in the block, from 0.
    pub position: usize,
    pub arm: Arm,
    /// Requests a second of the time that the host did not take away.
    pub rps: f64,
    pub requests: u64,
    /// CPU time of the server process a request, ns.
    pub server_cpu_ns_per_request: f64,
    /// CPU time of the benchmark process a request, ns.
    pub client_cpu_ns_per_request: f64,
    /// Share of the slice that the host took away: cut.
    #[serde(default)]
    pub cut_share: f64,
    /// Requests a second with nothing cut.
    #[serde(default)]
    pub raw_rps: Option<f64>,
    /// CPU time of the agents, as a share of one CPU.
    #[serde(default)]
    pub agents_cpu_share: Option<f64>,
    /// What a recording of an agent that keeps a budget says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct More {
    /// One an arm that has hooks.
    pub hooks: Vec<HookCost>,
    /// What the arm's agents said that they cost, together, share of one CPU; each round.
    #[serde(default)]
    pub reported: Vec<(Arm, f64)>,
}

/// Everything that runs all the time.
pub struct Stage {
    monitor: Monitor,
    busy: Busy,
    agents: Agents,
    redis: Redis,
}

impl Experiment for Overhead {
    type Stage = Stage;
    /// A batch of blocks of slices.
    type Arm = ();
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "overhead"
    }

    fn about(&self) -> &'static str {
        "what watching costs Redis: throughput, CPU time and hook time per request"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<()>>> {
        Ok(Round::shuffled(if quick { 5 } else { 24 }, &[()]))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (redis, network) = Redis::start(context, "overhead")?;
        let hosts = &redis.hosts;
        let agents = Agents::start(context, hosts)?;
        let busy = Busy::start(hosts)?;
        let cpus = [hosts.server.cpu(), hosts.client.cpu()];
        context.stop.sleep(WARM_UP)?;
        let stage = Stage {
            monitor: Monitor::start(&cpus, &agents.pids()),
            busy,
            agents,
            redis,
        };
        Ok((stage, network))
    }

    fn prepare(&self, run: &mut Run<'_, More>, stage: &mut Stage) -> Result<()> {
        if run.more.hooks.is_empty() {
            for arm in [Arm::All, Arm::AllExchange] {
                let cost = stage.hook_cost(run.context, arm)?;
                run.note(&format!(
                    "{}: {:.0} ns in hooks per request and endpoint",
                    arm.name(),
                    cost.ns_per_request
                ));
                run.more.hooks.push(cost);
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        stage: &mut Stage,
        turn: Turn<'_, ()>,
    ) -> Result<Vec<Point>> {
        let Stage {
            monitor,
            busy,
            agents,
            redis,
        } = stage;
        let redis = &mut redis.server;
        let (round, stop) = (turn.round, &run.context.stop);
        let cpu = |pids: &[Pid]| pids.iter().map(|&pid| cpu_time(pid)).sum();
        let (began, pids) = (now_ns(), agents.pids());
        agents.take_costs();
        let slices = USUAL.run(
            stop,
            (round * (BLOCKS + 1), BLOCKS),
            &Arm::SLICED,
            |arm| agents.switch(arm),
            || busy.sample(redis, || cpu(&pids)),
        )?;
        for arm in [Arm::All, Arm::AllExchange] {
            let cost = agents.cost(arm);
            run.more.reported.extend(cost.map(|cost| (arm, cost)));
        }
        let gaps = monitor.gaps(began, now_ns());
        let mut points: Vec<_> = slices.iter().map(|slice| point(slice, &gaps)).collect();
        let block = round * (BLOCKS + 1) + BLOCKS;
        for (position, arm) in Arm::BUDGETED.into_iter().enumerate() {
            agents.switch(arm)?;
            stop.sleep(budget::SETTLE)?;
            agents.take_costs();
            let (began, pids) = (now_ns(), agents.pids_of(arm));
            let ticks = budget::record(stop, || {
                let sample = busy.sample(redis, || cpu(&pids))?;
                let counting = agents.count_now(arm)?;
                Ok(Tick { sample, counting })
            })?;
            let cost = agents.cost(arm);
            run.more.reported.extend(cost.map(|cost| (arm, cost)));
            let gaps = monitor.gaps(began, now_ns());
            if let [first, .., last] = &ticks[..] {
                let slice = Slice {
                    block,
                    position,
                    arm,
                    before: first.sample,
                    after: last.sample,
                };
                points.push(Point {
                    kept: Kept::of(&ticks, &gaps),
                    ..point(&slice, &gaps)
                });
            }
        }
        redis.check_alive()?;
        busy.check_alive()?;
        agents.check()?;
        Ok(points)
    }

    fn describe(&self, point: &Point) -> String {
        let cut = 100.0 * point.cut_share;
        let (block, rps) = (point.round + 1, point.rps);
        format!("block {block}: {rps:.0} requests/s, {cut:.0} % cut")
    }

    fn finish(&self, _run: &mut Run<'_, More>, stage: &mut Stage, _points: &[Point]) -> Result<()> {
        stage.agents.finish()
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        let strip = |(arm, color): (Arm, _)| {
            Strip::new(
                arm.name(),
                color,
                &compared(
                    &results.points,
                    arm,
                    |p| p.rps,
                    |kept| kept.throughput_ratio,
                ),
            )
        };
        let strips = [
            (Arm::Watch, NODELAY),
            (Arm::WatchExchange, NAGLE),
            (Arm::All, NODELAY),
            (Arm::AllExchange, NAGLE),
        ]
        .map(strip);
        let mut report = Report::new(
            "Overhead: what watching costs Redis",
            "redis-benchmark, 64-byte SETs, 10 connections, one request in flight on each. Agents \
             begin and end counting in slices of one run, in random order.",
        )
        .heading("Summary")
        .table(table(summary))
        .text(format!(
            "Medians with quartiles. `all` and `all-exchange` count everything; their ratios are medians \
             over blocks of slices, of a slice over that of the same block in which nobody counted, with \
             a 95 % bootstrap interval. `watch` and `watch-exchange` keep the default budget; their ratios \
             are medians over {} recordings of 8 s, in which each window is compared with the time around \
             it, and all CPU time of the agents between windows counts as lost. The host took away {} of \
             the time, which is cut in all arms by the same rule; what agents cause is not cut. That \
             `watch` leaves at least 99 % of the throughput is **{}**.",
            summary.pairs,
            percent(summary.cut_share),
            summary.verdict.name(),
        ))
        .figure(Figure::ratios(
            "throughput-ratio.svg",
            "Throughput over that of the same block with nothing attached",
            "throughput ratio",
            strips.into(),
        ))
        .heading("Time inside the hooks")
        .text(
            "From the kernel's own statistics, which add to it, in a separate time; for a request at \
             one of its two endpoints. With a watcher at each end, both ends being on one machine, \
             the tracepoints of each also run for the sockets of the other, which they skip.",
        );
        for cost in &results.more.hooks {
            let (arm, ns) = (cost.arm.name(), cost.ns_per_request);
            report = report
                .subheading(format!("{arm}: {ns:.0} ns per request and endpoint"))
                .table(cost.table());
        }
        report
    }
}

fn table(summary: &Summary) -> Table {
    type Row<'a> = (&'a &'static str, &'a ArmSummary);
    let ratio = |row: &Row, of: fn(&ArmSummary) -> Option<Ratio>| match *row.0 {
        "off" => "–".into(),
        _ => Ratio::text(of(row.1).as_ref()),
    };
    let ns = |ns: Option<f64>| ns.map_or_else(|| "–".into(), |ns| format!("{ns:.0}"));
    Table::of(
        &summary.arms,
        &[
            ("arm", &|row| (*row.0).into()),
            ("requests/s", &|row| quartiles(row.1.rps)),
            ("ratio", &|row| ratio(row, |arm| arm.throughput_ratio)),
            ("server CPU, ns/request", &|row| {
                quartiles(row.1.server_cpu_ns_per_request)
            }),
            ("ratio", &|row| ratio(row, |arm| arm.server_cpu_ratio)),
            ("client CPU, ns/request", &|row| {
                quartiles(row.1.client_cpu_ns_per_request)
            }),
            ("ratio", &|row| ratio(row, |arm| arm.client_cpu_ratio)),
            ("hooks, ns/request", &|row| ns(row.1.hook_ns_per_request)),
            ("agents, of a CPU", &|row| percent(row.1.agents_cpu_share)),
            ("cost, of a CPU", &|row| match row.1.cost {
                Some(c) => {
                    let [median, low, high] = [c.median, c.low, c.high].map(|c| 100.0 * c);
                    format!("{median:.2} % ({low:.2} – {high:.2})")
                }
                None => "–".into(),
            }),
            ("as reported", &|row| percent(row.1.cost_reported)),
        ],
    )
}

fn point(slice: &Slice<Arm, Sample>, gaps: &[Gap]) -> Point {
    let of = Stretch::between(&slice.before, &slice.after, gaps);
    Point {
        round: slice.block,
        position: slice.position,
        arm: slice.arm,
        rps: of.rps,
        requests: of.requests,
        server_cpu_ns_per_request: of.server_cpu_ns_per_request,
        client_cpu_ns_per_request: of.client_cpu_ns_per_request,
        cut_share: of.cut_share,
        raw_rps: Some(of.raw_rps),
        agents_cpu_share: Some(of.agents_cpu_share),
        kept: None,
    }
}

impl Stage {
    fn hook_cost(&mut self, context: &Context, arm: Arm) -> Result<HookCost> {
        self.agents.switch(arm)?;
        let pids = self.agents.pids();
        let enabled = StatsEnabled::new()?;
        let (before, requests_before) = (runs_of(&pids)?, self.busy.requests()?);
        context.stop.sleep(HOOKS)?;
        let (after, requests_after) = (runs_of(&pids)?, self.busy.requests()?);
        drop(enabled);
        let requests = requests_after.saturating_sub(requests_before);
        Ok(HookCost::between(arm, requests, &before, &after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_ends_in_a_quarter_of_an_hour_and_a_quick_one_in_three_minutes() {
        // what attaching and detaching takes, on a machine that builds beside it
        let switch = Duration::from_millis(40);
        let short = (USUAL.settle + USUAL.length + switch) * 3 * BLOCKS;
        let recorded = (budget::SETTLE + budget::LENGTH) * 2;
        let time = |quick| (short + recorded) * Overhead.rounds(quick).unwrap().len() as u32;
        assert!(time(false) < Duration::from_mins(16), "{:?}", time(false));
        assert!(time(true) < Duration::from_mins(3), "{:?}", time(true));
    }
}
