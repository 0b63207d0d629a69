//! Experiment `hops`: a proxy whose two hops want opposite answers. To its clients it answers in two small writes, which Nagle's
//! algorithm holds back; of Redis it asks fifty things at once, which TCP_NODELAY sends one by one. All four settings by hand, in the
//! application, and `batchwise tune` at the proxy's host, which begins with the wrong ones.

mod summary;

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use batchwise_core::tune::report::{Decision, DecisionEvent, InForce};
use batchwise_testbed::process::now_ns;
use batchwise_testbed::redis::{self, RedisServer};
use batchwise_testbed::server;
use batchwise_testbed::topology::{CLIENT_IP, SERVER_IP, TwoHosts};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::Context;
use crate::applications::{Missing, lacking};
use crate::engine::color::{BATCHWISE, NAGLE, NODELAY};
use crate::engine::text::{duration, maybe_duration};
use crate::engine::{
    Experiment, Figure, Ratio, Report, Results, Round, Run, Strip, Table, Turn, two_hosts,
};
use crate::h2load;
use crate::tuner;
use summary::Summary;

pub struct Hops;

const PORT: u16 = 8091;
const NEEDS: &str = "go h2load";
/// What the agent has to find out; it is not counted, in any arm.
const LEARNING: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(2);
const CONNECTIONS: u32 = 8;
/// For a process to end.
const GRACE: Duration = Duration::from_secs(5);

/// Which hops have TCP_NODELAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Nodelay {
    /// Towards clients.
    pub front: bool,
    /// Towards Redis.
    pub back: bool,
}

/// Both are wrong.
pub const WORST: Nodelay = Nodelay {
    front: false,
    back: true,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// As the application asks.
    pub nodelay: Nodelay,
    pub tuned: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    pub arm: Arm,
    pub requests_per_s: f64,
    pub mean_ns: f64,
    /// What the agent had in force at the end, towards clients and towards Redis.
    pub in_force: Option<(InForce, InForce)>,
}

pub struct Stage {
    dir: TempDir,
    hosts: TwoHosts,
    redis: RedisServer,
}

impl Nodelay {
    fn name(self) -> String {
        let word = |nodelay| if nodelay { "TCP_NODELAY" } else { "Nagle" };
        format!("{} / {}", word(self.front), word(self.back))
    }
}

impl Arm {
    pub const TUNED: Self = Self {
        nodelay: WORST,
        tuned: true,
    };

    pub const fn by_hand(front: bool, back: bool) -> Self {
        let nodelay = Nodelay { front, back };
        Self {
            nodelay,
            tuned: false,
        }
    }

    pub fn all() -> Vec<Self> {
        let hands = [(false, false), (false, true), (true, false), (true, true)];
        let hands = hands.map(|(front, back)| Self::by_hand(front, back));
        hands.into_iter().chain([Self::TUNED]).collect()
    }

    pub fn name(self) -> String {
        match self.tuned {
            true => format!("{}, and `tune`", self.nodelay.name()),
            false => self.nodelay.name(),
        }
    }
}

impl Experiment for Hops {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = Missing;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "hops"
    }

    fn about(&self) -> &'static str {
        "a proxy whose two hops want opposite answers: all settings by hand, and tune"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        Ok(Round::shuffled(15, &Arm::all()))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let dir = TempDir::with_prefix("bw-hops-").context("making a directory")?;
        fs::write(
            dir.path().join("proxy.go"),
            include_str!("scripts/proxy.go"),
        )?;
        let (hosts, network) = two_hosts("hops")?;
        let redis = RedisServer::start(&hosts.server, &context.stop)?;
        Ok((Stage { dir, hosts, redis }, network))
    }

    fn prepare(&self, run: &mut Run<'_, Missing>, stage: &mut Stage) -> Result<()> {
        if let Some(why) = lacking(NEEDS) {
            run.more.missing.insert("proxy".into(), why);
            return Ok(());
        }
        let mut build = Command::new("go");
        build.args(["build", "-o", "proxy", "proxy.go"]);
        let built = build.current_dir(stage.dir.path()).output()?;
        let said = String::from_utf8_lossy(&built.stderr);
        ensure!(built.status.success(), "go build failed: {said}");
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, Missing>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm) = (run.context, *turn.arm);
        if !run.more.missing.is_empty() {
            return Ok(Vec::new());
        }
        let here = &stage.hosts.client;
        let mut command = Command::new(stage.dir.path().join("proxy"));
        // what MPTCP carries is not seen
        command.env("GODEBUG", "multipathtcp=0");
        command.arg(format!("{SERVER_IP}:{}", redis::PORT));
        command.arg(format!("0.0.0.0:{PORT}"));
        let Nodelay { front, back } = arm.nodelay;
        command.args(front.then_some("front"));
        command.args(back.then_some("back"));
        let mut proxy = server::start(
            here,
            ("proxy", "golang"),
            command,
            PORT,
            |_| Ok(()),
            &context.stop,
        )?;
        let agent = arm.tuned.then(|| {
            let redis = redis::PORT.to_string();
            tuner::start(context, here, PORT, &["--port", &redis])
        });
        let agent = agent.transpose()?;
        let begun = now_ns();
        let load = h2load::Load {
            url: &format!("http://{CLIENT_IP}:{PORT}/"),
            connections: CONNECTIONS,
            rate: None,
            time: LEARNING + COUNTED,
        };
        let mut requests = h2load::run(context, &stage.hosts.server, stage.dir.path(), &load)?;
        let decisions = agent.map(|agent| agent.finish(GRACE)).transpose()?;
        proxy.check_alive()?;
        proxy.terminate(GRACE);
        stage.redis.check_alive()?;
        requests.retain(|(at, _)| *at > begun + LEARNING.as_nanos() as u64);
        let count = requests.len() as f64;
        let took: f64 = requests.iter().map(|(_, took)| took).sum();
        Ok(vec![Point {
            round: turn.round,
            arm,
            requests_per_s: count / COUNTED.as_secs_f64(),
            mean_ns: took / count.max(1.0),
            in_force: decisions.map(|all| in_force(&all)),
        }])
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "round {}, {}: {:.0} requests/s, mean {}",
            point.round + 1,
            point.arm.name(),
            point.requests_per_s,
            duration(point.mean_ns)
        )
    }

    fn summary(&self, results: &Results<Point, Missing>) -> Summary {
        Summary::of(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Point, Missing>, summary: &Summary) -> Report {
        let strip = |label, color, arm| {
            Strip::new(
                label,
                color,
                &summary::pairs_of(&results.points, arm, Arm::by_hand(true, false)),
            )
        };
        let report = Report::new(
            "Hops: a proxy that needs opposite answers",
            "A proxy in Go with its own CPU; its clients (h2load, 8 connections, as soon as they are answered) and Redis on the other. It answers in two small writes, and \
             asks Redis fifty things at once over one connection. Settings: towards clients / towards Redis. The agent runs at the proxy's host, for both ports; the first \
             three seconds are not counted.",
        )
        .table(Table::of(
            &summary.arms,
            &[
                ("setting", &|a| a.name.clone()),
                ("requests/s", &|a| a.requests_per_s.map_or_else(|| "–".into(), |n| format!("{n:.0}"))),
                ("mean latency", &|a| maybe_duration(a.mean_ns)),
                ("throughput / TCP_NODELAY, Nagle", &|a| Ratio::text(a.vs_best.as_ref())),
            ],
        ))
        .text(format!(
            "`tune` had TCP_NODELAY towards clients and Nagle's algorithm towards Redis in force in {} of {} rounds.",
            summary.both_right, summary.rounds
        ))
        .figure(Figure::ratios(
            "throughput.svg",
            "throughput over TCP_NODELAY towards clients, Nagle's algorithm towards Redis, by hand",
            "ratio",
            vec![
                strip("as asked for", NAGLE, Arm::by_hand(false, true)),
                strip("TCP_NODELAY on both", NODELAY, Arm::by_hand(true, true)),
                strip("tune", BATCHWISE, Arm::TUNED),
            ],
        ));
        report.left_out(&summary.missing)
    }
}

/// What was in force on each hop before the agent stopped.
fn in_force(decisions: &[Decision]) -> (InForce, InForce) {
    let of = |port: u16| {
        let name = format!(":{port}");
        let mut mine = decisions.iter().filter(|d| d.service.ends_with(&name));
        let last = mine.rfind(|d| d.event != DecisionEvent::Stop);
        last.map_or(InForce::App, |d| d.nagle)
    };
    (of(PORT), of(redis::PORT))
}
