//! A running `batchwise passive` at the vantage, whose lines are collected while workloads run.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::bpf_stats;
use batchwise_testbed::host::Place;
use batchwise_testbed::process::{Process, Reader, lock};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{Triangle, VANTAGE_LINK};
use serde::{Deserialize, Serialize};

use crate::truth::Epoch;

/// How long it may take to end, with all epochs written.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What `batchwise passive` says at its end of what it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Packets.
    pub packets: u64,
    /// Of these: packets that count.
    pub measured: u64,
    /// Pure acknowledgments.
    pub acks: u64,
    /// Flows that were pushed out of the table.
    pub evicted: u64,
    /// Events that nobody read in time.
    pub lost_events: u64,
    /// Flows at the end.
    pub flows_live: u64,
}

/// What was collected.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Epochs that closed, in that order.
    pub epochs: Vec<Epoch>,
    /// The last line.
    pub totals: Option<Totals>,
    unreadable: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Epoch(Epoch),
    Totals(Totals),
    #[serde(other)]
    Other,
}

impl Observed {
    /// Takes a line in.
    fn read(&mut self, text: &str) {
        match serde_json::from_str(text) {
            Ok(Line::Epoch(epoch)) => self.epochs.push(epoch),
            Ok(Line::Totals(totals)) => self.totals = Some(totals),
            Ok(Line::Other) => {}
            Err(error) => {
                self.unreadable
                    .get_or_insert_with(|| format!("{text:?}: {error}"));
            }
        }
    }

    fn check(self) -> Result<Self> {
        match &self.unreadable {
            Some(what) => bail!("`batchwise passive` printed something unknown: {what}"),
            None => Ok(self),
        }
    }
}

/// Options of `batchwise passive`.
#[derive(Clone, Debug)]
pub struct PassiveSpec<'a> {
    /// The server's port.
    pub port: u16,
    /// Length of an epoch.
    pub epoch: Duration,
    /// `--estimator`; the command's default when `None`.
    pub estimator: Option<&'a str>,
}

impl PassiveSpec<'_> {
    fn command(&self, batchwise: &Path) -> Command {
        let mut command = Command::new(batchwise);
        command.args(["passive", "--per-flow", "--format", "jsonl"]);
        command.args(["--port", &self.port.to_string()]);
        command
            .arg("--epoch")
            .arg(format!("{}ms", self.epoch.as_millis()));
        if let Some(estimator) = self.estimator {
            command.args(["--estimator", estimator]);
        }
        command
    }

    /// Runs the estimator over a capture.
    pub fn over_capture(&self, batchwise: &Path, capture: &Path) -> Result<Observed> {
        let mut command = self.command(batchwise);
        let output = command
            .arg("--pcap")
            .arg(capture)
            .output()
            .context("starting `batchwise passive --pcap`")?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            bail!("`batchwise passive --pcap` failed: {}", message.trim());
        }
        let mut observed = Observed::default();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            observed.read(line);
        }
        observed.check()
    }
}

/// A running observer. Dropping it ends it.
#[derive(Debug)]
pub struct Observer {
    process: Process,
    observed: Arc<Mutex<Observed>>,
    reader: Option<Reader>,
}

impl Observer {
    /// Starts it at the vantage, where requests come in, and waits until its program is attached.
    pub fn start(
        batchwise: &Path,
        triangle: &Triangle,
        spec: &PassiveSpec<'_>,
        stop: &Stop,
    ) -> Result<Self> {
        let mut command = spec.command(batchwise);
        command.args(["--iface", VANTAGE_LINK]);
        let mut process = triangle
            .vantage
            .spawn("the observer", command, Place::Observer)?;
        let observed = Arc::new(Mutex::new(Observed::default()));
        let sink = observed.clone();
        let reader = process.on_line(move |text| lock(&sink).read(&text));
        bpf_stats::wait_attached(&mut process, "the observer", stop)?;
        Ok(Self {
            process,
            observed,
            reader: Some(reader),
        })
    }

    /// Ends it in order; gives everything that it said.
    pub fn finish(mut self) -> Result<Observed> {
        self.process.check_alive()?;
        self.process.terminate(END_LIMIT);
        if let Some(reader) = self.reader.take() {
            reader.finish();
        }
        std::mem::take(&mut *lock(&self.observed)).check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_and_totals_are_kept_and_other_lines_skipped() {
        let mut observed = Observed::default();
        for line in [
            r#"{"kind":"server","ts_ns":1,"server":"10.78.0.1:80"}"#,
            r#"{"kind":"epoch","ts_ns":3,"start_ns":1,"end_ns":2,"client":"10.78.0.2:5",
                "server":"10.78.0.1:80","latency_ns":7,"confidence":0.5}"#,
            r#"{"kind":"totals","ts_ns":4,"packets":10,"measured":6,"acks":4,"born":1}"#,
        ] {
            observed.read(line);
        }
        let observed = observed.check().unwrap();
        assert_eq!(observed.epochs[0].latency_ns, Some(7));
        assert_eq!(observed.totals.unwrap().acks, 4);
    }

    #[test]
    fn a_line_that_is_none_is_an_error_that_shows_it() {
        let mut observed = Observed::default();
        observed.read("Segmentation fault");
        let error = observed.check().unwrap_err().to_string();
        assert!(error.contains("Segmentation fault"), "{error}");
    }
}
