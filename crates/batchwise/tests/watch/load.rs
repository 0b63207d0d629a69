//! Load on a server while a test does something else, and what the generator measured.

use std::process::Command;
use std::sync::{Arc, Mutex};

use batchwise_core::report::{Estimator, Line, Side, Unit};
use batchwise_lab::host::{Host, Place};
use batchwise_lab::process::{Process, Reader, lock};
use batchwise_lab::stop::Stop;
use batchwise_lab::window::{EndEstimate, estimates_in};
use batchwise_load::Report;

use crate::stage::{BATCHWISE, PATIENCE, close};

/// A running load generator; killed when dropped.
pub struct Load {
    process: Process,
    output: Arc<Mutex<Vec<String>>>,
    reader: Reader,
}

impl Load {
    /// `batchwise load redis` at `host` with these options, written as in a shell.
    pub fn start(host: &Host, address: std::net::SocketAddr, options: &str) -> Self {
        let mut command = Command::new(BATCHWISE);
        command.args(["load", "redis", "--format", "json"]);
        command.arg("--addr").arg(address.to_string());
        command.args(options.split_whitespace());
        Self::spawn(host, command)
    }

    /// Any program that loads a server and ends by itself.
    pub fn spawn(host: &Host, command: Command) -> Self {
        let mut process = host
            .spawn("the load", command, Place::Workload)
            .expect("a load generator");
        let output = Arc::new(Mutex::new(Vec::new()));
        let sink = output.clone();
        let reader = process.on_line(move |line| lock(&sink).push(line));
        Self {
            process,
            output,
            reader,
        }
    }

    /// Fails when it has ended: it shall still load the server.
    pub fn assert_alive(&mut self) {
        self.process.check_alive().expect("the load goes on");
    }

    /// Waits for its end; gives what it printed.
    pub fn output(mut self) -> String {
        let status = self.process.wait(&Stop::default(), 4 * PATIENCE);
        let status = status.expect("the load ends");
        self.reader.finish();
        assert!(status.success(), "{status}{}", self.process.quote());
        lock(&self.output).join("\n")
    }

    /// Waits for its end; gives the report of `batchwise load`, which must be free of errors.
    pub fn report(self) -> Report {
        let output = self.output();
        let last = output.lines().last().unwrap_or_default();
        let report: Report = serde_json::from_str(last).expect("a report");
        assert_eq!(report.errors, 0, "{report:?}");
        report
    }
}

/// A load for tests of estimates: light enough for a busy machine with two CPUs.
pub const LIGHT: &str = "--rate 4000 --duration 3s --value-size 64";
/// A load that outlasts what a test does meanwhile, and is killed then.
pub const LASTING: &str = "--rate 4000 --duration 300s --value-size 64";

/// What the lines say of the measured window of a load, in sends.
pub fn estimate(lines: &[Line], side: Side, load: &Report) -> EndEstimate {
    let (from, to) = (load.measured_from_ts_ns, load.measured_to_ts_ns);
    estimates_in(lines, side, from, to)
        .remove(&Unit::Sends)
        .unwrap_or_else(|| panic!("no line of the {side:?} in {from}..{to}: {lines:#?}"))
}

/// The estimate is two-sided and agrees with what the load measured. Loosely: how true it is on a
/// quiet machine is the lab's to say.
pub fn assert_agrees(lines: &[Line], side: Side, load: &Report) {
    let estimate = estimate(lines, side, load);
    assert_eq!(estimate.estimator, Estimator::TwoSided, "{estimate:?}");
    let measured = load.latency_from_send_ns.mean.expect("requests") as f64;
    let total = estimate.total_ns.expect("a total");
    assert!(
        close(total, measured, 0.35),
        "{side:?}: {total} ns estimated, {measured} ns measured; {estimate:?}"
    );
    assert_throughput(estimate.throughput_per_s, load);
}

/// The throughput is what the load achieved.
pub fn assert_throughput(estimated: f64, load: &Report) {
    assert!(
        close(estimated, load.achieved_rps, 0.15),
        "{estimated}/s estimated, {}/s measured",
        load.achieved_rps
    );
}
