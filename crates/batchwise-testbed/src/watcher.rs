//! A running `batchwise watch` whose lines are collected while workloads run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_core::sense::report::Line;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bpf_stats;
use crate::host::{Host, Role};
use crate::lines::Printing;
use crate::stop::Stop;

/// How long a watcher may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// What a watcher is asked to do.
#[derive(Clone, Debug)]
pub struct WatchSpec<'a> {
    /// The watched ports.
    pub ports: &'a [u16],
    /// Between two lines.
    pub interval: Duration,
    /// Comma-separated units; the command's default when `None`.
    pub units: Option<&'a str>,
    /// Exchange queue states with the peer.
    pub exchange: bool,
    /// Watch this cgroup only.
    pub cgroup: Option<&'a Path>,
    /// What it may cost; the command's default when `None`.
    pub cost: Option<&'a str>,
}

/// Starts `command`, a watcher that prints JSON lines, and waits until its programs are attached.
pub(crate) fn launch(host: &Host, command: Command, stop: &Stop) -> Result<Printing<Line>> {
    let mut watcher = Printing::start(host, "the watcher", command, Role::Observer)?;
    bpf_stats::wait_attached(watcher.process(), "the watcher", stop)?;
    Ok(watcher)
}

/// A running watcher. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher(Printing<Line>);

impl Watcher {
    /// Starts it in the network namespace of `host`, and waits until its programs are attached.
    pub fn start(batchwise: &Path, host: &Host, spec: &WatchSpec<'_>, stop: &Stop) -> Result<Self> {
        let mut command = Command::new(batchwise);
        command.args(["watch", "--format", "jsonl"]);
        for port in spec.ports {
            command.args(["--port", &port.to_string()]);
        }
        command
            .arg("--interval")
            .arg(format!("{}ms", spec.interval.as_millis()));
        if let Some(cost) = spec.cost {
            command.args(["--cost", cost]);
        }
        if let Some(units) = spec.units {
            command.args(["--count", units]);
        }
        if spec.exchange {
            command.arg("--exchange");
        }
        if let Some(cgroup) = spec.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        Ok(Self(launch(host, command, stop)?))
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Makes it count, or not, from some ms after on.
    pub fn count(&self, counts: bool) -> Result<()> {
        let signal = match counts {
            true => Signal::SIGUSR2,
            false => Signal::SIGUSR1,
        };
        kill(self.pid(), signal).with_context(|| format!("sending {signal} to a watcher"))
    }

    /// Fails when it has ended or printed something that is not a line.
    pub fn check(&mut self) -> Result<()> {
        self.0.check()
    }

    /// The lines so far; they are forgotten here.
    pub fn take_lines(&self) -> Vec<Line> {
        self.0.take_lines()
    }

    /// Ends it in order; gives the lines that were not taken yet.
    pub fn finish(mut self) -> Vec<Line> {
        self.0.terminate(END_LIMIT);
        self.take_lines()
    }
}
