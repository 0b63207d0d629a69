//! Experiment `window-lives`, a drill: connections of random life, lossy, with small windows, pauses, resets and
//! every congestion control that there is, written to when TCP can send. Does every byte arrive, and does
//! anybody sleep who could send? With the agent, without one, and with agents that are killed.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::wire::WireSpec;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{END, agent};
use crate::Context;
use crate::engine::text::duration;
use crate::engine::{Experiment, NoMore, Report, Results, Round, Run, Table, Turn};

pub struct WindowLives;

const PORT: u16 = 7072;
/// Of what senders send: the share that is lost, and how long the rest takes.
const LOSS: f64 = 0.01;
const DELAY: Duration = Duration::from_millis(4);
/// Connections in all, over the arms.
const LIVES: u64 = 102_000;
const QUICK: u64 = 6_000;
/// An agent lives so long before it is killed.
const LIFE: Duration = Duration::from_secs(1);
/// No turn takes longer.
const LIMIT: Duration = Duration::from_secs(1_200);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    Agent,
    /// One agent after the other, each killed.
    Killed,
    Alone,
}

impl Arm {
    const ALL: [Self; 3] = [Self::Agent, Self::Killed, Self::Alone];

    fn label(self) -> &'static str {
        match self {
            Self::Agent => "batchwise window",
            Self::Killed => "agents that are killed",
            Self::Alone => "library alone",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub arm: Arm,
    /// How long it took.
    pub seconds: f64,
    #[serde(flatten)]
    pub said: Said,
}

/// What became of an arm's lives, as `load lives` says it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    pub lives: u64,
    pub whole: u64,
    pub reset: u64,
    pub failed: u64,
    pub why: Option<String>,
    pub bytes: u64,
    pub waits: u64,
    pub late: u64,
    pub latest_ns: u64,
    pub fallbacks: u64,
    pub controls: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub lives: u64,
    /// Lives that did not end as they were to: bytes did not arrive, or were not those that were sent.
    pub failed: u64,
    pub waits: u64,
    /// Waits that went on for more than twice the fallback's time after there was space.
    pub late: u64,
    pub latest_ns: u64,
    /// None of the above but waits.
    pub held: bool,
}

impl Experiment for WindowLives {
    type Stage = TwoHosts;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "window-lives"
    }

    fn about(&self) -> &'static str {
        "a drill: 100,000 connections of random life; does every byte arrive, does anybody sleep who could send?"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        Ok(Round::shuffled(1, &Arm::ALL))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.label().to_owned())
    }

    fn stage(&self, _context: &Context) -> Result<(TwoHosts, Value)> {
        let spec = WireSpec {
            delay: DELAY,
            ..WireSpec::losing(LOSS)
        };
        let hosts = TwoHosts::build_over("wlives", &spec)?;
        // tens of thousands of connections a minute: a port can be used again after a second
        let client = hosts.client.namespace();
        client.set_sysctl("net/ipv4/tcp_tw_reuse", "1")?;
        let network = serde_json::to_value(hosts.settings()?)?;
        Ok((hosts, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        hosts: &mut TwoHosts,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm) = (run.context, *turn.arm);
        let lives = if context.quick { QUICK } else { LIVES } / Arm::ALL.len() as u64;
        let socket = context.output.dir().join("window.sock");
        let start = || agent(context, &hosts.client, &socket, &[]);
        let mut agent = match arm {
            Arm::Alone => None,
            _ => Some(start()?),
        };
        let address = hosts.server_address(PORT).to_string();
        let mut command = Command::new(&context.command);
        command.args(["load", "lives-server", "--format", "json"]);
        let limit = format!("{}s", LIMIT.as_secs());
        command.args(["--addr", &address, "--duration", &limit]);
        let server: Printing<Value> =
            Printing::start(&hosts.server, "the receiver", command, Role::Workload)?;
        context.stop.sleep(Duration::from_millis(300))?;
        let mut command = Command::new(&context.command);
        command.args(["load", "lives", "--format", "json", "--addr", &address]);
        command.args(["--lives", &lives.to_string()]);
        command.env("BATCHWISE_WINDOW_SOCKET", &socket);
        let begin = Instant::now();
        let mut sender: Printing<Said> =
            Printing::start(&hosts.client, "the sender", command, Role::Workload)?;
        while arm == Arm::Killed && !sender.process().has_ended()? {
            context.stop.sleep(LIFE)?;
            if let Some(mut killed) = agent.take() {
                killed.end(Signal::SIGKILL, END)?;
            }
            agent = Some(start()?);
        }
        let status = sender.wait(&context.stop, LIMIT)?;
        ensure!(status.success(), "the sender failed{}", sender.quote());
        let seconds = begin.elapsed().as_secs_f64();
        let said = sender
            .take_lines()
            .pop()
            .context("the sender said nothing")?;
        if let Some(agent) = agent {
            agent.finish(END)?;
        }
        drop(server);
        Ok(vec![Point { arm, seconds, said }])
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "{}: {} lives, {} failed, {} waits, {} late, the latest {}",
            point.arm.label(),
            point.said.lives,
            point.said.failed,
            point.said.waits,
            point.said.late,
            duration(point.said.latest_ns as f64),
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        let said = || results.points.iter().map(|point| &point.said);
        let sum = |of: fn(&Said) -> u64| said().map(of).sum::<u64>();
        let (failed, late) = (sum(|s| s.failed), sum(|s| s.late));
        Summary {
            lives: sum(|s| s.lives),
            failed,
            waits: sum(|s| s.waits),
            late,
            latest_ns: said().map(|s| s.latest_ns).max().unwrap_or(0),
            held: failed + late == 0,
        }
    }

    fn report(&self, results: &Results<Point, NoMore>, _summary: &Summary) -> Report {
        let controls = |p: &Point| {
            let of = p
                .said
                .controls
                .iter()
                .map(|(name, count)| format!("{name} {count}"));
            of.collect::<Vec<_>>().join(", ")
        };
        let table = Table::of(
            &results.points,
            &[
                ("", &|p| p.arm.label().to_owned()),
                ("lives", &|p| p.said.lives.to_string()),
                ("whole", &|p| p.said.whole.to_string()),
                ("reset", &|p| p.said.reset.to_string()),
                ("failed", &|p| p.said.failed.to_string()),
                ("waits", &|p| p.said.waits.to_string()),
                ("late", &|p| p.said.late.to_string()),
                ("latest", &|p| duration(p.said.latest_ns as f64)),
                ("agents lost", &|p| p.said.fallbacks.to_string()),
                ("congestion control", &|p| controls(p)),
            ],
        );
        Report::new(
            "Window space: connections of random life",
            format!(
                "100 at a time, of 1 byte to 256 KiB, with pauses at both ends; half of the receivers have buffers of \
                 2 to 16 KiB, one in twenty resets. Of what is sent {} % is lost, the rest takes {} ms.",
                LOSS * 100.0,
                DELAY.as_millis()
            ),
        )
        .heading("Summary")
        .table(table)
        .text(
            "Late: whoever waited slept on for more than twice the fallback's time (half a round trip, 2 ms at least) \
             after TCP could send, as asked every 10 ms.",
        )
    }
}
