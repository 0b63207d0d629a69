//! Experiment `overhead`: what watching costs a Redis server that is kept busy by
//! `redis-benchmark`, in throughput, CPU time and time inside the hooks. This file owns the
//! measuring.

mod figures;
mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::bpf_stats::{self, StatsEnabled, runs_of};
use batchwise_testbed::host::Host;
use batchwise_testbed::redis::{Benchmark, PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use serde::Serialize;

use crate::frame::{Frame, Measured};
use crate::output::Progress;
use crate::rounds::{InRound, in_random_order};
use crate::{Context, Experiment};
use summary::Summary;

/// Between two lines of a watcher.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long one run of the benchmark should last.
const RUN_SECONDS: f64 = 3.0;

/// What watching costs.
pub struct Overhead;

/// What is attached during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Nothing.
    Off,
    /// One watcher that sees both ends.
    Watch,
    /// A watcher at each end, which exchange queue states.
    WatchExchange,
}

impl Arm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Watch, Self::WatchExchange];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Watch => "watch",
            Self::WatchExchange => "watch-exchange",
        }
    }
}

/// One run of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Runs of one round are compared with each other.
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    /// What was attached.
    pub arm: Arm,
    /// Requests a second.
    pub rps: f64,
    /// Requests.
    pub requests: u64,
    /// CPU time of the server process a request, ns.
    pub server_cpu_ns_per_request: f64,
    /// CPU time of the benchmark process a request, ns.
    pub client_cpu_ns_per_request: f64,
}

/// Time inside the hooks during one run, from the kernel's statistics.
#[derive(Clone, Debug, Serialize)]
pub struct HookCost {
    /// What was attached.
    pub arm: Arm,
    /// Requests in the run.
    pub requests: u64,
    /// A request at one of its two endpoints, ns.
    pub ns_per_request: f64,
    /// By program.
    pub programs: Vec<ProgramCost>,
}

/// One BPF program's part of [`HookCost`].
#[derive(Clone, Debug, Serialize)]
pub struct ProgramCost {
    /// Its name.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// Mean of a run, ns.
    pub ns_per_run: f64,
    /// How often it ran for a request, both endpoints together.
    pub runs_per_request: f64,
}

/// What was measured so far.
#[derive(Default)]
struct Runs {
    points: Vec<Point>,
    hooks: Vec<HookCost>,
}

#[derive(Serialize)]
struct Hooks<'a> {
    hooks: &'a [HookCost],
}

impl Experiment for Overhead {
    fn name(&self) -> &'static str {
        "overhead"
    }

    fn about(&self) -> &'static str {
        "what watching costs Redis: throughput, CPU time and hook time per request"
    }

    fn run(&self, context: &Context) -> Result<()> {
        Frame::run(self.name(), context, measure)
    }
}

impl Measured for Runs {
    fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn write(&self, frame: &Frame<'_>, complete: bool) -> Result<()> {
        let summary = Summary::of(&self.points, &self.hooks);
        let hooks = Hooks { hooks: &self.hooks };
        frame.write_result(complete, &self.points, &hooks, &summary)?;
        figures::write(frame, complete, self, &summary)
    }
}

impl InRound for Point {
    type Arm = Arm;

    fn round_and_arm(&self) -> (u32, Arm) {
        (self.round, self.arm)
    }
}

fn measure(frame: &Frame<'_>, hosts: &TwoHosts, measured: &mut Runs) -> Result<()> {
    let context = frame.context;
    let mut redis = RedisServer::start(&hosts.server, &context.stop)?;
    let benchmark = Benchmark::lasting(RUN_SECONDS, hosts, &context.stop)?;
    let rounds: u32 = if context.quick { 6 } else { 30 };
    let mut progress = Progress::new(rounds * 3 + 2);
    // Time inside the hooks first: those who stop a long run early have it.
    for arm in [Arm::Watch, Arm::WatchExchange] {
        let cost = hook_cost(context, hosts, arm, &benchmark)?;
        progress.step(&format!(
            "{}: {:.0} ns in hooks per request and endpoint",
            arm.name(),
            cost.ns_per_request
        ));
        measured.hooks.push(cost);
    }
    in_random_order(frame, rounds, &Arm::ALL, measured, |measured, turn| {
        let watchers = start_watchers(context, hosts, turn.arm)?;
        let cpu_before = redis.cpu_time()?;
        let result = benchmark.run(hosts, &context.stop)?;
        let server_cpu = redis.cpu_time()?.saturating_sub(cpu_before);
        finish_watchers(watchers)?;
        redis.check_alive()?;
        let per_request = |cpu: Duration| cpu.as_nanos() as f64 / benchmark.requests as f64;
        progress.step(&format!(
            "round {}: {} {:.0} requests/s",
            turn.round + 1,
            turn.arm.name(),
            result.rps
        ));
        measured.points.push(Point {
            round: turn.round,
            position: turn.position,
            arm: turn.arm,
            rps: result.rps,
            requests: benchmark.requests,
            server_cpu_ns_per_request: per_request(server_cpu),
            client_cpu_ns_per_request: per_request(result.client_cpu),
        });
        Ok(())
    })
}

/// Starts what `arm` has attached; returns once it is.
fn start_watchers(context: &Context, hosts: &TwoHosts, arm: Arm) -> Result<Vec<Watcher>> {
    let alone = WatchSpec {
        ports: &[PORT],
        interval: INTERVAL,
        units: None,
        exchange: false,
        cgroup: None,
    };
    let start = |host: &Host, spec: &WatchSpec<'_>| {
        Watcher::start(&context.command, host, spec, &context.stop)
    };
    let exchanging = |host: &Host| {
        start(
            host,
            &WatchSpec {
                exchange: true,
                cgroup: Some(host.cgroup()),
                ..alone.clone()
            },
        )
    };
    match arm {
        Arm::Off => Ok(Vec::new()),
        Arm::Watch => Ok(vec![start(&hosts.server, &alone)?]),
        Arm::WatchExchange => Ok(vec![
            exchanging(&hosts.server).context("at the server's end")?,
            exchanging(&hosts.client).context("at the client's end")?,
        ]),
    }
}

/// Ends watchers; one that saw no request measured nothing, and neither did the run.
fn finish_watchers(watchers: Vec<Watcher>) -> Result<()> {
    for mut watcher in watchers {
        watcher.check()?;
        if !watcher
            .finish()
            .iter()
            .any(|line| line.throughput_per_s > 0.0)
        {
            bail!("a watcher saw no request of the benchmark; see `batchwise doctor`");
        }
    }
    Ok(())
}

fn hook_cost(
    context: &Context,
    hosts: &TwoHosts,
    arm: Arm,
    benchmark: &Benchmark,
) -> Result<HookCost> {
    let watchers = start_watchers(context, hosts, arm)?;
    let pids: Vec<_> = watchers.iter().map(Watcher::pid).collect();
    let enabled = StatsEnabled::new()?;
    let before = runs_of(&pids)?;
    benchmark.run(hosts, &context.stop)?;
    let after = runs_of(&pids)?;
    drop(enabled);
    finish_watchers(watchers)?;
    Ok(cost_between(arm, benchmark.requests, &before, &after))
}

fn cost_between(
    arm: Arm,
    requests: u64,
    before: &BTreeMap<String, bpf_stats::Runs>,
    after: &BTreeMap<String, bpf_stats::Runs>,
) -> HookCost {
    let mut total_ns = 0;
    let mut programs = Vec::new();
    for (name, now) in after {
        let then = before.get(name).copied().unwrap_or_default();
        let (runs, ns) = (
            now.count.saturating_sub(then.count),
            now.time_ns.saturating_sub(then.time_ns),
        );
        if runs > 0 {
            total_ns += ns;
            programs.push(ProgramCost {
                name: name.clone(),
                runs,
                ns_per_run: ns as f64 / runs as f64,
                runs_per_request: runs as f64 / requests as f64,
            });
        }
    }
    HookCost {
        arm,
        requests,
        ns_per_request: total_ns as f64 / requests as f64 / 2.0,
        programs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_time_is_what_was_added_per_request_and_endpoint() {
        let runs = |count, time_ns| bpf_stats::Runs { count, time_ns };
        let before = BTreeMap::from([("bw_a".to_owned(), runs(10, 1000))]);
        let after = BTreeMap::from([
            ("bw_a".to_owned(), runs(210, 21_000)),
            ("bw_b".to_owned(), runs(100, 5_000)),
            ("bw_idle".to_owned(), runs(0, 0)),
        ]);
        let cost = cost_between(Arm::Watch, 100, &before, &after);
        assert_eq!(cost.ns_per_request, 125.0);
        assert_eq!(cost.programs.len(), 2);
        assert_eq!(
            (
                cost.programs[0].ns_per_run,
                cost.programs[0].runs_per_request
            ),
            (100.0, 2.0)
        );
    }
}
