//! A running `batchwise watch` and the lines that it printed.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use batchwise_core::sense::report::{Estimator, Line, Side};
use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Place};
use batchwise_testbed::process::{Process, Reader, lock};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::stage::{BATCHWISE, PATIENCE, eventually};

/// Between two lines, unless a test asks for another.
pub const INTERVAL: Duration = Duration::from_millis(300);

/// A running watcher; killed when dropped.
pub struct Watch {
    process: Process,
    lines: Arc<Mutex<Vec<Line>>>,
    unreadable: Arc<Mutex<Vec<String>>>,
    reader: Option<Reader>,
}

impl Watch {
    /// Watches `port` in the cgroup of `host`, from its namespace.
    pub fn host(host: &Host, port: u16, args: &[&str]) -> Self {
        Self::start(host, port, Some(host.cgroup()), args)
    }

    /// Watches `port` from the namespace of `from`: in a cgroup, or on the whole machine.
    pub fn start(from: &Host, port: u16, cgroup: Option<&Path>, args: &[&str]) -> Self {
        let mut command = Command::new(BATCHWISE);
        command.args(["watch", "--format", "jsonl", "--port", &port.to_string()]);
        command.arg(format!("--interval={}ms", INTERVAL.as_millis()));
        if let Some(cgroup) = cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        command.args(args);
        let mut process = from
            .spawn("the watcher", command, Place::Observer)
            .expect("a watcher");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let unreadable = Arc::new(Mutex::new(Vec::new()));
        let sinks = (lines.clone(), unreadable.clone());
        let reader = process.on_line(move |text| match serde_json::from_str(&text) {
            Ok(line) => lock(&sinks.0).push(line),
            Err(error) => lock(&sinks.1).push(format!("{text:?}: {error}")),
        });
        let mut watch = Self {
            process,
            lines,
            unreadable,
            reader: Some(reader),
        };
        let attached = wait_attached(&mut watch.process, "the watcher", &Stop::default());
        attached.expect("its programs are attached");
        watch
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Memory that it has in use, bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("status");
        let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = kib
            .and_then(|l| l.trim().strip_suffix("kB"))
            .expect("VmRSS");
        kib.trim().parse::<u64>().expect("a number") << 10
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<Line> {
        lock(&self.lines).clone()
    }

    /// The lines of intervals that began after `ts_ns`.
    pub fn lines_since(&self, ts_ns: u64) -> Vec<Line> {
        let mut lines = self.lines();
        lines.retain(|l| l.ts_ns - l.interval_ns >= ts_ns);
        lines
    }

    /// Waits until `enough` holds for the lines of intervals that began after `ts_ns`; gives them.
    pub fn until(&self, what: &str, ts_ns: u64, enough: impl Fn(&[Line]) -> bool) -> Vec<Line> {
        eventually(
            what,
            || {
                let lines = self.lines_since(ts_ns);
                enough(&lines).then_some(lines)
            },
            || {
                let lines = self.lines();
                let last = &lines[lines.len().saturating_sub(4)..];
                format!("its last lines: {last:#?}{}", self.process.quote())
            },
        )
    }

    /// Waits until a line of `side` made by `estimator` comes from now on.
    pub fn until_estimator(&self, side: Side, estimator: Estimator) -> Vec<Line> {
        let what = format!("{estimator:?} lines of the {side:?}");
        self.until(&what, now_ns(), |lines| {
            lines
                .iter()
                .any(|l| l.side == side && l.estimator == estimator)
        })
    }

    /// Fails when it has ended.
    pub fn assert_alive(&mut self) {
        self.process.check_alive().expect("the watcher runs");
    }

    /// Ends it as a user does; it must do so in order.
    pub fn finish(mut self) -> Vec<Line> {
        self.assert_alive();
        let status = self.signal(Signal::SIGINT);
        assert!(status.success(), "{status}{}", self.process.quote());
        let unreadable = lock(&self.unreadable).clone();
        assert!(unreadable.is_empty(), "not report lines: {unreadable:?}");
        self.lines()
    }

    /// Kills it without warning.
    pub fn sigkill(mut self) -> Vec<Line> {
        self.signal(Signal::SIGKILL);
        self.lines()
    }

    fn signal(&mut self, signal: Signal) -> ExitStatus {
        kill(self.pid(), signal).expect("the watcher is there");
        let status = self.process.wait(&Stop::default(), PATIENCE);
        let status = status.expect("the watcher ends");
        if let Some(reader) = self.reader.take() {
            reader.finish();
        }
        status
    }
}

/// Wall-clock time as the lines have it.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_nanos() as u64
}

/// The lines of one side.
pub fn of(lines: &[Line], side: Side) -> Vec<&Line> {
    lines.iter().filter(|l| l.side == side).collect()
}

/// Items of all these lines.
pub fn items(lines: &[&Line]) -> f64 {
    let items = |l: &&Line| l.throughput_per_s * l.interval_ns as f64 / 1e9;
    lines.iter().map(items).sum()
}
