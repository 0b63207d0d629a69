//! Experiment `applications`: is what `watch` says of real applications true, at either end alone, with
//! everything counted and with its default budget?

mod report;
mod summary;
mod table;
mod truths;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_core::sense::report::Side;
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::process::{Process, now_ns};
use batchwise_testbed::server;
use batchwise_testbed::topology::{LINK, SERVER_IP, TwoHosts};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use crate::Context;
use crate::budget::LAST_LINE;
use crate::budget::agents::{Agents, End, SIDES, inside};
use crate::budget::clients::{Truth, of_benchmark, of_generator};
use crate::budget::load::Runner;
use crate::engine::text::{maybe_duration, name, percent};
use crate::engine::{Experiment, Judgement, Report, Results, Round, Run, Turn, two_hosts};
use crate::passive::capture::Capture;
use crate::tails::{Budget, wire};
use summary::{Errors, Summary};
pub use table::lacking;
use table::{APPLICATIONS, Application, Says};
use truths::Asks;

pub struct Applications;

/// From the agents' start to the load's: an agent takes CPU time while it begins.
const LEAD: Duration = Duration::from_secs(3);
/// Requests from which redis-benchmark's rate is learned.
const FIRST_REQUESTS: f64 = 50_000.0;
/// For a server to end.
const GRACE: Duration = Duration::from_secs(5);

/// What the applications need beside themselves.
const FILES: [(&str, &str); 7] = [
    ("patterns.py", include_str!("scripts/patterns.py")),
    ("two-writes.js", include_str!("scripts/two-writes.js")),
    ("nginx.conf", include_str!("scripts/nginx.conf")),
    ("haproxy.cfg", include_str!("scripts/haproxy.cfg")),
    ("grpc/main.go", include_str!("scripts/grpc/main.go")),
    ("grpc/go.mod", include_str!("scripts/grpc/go.mod")),
    ("grpc/go.sum", include_str!("scripts/grpc/go.sum")),
];

#[derive(Clone, Copy)]
pub struct Arm {
    application: &'static Application,
    load: u32,
    budget: Budget,
}

/// One load, as its client, a capture, and the agents at both ends saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub application: String,
    pub load: u32,
    pub budget: Budget,
    pub log: Truth,
    /// By a capture at the client's link: without the client's own time from a read to its note. null: none was made.
    pub captured: Option<Truth>,
    /// Requests that were never answered, as the client says.
    pub unanswered: usize,
    /// Without an end whose agent printed no line.
    pub ends: BTreeMap<Side, Seen>,
}

/// What an agent said inside the load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub end: End,
    pub lines: Vec<Said>,
}

/// What a line said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    pub total_ns: Option<u64>,
    pub confidence: f64,
    /// Why there is no total.
    pub why: Option<String>,
    pub under_way: Option<u64>,
    pub oldest_ns: Option<u64>,
}

/// What was left out, and why.
#[derive(Default, Serialize, Deserialize)]
pub struct Missing {
    pub missing: BTreeMap<String, String>,
}

pub struct Stage {
    prepared: BTreeSet<&'static str>,
    dir: TempDir,
    hosts: TwoHosts,
}

impl Point {
    pub fn name(&self) -> String {
        format!("{}/{}", self.application, self.load)
    }
}

impl Stage {
    fn shell(&self, context: &Context, arm: &Arm, script: &str) -> Command {
        let mut command = Command::new("sh");
        let dir = self.dir.path();
        command.args(["-ec", script]).env("DIR", dir);
        command.env("LOG", dir.join("log/requests"));
        command.env("NAME", arm.application.name);
        command.env("LOAD", arm.load.to_string());
        command.env("TIME", length(context).as_secs().to_string());
        command.env("ADDR", SERVER_IP.to_string());
        command.env("BATCHWISE", &context.command);
        command
    }

    /// Does what is to be done once; an error says why it cannot.
    fn prepare(&mut self, context: &Context, arm: &Arm) -> Result<()> {
        if !self.prepared.insert(arm.application.name) {
            return Ok(());
        }
        let output = self.shell(context, arm, arm.application.prepare).output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            bail!("{}", words.trim());
        }
        Ok(())
    }

    fn start(&self, context: &Context, arm: &Arm) -> Result<Vec<Process>> {
        let start = |&(script, port): &(&str, u16)| {
            let command = self.shell(context, arm, &format!("exec {script}"));
            let names = (arm.application.name, "dash");
            let host = &self.hosts.server;
            server::start(host, names, command, port, |_| Ok(()), &context.stop)
        };
        arm.application.servers.iter().map(start).collect()
    }

    /// A client that sends so many requests, or for as long as loads are; what it printed.
    fn client(&self, context: &Context, arm: &Arm, requests: f64) -> Result<String> {
        let script = format!("exec {}", arm.application.client);
        let mut command = self.shell(context, arm, &script);
        command.env("REQUESTS", format!("{requests:.0}"));
        let name = "the client";
        let client = Printing::start_text(&self.hosts.client, name, command, Role::Workload)?;
        let runner = Runner {
            context,
            hosts: &self.hosts,
            port: arm.application.port(),
        };
        runner.finish(name, client, length(context))
    }

    /// How many requests last as long as loads are.
    fn learned(&self, context: &Context, arm: &Arm) -> Result<f64> {
        let mut requests = FIRST_REQUESTS;
        if arm.application.says == Says::Benchmark {
            for length in [1.0, length(context).as_secs_f64()] {
                let told = of_benchmark(&self.client(context, arm, requests)?)?;
                requests = told.rps * length;
            }
        }
        Ok(requests)
    }

    /// Runs the load; gives what its client says, and how many requests were never answered.
    fn load(&self, context: &Context, arm: &Arm, requests: f64) -> Result<(Truth, usize)> {
        let logs = self.dir.path().join("log");
        let _ = fs::remove_dir_all(&logs);
        fs::create_dir(&logs)?;
        let begun = now_ns();
        let told = self.client(context, arm, requests)?;
        let ended = now_ns();
        let from = begun + (ended - begun) / 10;
        let mut unanswered = 0;
        let truth = match arm.application.says {
            Says::Generator => of_generator(&told)?,
            Says::Benchmark => Truth {
                from_ts_ns: from,
                to_ts_ns: ended,
                ..of_benchmark(&told)?
            },
            Says::Log => {
                let mut all = Vec::new();
                for log in fs::read_dir(logs)? {
                    let (latencies, never) = truths::of_log(&fs::read_to_string(log?.path())?)?;
                    all.extend(latencies);
                    unanswered += never;
                }
                truths::truth(&all, from, ended)
            }
        };
        Ok((truth, unanswered))
    }
}

fn length(context: &Context) -> Duration {
    Duration::from_secs(if context.quick { 4 } else { 10 })
}

impl Experiment for Applications {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = Missing;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "applications"
    }

    fn about(&self) -> &'static str {
        "whether what watch says of real applications is true, at either end alone"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        let mut arms = Vec::new();
        for application in APPLICATIONS {
            for &load in application.loads {
                arms.extend(Budget::ALL.map(|budget| Arm {
                    application,
                    load,
                    budget,
                }));
            }
        }
        Ok(vec![Round::in_order(arms)])
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.application.name.into())
    }

    fn stage(&self, _context: &Context) -> Result<(Stage, Value)> {
        let dir = TempDir::with_prefix("bw-applications-").context("making a directory")?;
        // PostgreSQL has a user of its own
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        fs::create_dir(dir.path().join("grpc"))?;
        for (name, text) in FILES {
            fs::write(dir.path().join(name), text)?;
        }
        let (hosts, network) = two_hosts("applications")?;
        let prepared = BTreeSet::new();
        Ok((
            Stage {
                prepared,
                dir,
                hosts,
            },
            network,
        ))
    }

    fn prepare(&self, run: &mut Run<'_, Missing>, _stage: &mut Stage) -> Result<()> {
        for application in APPLICATIONS {
            if let Some(why) = lacking(application.needs) {
                run.more.missing.insert(application.name.into(), why);
            }
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
        let application = arm.application;
        if run.more.missing.contains_key(application.name) {
            return Ok(Vec::new());
        }
        if let Err(why) = stage.prepare(context, arm) {
            let why = format!("{why:#}");
            run.note(&format!("{} is missing: {why}", application.name));
            run.more.missing.insert(application.name.into(), why);
            return Ok(Vec::new());
        }
        let (port, stop) = (application.port(), &context.stop);
        let mut servers = stage.start(context, arm)?;
        let requests = stage.learned(context, arm)?;
        let capture = application.captured.contains(&arm.load);
        let capture = capture.then(|| {
            let filter = wire::filter(port);
            let capture = match application.asks {
                Asks::Streams => Capture::whole,
                _ => Capture::start,
            };
            capture(&stage.hosts.client, LINK, &filter, stop)
        });
        let capture = capture.transpose()?;
        let agents = Agents::start(context, &stage.hosts, port, arm.budget.cost())?;
        stop.sleep(LEAD)?;
        let (log, unanswered) = stage.load(context, arm, requests)?;
        stop.sleep(LAST_LINE.max(wire::FLUSH))?;
        let lines = agents.lines()?;
        for server in servers.iter_mut().rev() {
            server.check_alive()?;
            server.terminate(GRACE);
        }
        let (from, to) = (log.from_ts_ns, log.to_ts_ns);
        let captured = capture
            .map(|mut capture| application.asks.of_capture(capture.end(), port))
            .transpose()?;
        let ends = SIDES.iter().zip(&lines).filter_map(|(&side, lines)| {
            let used = inside(lines, side, from, to);
            let said = used.iter().map(|line| Said {
                total_ns: line.latency_ns.total,
                confidence: line.confidence,
                why: line.why.clone(),
                under_way: line.under_way,
                oldest_ns: line.oldest_ns,
            });
            let (lines, end) = (said.collect(), End::of(&used)?);
            Some((side, Seen { end, lines }))
        });
        Ok(vec![Point {
            application: application.name.into(),
            load: arm.load,
            budget: arm.budget,
            captured: captured.map(|all| truths::captured(&all, from, to)),
            unanswered,
            ends: ends.collect(),
            log,
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        let whole = point.ends.len() == SIDES.len() && point.log.mean_ns.is_some();
        Judgement::valid_if(
            whole,
            "an agent printed no line, or the client logged no request",
        )
    }

    fn describe(&self, point: &Point) -> String {
        let of = |(side, seen): (&Side, &Seen)| {
            let error = Errors::of(&seen.end, &point.log).mean_error;
            let (side, mean) = (name(side), maybe_duration(seen.end.mean_ns));
            format!("at the {side} {mean} ({})", percent(error))
        };
        let (load, budget) = (point.name(), point.budget.label());
        let ends: Vec<_> = point.ends.iter().map(of).collect();
        let truth = maybe_duration(point.log.mean_ns);
        format!("{load}, {budget}: {truth}, watch says {}", ends.join(", "))
    }

    fn summary(&self, results: &Results<Point, Missing>) -> Summary {
        Summary::of(&results.points, &results.more)
    }

    fn report(&self, results: &Results<Point, Missing>, summary: &Summary) -> Report {
        report::report(&results.points, summary)
    }
}
