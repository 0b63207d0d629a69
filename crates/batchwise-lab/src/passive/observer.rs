//! A running `batchwise passive` at the vantage, whose lines are collected while workloads run.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::bpf_stats;
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{Triangle, VANTAGE_LINK};
use serde::Deserialize;
use serde_json::Value;

use crate::truth::Epoch;

/// How long it may take to end, with all epochs written.
const END_LIMIT: Duration = Duration::from_secs(10);

pub const EPOCH: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Epochs that closed, in that order.
    pub epochs: Vec<Epoch>,
    /// The last line: what was seen in all.
    pub totals: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Epoch(Epoch),
    Totals(Value),
    #[serde(other)]
    Other,
}

impl Observed {
    fn of(lines: Vec<Line>) -> Self {
        let mut observed = Self::default();
        for line in lines {
            match line {
                Line::Epoch(epoch) => observed.epochs.push(epoch),
                Line::Totals(totals) => observed.totals = Some(totals),
                Line::Other => {}
            }
        }
        observed
    }

    /// Reads what `batchwise passive` printed.
    fn read(text: &str) -> Result<Self> {
        let read = |line| {
            serde_json::from_str(line)
                .with_context(|| format!("`batchwise passive` printed something unknown: {line:?}"))
        };
        let lines = text.lines().map(read).collect::<Result<Vec<_>>>()?;
        Ok(Self::of(lines))
    }
}

fn passive(batchwise: &Path, port: u16) -> Command {
    let mut command = Command::new(batchwise);
    command.args(["passive", "--per-flow", "--format", "jsonl"]);
    command.args(["--port", &port.to_string()]);
    command.args(["--epoch", &format!("{}ms", EPOCH.as_millis())]);
    command
}

/// Runs `--estimator`, or the command's default, over a capture.
pub fn over_capture(
    batchwise: &Path,
    port: u16,
    estimator: Option<&str>,
    capture: &Path,
) -> Result<Observed> {
    let mut command = passive(batchwise, port);
    command.arg("--pcap").arg(capture);
    command.args(estimator.into_iter().flat_map(|e| ["--estimator", e]));
    let output = command.output();
    let output = output.context("starting `batchwise passive --pcap`")?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!("`batchwise passive --pcap` failed: {}", message.trim());
    }
    Observed::read(&String::from_utf8_lossy(&output.stdout))
}

#[derive(Debug)]
pub struct Observer(Printing<Line>);

impl Observer {
    /// Starts it at the vantage, where requests come in, and waits until its program is attached.
    pub fn start(batchwise: &Path, triangle: &Triangle, port: u16, stop: &Stop) -> Result<Self> {
        let mut command = passive(batchwise, port);
        command.args(["--iface", VANTAGE_LINK]);
        let vantage = &triangle.vantage;
        let mut observer = Printing::start(vantage, "the observer", command, Role::Observer)?;
        bpf_stats::wait_attached(observer.process(), "the observer", stop)?;
        Ok(Self(observer))
    }

    /// Ends it in order; gives everything that it said.
    pub fn finish(self) -> Result<Observed> {
        Ok(Observed::of(self.0.finish(END_LIMIT)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_and_totals_are_kept_and_other_lines_skipped() {
        let observed = Observed::read(concat!(
            r#"{"kind":"server","ts_ns":1,"server":"10.78.0.1:80"}"#,
            "\n",
            r#"{"kind":"epoch","ts_ns":3,"start_ns":1,"end_ns":2,"client":"10.78.0.2:5","#,
            r#""server":"10.78.0.1:80","latency_ns":7,"confidence":0.5}"#,
            "\n",
            r#"{"kind":"totals","ts_ns":4,"packets":10,"measured":6,"acks":4,"born":1}"#,
        ));
        let observed = observed.unwrap();
        assert_eq!(observed.epochs[0].latency_ns, Some(7));
        assert_eq!(observed.totals.unwrap()["acks"], 4);
    }

    #[test]
    fn a_line_that_is_none_is_an_error_that_shows_it() {
        let error = Observed::read("Segmentation fault")
            .unwrap_err()
            .to_string();
        assert!(error.contains("Segmentation fault"), "{error}");
    }
}
