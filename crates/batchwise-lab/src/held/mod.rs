//! Experiment `held`: servers that answer in two small writes and leave Nagle's algorithm on, so that the second waits
//! for a delayed acknowledgment. As they are, with the cure by hand, and with `batchwise tune`: at the server, where the cure is
//! TCP_NODELAY, and at the client, where it is to acknowledge sooner, by each lever.

mod summary;

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_core::tune::report::{Decision, DecisionEvent};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::process::{Process, now_ns};
use batchwise_testbed::server;
use batchwise_testbed::topology::{LINK, SERVER_IP, TwoHosts};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::Context;
use crate::applications::{Missing, lacking};
use crate::engine::color::{BATCHWISE, NAGLE, NODELAY};
use crate::engine::text::{maybe_duration, name, ratio};
use crate::engine::{
    Axis, Experiment, Figure, Report, Results, Round, Run, Table, Turn, two_hosts,
};
use crate::h2load::{self, Request};
use crate::tuner;
use summary::{Compared, Summary};

pub struct Held;

const PORT: u16 = 8090;
/// What the agent has to find out.
const LEARNING: Duration = Duration::from_secs(3);
/// For a server to end, and an agent.
const GRACE: Duration = Duration::from_secs(5);
/// No request takes that long unless it is held: the least that a delayed acknowledgment takes (TCP_DELACK_MIN).
const HOLD_NS: f64 = 40e6;

/// A server that people use. `DIR` is the folder with what `scripts/` holds.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    needs: &'static str,
    prepare: &'static str,
    run: &'static str,
}

const SERVERS: &[Server] = &[
    Server {
        name: "python",
        needs: "python3 h2load",
        prepare: "",
        run: "python3 $DIR/server.py $PORT",
    },
    Server {
        name: "node",
        needs: "node h2load",
        prepare: "",
        run: "node $DIR/server.js $PORT",
    },
    Server {
        name: "jdk",
        needs: "javac java h2load",
        prepare: "javac -d $DIR $DIR/Server.java",
        run: "java -cp $DIR Server $PORT",
    },
    Server {
        name: "go-proxy",
        needs: "go h2load",
        prepare: "cd $DIR && go build -o proxy proxy.go",
        run: "$DIR/proxy $PORT",
    },
];

const FILES: [(&str, &str); 4] = [
    ("server.py", include_str!("scripts/server.py")),
    ("server.js", include_str!("scripts/server.js")),
    ("Server.java", include_str!("scripts/Server.java")),
    ("proxy.go", include_str!("scripts/proxy.go")),
];

/// Who sees to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// Nobody.
    Own,
    /// An agent that holds the cure, as one would by hand.
    Hand,
    /// `batchwise tune`.
    Tune,
}

impl Who {
    const ALL: [Self; 3] = [Self::Own, Self::Hand, Self::Tune];
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cure {
    /// TCP_NODELAY, by an agent at the server.
    Nagle,
    /// Acknowledgments that the client's sockets do not delay as long, …
    AckSocket,
    /// … that a route to the server does not delay at all, …
    AckRoute,
    /// … and that the client's namespace does not: an administrator has a route to the server already.
    AckNamespace,
}

impl Cure {
    const ALL: [Self; 4] = [
        Self::Nagle,
        Self::AckSocket,
        Self::AckRoute,
        Self::AckNamespace,
    ];

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Nagle => &["--knob", "nagle"],
            Self::AckSocket => &["--knob", "delack"],
            Self::AckRoute => &["--knob", "delack", "--scope", "route"],
            Self::AckNamespace => &["--knob", "delack", "--scope", "namespace"],
        }
    }
}

#[derive(Clone, Copy)]
pub struct Arm {
    server: &'static Server,
    cure: Cure,
    load: Load,
    who: Who,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub connections: u32,
    /// Each asks ten times a second, or else as soon as it is answered.
    pub paced: bool,
}

impl Load {
    pub fn name(self) -> String {
        let pace = if self.paced {
            "10/s each"
        } else {
            "closed loop"
        };
        format!("{} connections, {pace}", self.connections)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub server: String,
    pub cure: Cure,
    pub load: Load,
    pub who: Who,
    pub requests: usize,
    /// Of the requests after the first three seconds.
    pub mean_ns: Option<f64>,
    /// Of these, those that took 40 ms and more, a minute: a stall of the machine or of the server's threads does that, too.
    pub slow_per_minute: f64,
    /// The mean of each second.
    pub seconds_ns: Vec<Option<f64>>,
    /// From the load's begin to the agent's first adoption, s.
    pub adopted_s: Option<f64>,
    /// Requests that were held though they began after that.
    pub held_after: Option<usize>,
    pub events: Vec<DecisionEvent>,
}

pub struct Stage {
    dir: TempDir,
    hosts: TwoHosts,
}

impl Stage {
    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).env("DIR", self.dir.path());
        command.env("PORT", PORT.to_string());
        // what MPTCP carries is not seen
        command.env("GODEBUG", "multipathtcp=0");
        command
    }

    fn server(&self, context: &Context, arm: &Arm) -> Result<Process> {
        let command = self.shell(&format!("exec {}", arm.server.run));
        let names = (arm.server.name, "dash");
        let host = &self.hosts.server;
        server::start(host, names, command, PORT, |_| Ok(()), &context.stop)
    }

    fn agent(&self, context: &Context, arm: &Arm) -> Result<Option<Printing<Decision>>> {
        let hold: &[&str] = match arm.who {
            Who::Own => return Ok(None),
            Who::Hand => &["--hold", "off"],
            Who::Tune => &[],
        };
        let host = match arm.cure {
            Cure::Nagle => &self.hosts.server,
            _ => &self.hosts.client,
        };
        let options = [arm.cure.options(), hold].concat();
        tuner::start(context, host, PORT, &options).map(Some)
    }

    fn load(&self, context: &Context, load: Load, time: Duration) -> Result<Vec<Request>> {
        let load = h2load::Load {
            url: &format!("http://{SERVER_IP}:{PORT}/"),
            connections: load.connections,
            rate: load.paced.then_some(10),
            time,
        };
        h2load::run(context, &self.hosts.client, self.dir.path(), &load)
    }
}

/// What is compared has the same time: servers get faster while they run.
fn time(who: Who, quick: bool) -> Duration {
    LEARNING
        + Duration::from_secs(match (who, quick) {
            (Who::Own, false) => 7,
            (Who::Own, true) => 3,
            (_, false) => 60,
            (_, true) => 12,
        })
}

impl Experiment for Held {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = Missing;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "held"
    }

    fn about(&self) -> &'static str {
        "servers whose second write waits for a delayed ACK: as they are, cured by hand, and tune"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let mut arms = Vec::new();
        let connections: &[u32] = if quick { &[5] } else { &[1, 5, 20] };
        for server in SERVERS {
            for &connections in connections {
                for paced in [false, true] {
                    let load = Load { connections, paced };
                    // what the client does is the same for all servers, and where nothing is held no lever is pulled
                    let is_first = server.name == SERVERS[0].name;
                    let cures = match (is_first, paced) {
                        (true, false) => &Cure::ALL[..],
                        (true, true) => &Cure::ALL[..2],
                        (false, _) => &Cure::ALL[..1],
                    };
                    for &cure in cures {
                        arms.extend(Who::ALL.map(|who| Arm {
                            server,
                            cure,
                            load,
                            who,
                        }));
                    }
                }
            }
        }
        Ok(vec![Round::in_order(arms)])
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.server.name.into())
    }

    fn stage(&self, _context: &Context) -> Result<(Stage, Value)> {
        let dir = TempDir::with_prefix("bw-held-").context("making a directory")?;
        for (name, text) in FILES {
            fs::write(dir.path().join(name), text)?;
        }
        let (hosts, network) = two_hosts("held")?;
        Ok((Stage { dir, hosts }, network))
    }

    fn prepare(&self, run: &mut Run<'_, Missing>, stage: &mut Stage) -> Result<()> {
        for server in SERVERS {
            let why = match lacking(server.needs) {
                Some(why) => why,
                None => {
                    let output = stage.shell(server.prepare).output()?;
                    if output.status.success() {
                        continue;
                    }
                    String::from_utf8_lossy(&output.stderr).trim().to_owned()
                }
            };
            run.more.missing.insert(server.name.into(), why);
        }
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, Missing>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm) = (run.context, turn.arm);
        if run.more.missing.contains_key(arm.server.name) {
            return Ok(Vec::new());
        }
        let client = stage.hosts.client.namespace();
        let route = |what| client.ip(&format!("route {what} {SERVER_IP} dev {LINK}"));
        if arm.cure == Cure::AckNamespace {
            route("replace")?;
        }
        let mut server = stage.server(context, arm)?;
        let agent = stage.agent(context, arm)?;
        let (begun, time) = (now_ns(), time(arm.who, context.quick));
        let requests = stage.load(context, arm.load, time)?;
        let decisions = agent.map_or_else(|| Ok(Vec::new()), |agent| agent.finish(GRACE))?;
        server.check_alive()?;
        server.terminate(GRACE);
        if arm.cure == Cure::AckNamespace {
            route("del")?;
        }
        Ok(vec![Point::of(arm, begun, time, &requests, &decisions)])
    }

    fn describe(&self, point: &Point) -> String {
        let held = point.held_after.map_or_else(String::new, |n| {
            format!(", {n} held after the first adoption")
        });
        format!(
            "{}, {}, {}, {:?}: mean {}{held}",
            point.server,
            name(point.cure),
            point.load.name(),
            point.who,
            maybe_duration(point.mean_ns)
        )
    }

    fn summary(&self, results: &Results<Point, Missing>) -> Summary {
        Summary::of(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Point, Missing>, summary: &Summary) -> Report {
        let mut report = Report::new(
            "Held: a second write that waits for a delayed acknowledgment",
            "Servers that leave Nagle's algorithm on and answer in two small writes, a CPU each for server and client; truth is h2load's log of \
             each request. The agent runs at the server alone (`nagle`), or at the client alone (`ack-…`), and is there before the load.",
        )
        .heading("Mean latency after the first three seconds")
        .table(Table::of(
            &summary.points,
            &[
                ("server", &|c: &&Compared| c.server.clone()),
                ("cure", &|c| name(c.cure)),
                ("load", &|c| c.load.name()),
                ("as it is", &|c| maybe_duration(c.own_ns)),
                ("cured by hand", &|c| maybe_duration(c.hand_ns)),
                ("`tune`", &|c| maybe_duration(c.tune_ns)),
                ("`tune` / better", &|c| ratio(c.tune_vs_better)),
                ("adopted after", &|c| maybe_duration(c.adopted_s.map(|s| s * 1e9))),
                ("held after that", &|c| c.held_after.map_or_else(|| "–".into(), |n| n.to_string())),
                ("40 ms and more, a minute: by hand, `tune`", &|c| {
                    let slow = |n: Option<f64>| n.map_or_else(|| "–".into(), |n| format!("{n:.0}"));
                    format!("{}, {}", slow(c.hand_slow_per_minute), slow(c.tune_slow_per_minute))
                }),
                ("tests", &|c| c.tests.to_string()),
            ],
        ));
        let closed = summary
            .points
            .iter()
            .filter(|c| !c.load.paced && c.load.connections == 5);
        for compared in closed {
            report = report.figure(figure(&results.points, compared));
        }
        report.left_out(&summary.missing)
    }
}

impl Point {
    fn of(
        arm: &Arm,
        begun: u64,
        time: Duration,
        requests: &[Request],
        decisions: &[Decision],
    ) -> Self {
        let since = |at: u64| at.saturating_sub(begun) as f64 / 1e9;
        let mean = |from: f64, to: f64| {
            let inside = requests
                .iter()
                .filter(|(at, _)| (from..to).contains(&since(*at)));
            let (sum, count) =
                inside.fold((0.0, 0), |(sum, count), (_, took)| (sum + took, count + 1));
            (count > 0).then(|| sum / f64::from(count))
        };
        let seconds = 0..time.as_secs();
        let adopted = decisions.iter().find(|d| d.event == DecisionEvent::Adopt);
        let adopted = adopted.map(|d| d.ts_ns);
        let held = |from: u64| {
            let later = requests
                .iter()
                .filter(|(at, took)| *at > from && *took >= HOLD_NS);
            later.count()
        };
        Self {
            server: arm.server.name.into(),
            cure: arm.cure,
            load: arm.load,
            who: arm.who,
            requests: requests.len(),
            mean_ns: mean(LEARNING.as_secs_f64(), f64::INFINITY),
            slow_per_minute: {
                let counted = (time - LEARNING).as_secs_f64();
                held(begun + LEARNING.as_nanos() as u64) as f64 * 60.0 / counted
            },
            seconds_ns: seconds.map(|s| mean(s as f64, s as f64 + 1.0)).collect(),
            adopted_s: adopted.map(since),
            held_after: adopted.map(held),
            events: decisions.iter().map(|d| d.event).collect(),
        }
    }
}

fn figure(points: &[Point], of: &Compared) -> Figure {
    let mut figure = Figure::over_time(
        format!("{}-{}.svg", of.server, name(of.cure)),
        format!(
            "{}, {}, {}: mean latency of each second",
            of.server,
            name(of.cure),
            of.load.name()
        ),
        Axis::latency().log(),
    );
    let own = points
        .iter()
        .filter(|p| (&p.server, p.cure, p.load) == (&of.server, of.cure, of.load));
    for point in own {
        let (label, color) = match point.who {
            Who::Own => ("as it is", NAGLE),
            Who::Hand => ("cured by hand", NODELAY),
            Who::Tune => ("tune", BATCHWISE),
        };
        let seconds = point.seconds_ns.iter().enumerate();
        let line = seconds.filter_map(|(s, ns)| Some((s as f64 + 0.5, (*ns)?)));
        figure = figure.line(label, color, line.collect());
    }
    figure
}
