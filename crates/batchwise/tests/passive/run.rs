//! A run of `batchwise passive` and the lines that it printed.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};

use batchwise_core::passive::report::{EpochLine, Line, ServerLine, TotalsLine};
use batchwise_testbed::host::{Host, Place};
use batchwise_testbed::process::{Process, Reader, lock};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};

use crate::refusal::run;
use crate::stage::{BATCHWISE, PATIENCE, eventually};

/// What a run printed.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pub servers: Vec<ServerLine>,
    pub epochs: Vec<EpochLine>,
    pub totals: Option<TotalsLine>,
}

impl Lines {
    /// Reads JSON lines.
    pub fn read(text: &str) -> Self {
        let mut lines = Self::default();
        for line in text.lines() {
            lines.add(line);
        }
        lines
    }

    fn add(&mut self, text: &str) {
        assert!(text.starts_with("{\"kind\":"), "{text}");
        match serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}")) {
            Line::Server(line) => self.servers.push(line),
            Line::Epoch(line) => self.epochs.push(line),
            Line::Totals(line) => self.totals = Some(line),
        }
    }

    /// Batches of a server, and the mean of their latencies, ns.
    pub fn mean(&self, server: &str) -> (u64, f64) {
        let of = self.servers.iter().filter(|l| l.server == server);
        let weighted = of.filter_map(|l| Some((l.batches, l.latency_ns.mean? as f64)));
        let (batches, sum) = weighted.fold((0, 0.0), |(n, sum), (batches, mean)| {
            (n + batches, sum + batches as f64 * mean)
        });
        (batches, sum / batches as f64)
    }
}

/// Runs it over a capture to its end; it must succeed.
pub fn over(capture: &Path, args: &[&str]) -> Lines {
    let mut command = Command::new(BATCHWISE);
    command.args(["passive", "--format", "jsonl", "--pcap"]);
    let output = run(command.arg(capture).args(args));
    assert!(output.status.success(), "{output:?}");
    Lines::read(&String::from_utf8_lossy(&output.stdout))
}

/// One that runs; killed when dropped.
pub struct Live {
    process: Process,
    lines: Arc<Mutex<Lines>>,
    reader: Option<Reader>,
}

impl Live {
    /// Measures what arrives at the host's link.
    pub fn start(host: &Host, args: &[&str]) -> Self {
        let mut command = Command::new(BATCHWISE);
        command.args(["passive", "--iface", "bw-veth", "--format", "jsonl"]);
        command.args(["--interval", "300ms", "--epoch", "300ms"]);
        command.args(args);
        let process = host.spawn("batchwise passive", command, Place::Observer);
        let mut process = process.expect("it starts");
        let lines = Arc::new(Mutex::new(Lines::default()));
        let sink = Arc::clone(&lines);
        let reader = process.on_line(move |text| lock(&sink).add(&text));
        let mut live = Self {
            process,
            lines,
            reader: Some(reader),
        };
        eventually(
            "the program to be attached",
            || {
                live.process.check_alive().expect("it runs");
                is_attached(host).then_some(())
            },
            String::new,
        );
        live
    }

    /// All lines so far.
    pub fn lines(&self) -> Lines {
        lock(&self.lines).clone()
    }

    /// Waits until `enough` holds for the lines so far.
    pub fn until(&self, what: &str, enough: impl Fn(&Lines) -> bool) {
        eventually(
            what,
            || enough(&self.lines()).then_some(()),
            || format!("its lines: {:#?}{}", self.lines(), self.process.quote()),
        );
    }

    /// Ends it with a signal.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, Lines) {
        kill(self.process.pid(), signal).expect("it is there");
        let status = self.process.wait(&Stop::default(), PATIENCE);
        let status = status.expect("it ends");
        if let Some(reader) = self.reader.take() {
            reader.finish();
        }
        (status, self.lines())
    }
}

/// Whether an XDP program hangs on the host's link.
pub fn is_attached(host: &Host) -> bool {
    let shown = host.inside(|| {
        let output = Command::new("ip")
            .args(["-details", "link", "show", "bw-veth"])
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    shown.expect("the link").contains("xdp")
}
