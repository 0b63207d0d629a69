//! Experiment `window-cost`: what it costs to write when TCP can send: system calls and CPU time of the server,
//! time of the programs for a segment that arrives, and how late events are heard. By the number of
//! connections.

mod calls;
mod summary;

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::bpf_stats::{StatsEnabled, runs_of};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::process::cpu_time;
use batchwise_testbed::topology::TwoHosts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DELAY, END, QUEUE, RATE, agent, last, narrow};
use crate::Context;
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{duration, thousands};
use crate::engine::{Experiment, NoMore, Ratio, Report, Results, Round, Run, Table, Turn};
use calls::Calls;
use summary::{Compared, Summary};

pub struct WindowCost;

const PORT: u16 = 7071;
/// Before what is measured: 10,000 clients take 2 s to connect.
const WARM_UP: u64 = 4;
/// After it, so that the server outlives its clients.
const GRACE: u64 = 2;

/// What the server writes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Default,
    Kist10,
    Kist2,
    /// `batchwise window`.
    Window,
    /// The default, beside the agent of others.
    Beside,
}

impl Way {
    pub const ALL: [Self; 5] = [
        Self::Default,
        Self::Kist10,
        Self::Kist2,
        Self::Window,
        Self::Beside,
    ];

    /// For `load downloads-server --policy`.
    fn policy(self) -> &'static str {
        match self {
            Self::Default | Self::Beside => "default",
            Self::Kist10 => "kist:10ms",
            Self::Kist2 => "kist:2ms",
            Self::Window => "window",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Kist10 => "KIST, 10 ms",
            Self::Kist2 => "KIST, 2 ms",
            Self::Window => "batchwise window",
            Self::Beside => "default, beside the agent",
        }
    }

    fn has_agent(self) -> bool {
        matches!(self, Self::Window | Self::Beside)
    }
}

/// So many connections, and what each downloads.
#[derive(Clone, Copy, Debug)]
pub struct Many {
    pub connections: u32,
    size: &'static str,
    pauses: [&'static str; 2],
}

/// The last ones rest most of the time, and fill four fifths of the link together.
pub const MANY: [Many; 3] = [
    Many {
        connections: 10,
        size: "10485760",
        pauses: ["100ms", "1s"],
    },
    Many {
        connections: 100,
        size: "10485760",
        pauses: ["100ms", "1s"],
    },
    Many {
        connections: 10_000,
        size: "2048",
        pauses: ["1s", "3s"],
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Arm {
    pub connections: u32,
    pub way: Way,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    #[serde(flatten)]
    pub arm: Arm,
    /// What the clients got.
    pub bytes_per_s: f64,
    /// System calls of the server.
    pub calls_per_s: f64,
    /// TCP_INFO, of the whole run.
    pub asked_per_s: f64,
    /// CPU time of the server, as a share of a CPU.
    pub cpu: f64,
    /// CPU time of the agent, as a share of a CPU.
    pub agent_cpu: Option<f64>,
    /// 99 of 100 events are heard in so many ns.
    pub lag_p99_ns: Option<f64>,
    /// Runs of the agent's programs for a segment that arrives at the server, …
    pub runs_per_segment: Option<f64>,
    /// … and their time, ns.
    pub ns_per_segment: Option<f64>,
}

/// What has been counted so far.
struct Seen {
    calls: u64,
    cpu: Duration,
    agent_cpu: Option<Duration>,
    segments: u64,
    runs: u64,
    time_ns: u64,
}

impl Experiment for WindowCost {
    type Stage = TwoHosts;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "window-cost"
    }

    fn about(&self) -> &'static str {
        "what it costs to write when TCP can send: system calls, CPU time, time for a segment, lag"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        let arms: Vec<_> = MANY
            .iter()
            .flat_map(|many| {
                Way::ALL.map(|way| Arm {
                    connections: many.connections,
                    way,
                })
            })
            .collect();
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &arms))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.connections.to_string())
    }

    fn stage(&self, _context: &Context) -> Result<(TwoHosts, Value)> {
        narrow("wcost")
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        hosts: &mut TwoHosts,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm) = (run.context, *turn.arm);
        let many = MANY.iter().find(|m| m.connections == arm.connections);
        let many = many.context("a number of connections that there is not")?;
        let seconds: u64 = if context.quick { 2 } else { 8 };
        let socket = context.output.dir().join("window.sock");
        let _stats = StatsEnabled::new()?;
        let mut agent = match arm.way.has_agent() {
            true => Some(agent(context, &hosts.server, &socket, &[])?),
            false => None,
        };
        let address = hosts.server_address(PORT).to_string();
        let whole = format!("{}s", WARM_UP + seconds + GRACE);
        let mut command = Command::new(&context.command);
        command.args(["load", "downloads-server", "--format", "json"]);
        command.args(["--addr", &address, "--policy", arm.way.policy()]);
        command.args(["--duration", &whole]);
        command.env("BATCHWISE_WINDOW_SOCKET", &socket);
        let mut server: Printing<Value> =
            Printing::start(&hosts.server, "the server", command, Role::Workload)?;
        context.stop.sleep(Duration::from_millis(300))?;
        let calls = Calls::of(server.process().pid())?;
        let mut command = Command::new(&context.command);
        command.args(["load", "downloads", "--format", "json", "--addr", &address]);
        command.args(["--clients", &many.connections.to_string()]);
        command.args(["--size", many.size, "--pause", many.pauses[0]]);
        command.args(["--longest-pause", many.pauses[1]]);
        command.args(["--warmup", &format!("{WARM_UP}s")]);
        command.args(["--duration", &format!("{seconds}s")]);
        let clients: Printing<Value> =
            Printing::start(&hosts.client, "the clients", command, Role::Workload)?;
        context.stop.sleep(Duration::from_secs(WARM_UP))?;
        let mut see = || {
            let agent = agent.as_mut().map(|agent| agent.process().pid());
            let runs = runs_of(agent.as_slice())?;
            Ok::<_, anyhow::Error>(Seen {
                calls: calls.count(),
                cpu: cpu_time(server.process().pid())?,
                agent_cpu: agent.map(cpu_time).transpose()?,
                segments: segments(&hosts.server)?,
                runs: runs.values().map(|runs| runs.count).sum(),
                time_ns: runs.values().map(|runs| runs.time_ns).sum(),
            })
        };
        let before = see()?;
        context.stop.sleep(Duration::from_secs(seconds))?;
        let after = see()?;
        let seen = last(clients, "the clients", context)?;
        let did = last(server, "the server", context)?;
        if let Some(agent) = agent {
            agent.finish(END)?;
        }
        let time = seconds as f64;
        let segments = (after.segments - before.segments).max(1) as f64;
        let of_programs = |count: u64| arm.way.has_agent().then(|| count as f64 / segments);
        let spent = |before: Duration, after: Duration| (after - before).as_secs_f64() / time;
        let number = |of: &Value, name: &str| of[name].as_f64();
        Ok(vec![Point {
            round: turn.round,
            arm,
            bytes_per_s: number(&seen, "bytes_per_s").unwrap_or(f64::NAN),
            calls_per_s: (after.calls - before.calls) as f64 / time,
            asked_per_s: number(&did, "asked").unwrap_or(f64::NAN) / (WARM_UP as f64 + time),
            cpu: spent(before.cpu, after.cpu),
            agent_cpu: before
                .agent_cpu
                .zip(after.agent_cpu)
                .map(|(b, a)| spent(b, a)),
            lag_p99_ns: number(&did, "lag_p99_ns"),
            runs_per_segment: of_programs(after.runs - before.runs),
            ns_per_segment: of_programs(after.time_ns - before.time_ns),
        }])
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "{} connections, {}: {} calls/s, {:.1} % of a CPU, {}B/s",
            point.arm.connections,
            point.arm.way.label(),
            thousands(point.calls_per_s),
            point.cpu * 100.0,
            thousands(point.bytes_per_s),
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        Report::new(
            "Window space: what it costs",
            format!(
                "Clients download over a link of {RATE} that queues {QUEUE}, {} ms from the server: 10 and 100 that pause \
                 for up to 1 s after 10 MiB, and 10,000 that pause for 1 to 3 s after 2 KiB.",
                DELAY.as_millis()
            ),
        )
        .heading("Summary")
        .table(table(&summary.arms))
        .text(
            "Medians over rounds; ratios with 95 % bootstrap intervals. Calls: all system calls of the server's process. \
             A segment: one that arrives at the server, most of them acknowledgments; the programs' time as the kernel \
             counts it (`kernel.bpf_stats_enabled`), which reads a clock twice a run.",
        )
    }
}

/// Segments that TCP took in, in the host's network.
fn segments(host: &Host) -> Result<u64> {
    let text = host.inside(|| Ok(fs::read_to_string("/proc/thread-self/net/snmp")?))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next(), lines.next());
    let column = names.and_then(|n| n.split_whitespace().position(|name| name == "InSegs"));
    let value = values
        .zip(column)
        .and_then(|(v, at)| v.split_whitespace().nth(at));
    Ok(value.context("/proc/net/snmp has no InSegs")?.parse()?)
}

fn table(arms: &[Compared]) -> Table {
    let per_cent =
        |share: Option<f64>| share.map_or("–".into(), |s| format!("{:.2} %", s * 100.0));
    let time = |ns: Option<f64>| ns.map_or("–".into(), duration);
    Table::of(
        arms,
        &[
            ("connections", &|c| c.arm.connections.to_string()),
            ("", &|c| c.arm.way.label().to_owned()),
            ("carried", &|c| format!("{}B/s", thousands(c.bytes_per_s))),
            ("calls", &|c| format!("{}/s", thousands(c.calls_per_s))),
            ("/ KIST, 2 ms", &|c| Ratio::text(c.calls_vs_kist.as_ref())),
            ("TCP_INFO", &|c| format!("{}/s", thousands(c.asked_per_s))),
            ("CPU", &|c| per_cent(Some(c.cpu))),
            ("/ default", &|c| Ratio::text(c.cpu_vs_default.as_ref())),
            ("agent", &|c| per_cent(c.agent_cpu)),
            ("lag, p99", &|c| time(c.lag_p99_ns)),
            ("a segment", &|c| time(c.ns_per_segment)),
            ("runs a segment", &|c| {
                c.runs_per_segment.map_or("–".into(), |r| format!("{r:.3}"))
            }),
        ],
    )
}
