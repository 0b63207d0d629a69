//! `batchwise tune` at both hosts, and the decisions in its logs.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use batchwise_core::sense::report::Side;
use batchwise_testbed::bpf_stats;
use batchwise_testbed::host::{Host, Place};
use batchwise_testbed::process::{Process, cpu_time};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::TwoHosts;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::Context;

/// The latency that the service must keep, as in the paper (its §4).
pub const SLO: Duration = Duration::from_micros(500);
/// The policy that goes with it.
pub const SLO_POLICY: &str = "slo:500us";
/// How long an agent may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// One line of an agent's log, as far as the lab uses it. What an agent of another version leaves
/// out is not known; what it adds is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When, ns since the Unix epoch.
    pub ts_ns: u64,
    /// What was decided about.
    #[serde(default)]
    pub service: String,
    /// Which end of the service's connections this host is.
    #[serde(default)]
    pub side: Option<Side>,
    /// `start`, `probe`, `abort`, `adopt`, `keep`, `recall`, `reset`, `give_back`, `stop`.
    #[serde(default)]
    pub event: String,
    /// Nagle's algorithm from here on: `on`, `off`, or `app` for the application's own wish.
    #[serde(default)]
    pub nagle: Option<String>,
    /// The application's wish: `on`, `off` or `mixed`.
    #[serde(default)]
    pub wish: Option<String>,
    /// Requests a second.
    #[serde(default)]
    pub load_per_s: Option<f64>,
    /// In words.
    #[serde(default)]
    pub why: String,
}

impl Decision {
    /// Whether Nagle's algorithm works from here on; `None` where that is not known.
    pub fn nagle_on(&self) -> Option<bool> {
        let force = match self.nagle.as_deref()? {
            "app" => self.wish.as_deref()?,
            force => force,
        };
        match force {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    }
}

/// For how much of `from..to` (ns since the Unix epoch) Nagle's algorithm worked at a side, as a
/// share of the time of which that is known; `None` if it never is.
pub fn nagle_share(decisions: &[Decision], side: Side, from: u64, to: u64) -> Option<f64> {
    let (mut on, mut known) = (0, 0);
    let of_side: Vec<_> = decisions.iter().filter(|d| d.side == Some(side)).collect();
    for (index, decision) in of_side.iter().enumerate() {
        let next = of_side.get(index + 1).map_or(u64::MAX, |d| d.ts_ns);
        let time = next.min(to).saturating_sub(decision.ts_ns.max(from));
        if let Some(is_on) = decision.nagle_on() {
            known += time;
            on += if is_on { time } else { 0 };
        }
    }
    (known > 0).then(|| on as f64 / known as f64)
}

/// An agent at each host. Dropping it ends them.
#[derive(Debug)]
pub struct Tuners {
    server: Agent,
    client: Agent,
}

impl Tuners {
    /// Starts both for Redis' port, and waits until their programs are attached. Their logs are
    /// `tune-LABEL-server.jsonl` and the same for the client, beside the results.
    pub fn start(context: &Context, hosts: &TwoHosts, policy: &str, label: &str) -> Result<Self> {
        let stop = &context.stop;
        let spawn = |host: &Host, end: &str| {
            // A colon is no part of a file name that travels well.
            let name = format!("tune-{}-{end}.jsonl", label.replace(':', "-"));
            let log = context.output.dir().join(name);
            Agent::spawn(&context.command, host, policy, log)
        };
        // At the same time: most of a start is the kernel's verifier, on one CPU each.
        let mut tuners = Self {
            server: spawn(&hosts.server, "server")?,
            client: spawn(&hosts.client, "client")?,
        };
        tuners.server.wait_attached(stop)?;
        tuners.client.wait_attached(stop)?;
        Ok(tuners)
    }

    /// Fails when one of them has ended.
    pub fn check(&mut self) -> Result<()> {
        self.server
            .process
            .check_alive()
            .context("at the server's end")?;
        self.client
            .process
            .check_alive()
            .context("at the client's end")
    }

    /// Their processes.
    pub fn pids(&self) -> [Pid; 2] {
        [self.server.process.pid(), self.client.process.pid()]
    }

    /// CPU time that both have used.
    pub fn cpu_time(&self) -> Result<Duration> {
        Ok(cpu_time(self.server.process.pid())? + cpu_time(self.client.process.pid())?)
    }

    /// What both have decided since the last call, by time.
    pub fn take(&mut self) -> Result<Vec<Decision>> {
        let mut decisions = self.server.take()?;
        decisions.extend(self.client.take()?);
        decisions.sort_by_key(|d| d.ts_ns);
        Ok(decisions)
    }

    /// Ends both in order; gives the decisions that were not taken yet.
    pub fn finish(mut self) -> Result<Vec<Decision>> {
        self.check()?;
        self.client.process.terminate(END_LIMIT);
        self.server.process.terminate(END_LIMIT);
        self.take()
    }
}

#[derive(Debug)]
struct Agent {
    process: Process,
    log: PathBuf,
    read: u64,
}

impl Agent {
    fn spawn(batchwise: &Path, host: &Host, policy: &str, log: PathBuf) -> Result<Self> {
        // A log is appended to: what an earlier run left is none of this one's.
        fs::write(&log, "").with_context(|| format!("making {}", log.display()))?;
        let mut command = Command::new(batchwise);
        command.args(["tune", "--format", "jsonl", "--policy", policy]);
        command.args(["--port", &PORT.to_string()]);
        command.arg("--cgroup").arg(host.cgroup());
        command.arg("--log").arg(&log);
        let mut process = host.spawn("batchwise tune", command, Place::Observer)?;
        // Read, so that it never blocks on a full pipe; the log says the same.
        process.on_line(drop);
        Ok(Self {
            process,
            log,
            read: 0,
        })
    }

    fn wait_attached(&mut self, stop: &Stop) -> Result<()> {
        bpf_stats::wait_attached(&mut self.process, "batchwise tune", stop)
    }

    /// The whole lines since the last call.
    fn take(&mut self) -> Result<Vec<Decision>> {
        let mut text = String::new();
        let mut read = || -> std::io::Result<()> {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_string(&mut text).map(drop)
        };
        read().with_context(|| format!("reading {}", self.log.display()))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        parse(&text[..whole])
    }
}

fn parse(lines: &str) -> Result<Vec<Decision>> {
    let one = |line: &str| {
        serde_json::from_str(line).map_err(|error| {
            anyhow!("a log of batchwise tune has a strange line {line:?}: {error}")
        })
    };
    lines.lines().filter(|l| !l.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = concat!(
        r#"{"ts_ns":100,"service":"10.77.0.1:6379","side":"client","event":"start","#,
        r#""policy":"slo:500us","nagle":"app","wish":"off","load_per_s":0,"arms":{"on":null}}"#,
        "\n",
        r#"{"ts_ns":200,"side":"client","event":"probe","nagle":"on","wish":"off","why":"new"}"#,
        "\n",
        r#"{"ts_ns":300,"side":"server","event":"adopt","nagle":"off"}"#,
        "\n",
    );

    #[test]
    fn what_a_log_adds_or_leaves_out_is_no_error() {
        let decisions = parse(RECORDED).unwrap();
        let states: Vec<_> = decisions.iter().map(Decision::nagle_on).collect();
        assert_eq!(states, [Some(false), Some(true), Some(false)]);
        assert!(
            parse(r#"{"ts_ns":1,"event":"keep","nagle":"app"}"#).unwrap()[0]
                .nagle_on()
                .is_none()
        );
        assert!(parse("half a li").is_err());
    }

    #[test]
    fn the_share_of_nagle_is_of_the_time_that_is_known() {
        let decisions = parse(RECORDED).unwrap();
        let share = |from, to| nagle_share(&decisions, Side::Client, from, to);
        assert_eq!(share(0, 400), Some(2.0 / 3.0));
        assert_eq!(share(200, 1000), Some(1.0));
        assert_eq!(share(0, 100), None);
        assert_eq!(nagle_share(&[], Side::Client, 0, 100), None);
    }
}
