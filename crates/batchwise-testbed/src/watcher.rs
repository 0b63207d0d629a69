//! A running `batchwise watch` whose lines are collected while workloads run.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use batchwise_core::sense::report::Line;
use nix::unistd::Pid;

use crate::bpf_stats;
use crate::host::{Host, Place};
use crate::process::{Process, Reader, lock};
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
}

/// A running watcher. Dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    process: Process,
    collected: Arc<Mutex<Collected>>,
    reader: Option<Reader>,
}

#[derive(Debug, Default)]
struct Collected {
    lines: Vec<Line>,
    unreadable: Option<String>,
}

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
        if let Some(units) = spec.units {
            command.args(["--unit", units]);
        }
        if spec.exchange {
            command.arg("--exchange");
        }
        if let Some(cgroup) = spec.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        let mut process = host.spawn("the watcher", command, Place::Observer)?;
        let collected = Arc::new(Mutex::new(Collected::default()));
        let sink = collected.clone();
        let reader = process.on_line(move |text| {
            let mut sink = lock(&sink);
            match serde_json::from_str(&text) {
                Ok(line) => sink.lines.push(line),
                Err(error) => {
                    sink.unreadable
                        .get_or_insert_with(|| format!("{text:?}: {error}"));
                }
            }
        });
        let mut watcher = Self {
            process,
            collected,
            reader: Some(reader),
        };
        bpf_stats::wait_attached(&mut watcher.process, "the watcher", stop)?;
        Ok(watcher)
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Fails when it has ended or printed something that is not a line.
    pub fn check(&mut self) -> Result<()> {
        self.process.check_alive()?;
        match &lock(&self.collected).unreadable {
            Some(what) => bail!("the watcher printed something that is not a report line: {what}"),
            None => Ok(()),
        }
    }

    /// The lines so far; they are forgotten here.
    pub fn take_lines(&self) -> Vec<Line> {
        std::mem::take(&mut lock(&self.collected).lines)
    }

    /// Ends it in order; gives the lines that were not taken yet.
    pub fn finish(mut self) -> Vec<Line> {
        self.process.terminate(END_LIMIT);
        if let Some(reader) = self.reader.take() {
            reader.finish();
        }
        self.take_lines()
    }
}
