//! A running `batchwise watch` and the lines that it printed.

use std::path::Path;
use std::time::Duration;

use batchwise_core::sense::report::{Estimator, Line, Side};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::{PATIENCE, batchwise, eventually, memory};
use crate::host::Host;
use crate::lines::Printing;
pub use crate::process::now_ns;
use crate::stop::Stop;
use crate::watcher::launch;

/// Between two lines, unless a test asks for another.
pub const INTERVAL: Duration = Duration::from_millis(300);

/// A running watcher; killed when dropped.
pub struct Watch(Printing<Line>);

impl Watch {
    /// Watches `port` in the cgroup of `host`, from its namespace.
    pub fn host(host: &Host, port: u16, args: &[&str]) -> Self {
        Self::start(host, port, Some(host.cgroup()), args)
    }

    /// Watches `port` from the namespace of `from`: in a cgroup, or on the whole machine. Counts all the
    /// time, unless `args` say what it may cost.
    pub fn start(from: &Host, port: u16, cgroup: Option<&Path>, args: &[&str]) -> Self {
        Self::services(
            from,
            cgroup,
            &[&["--port", &port.to_string()], args].concat(),
        )
    }

    /// The same of all services, but for what `args` say.
    pub fn services(from: &Host, cgroup: Option<&Path>, args: &[&str]) -> Self {
        let mut command = batchwise();
        command.args(["watch", "--format", "jsonl"]);
        if !args.contains(&"--interval") {
            command.arg(format!("--interval={}ms", INTERVAL.as_millis()));
        }
        if !args.contains(&"--cost") {
            command.args(["--cost", "off"]);
        }
        if let Some(cgroup) = cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        command.args(args);
        Self(launch(from, command, &Stop::default()).expect("a watcher"))
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Memory that it has in use, bytes.
    pub fn resident_bytes(&self) -> u64 {
        memory(self.pid(), "VmRSS")
    }

    /// What it wrote to its stderr.
    pub fn messages(&self) -> String {
        self.0.quote()
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<Line> {
        self.0.with_lines(<[Line]>::to_vec)
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
                format!("its last lines: {last:#?}{}", self.0.quote())
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
        self.0.check().expect("the watcher runs");
    }

    /// Ends it as a user does; it must do so in order.
    pub fn finish(mut self) -> Vec<Line> {
        self.assert_alive();
        let status = self.0.end(Signal::SIGINT, PATIENCE).expect("it ends");
        assert!(status.success(), "{status}{}", self.0.quote());
        self.lines()
    }

    /// Kills it without warning; its last line may be half a line.
    pub fn sigkill(mut self) -> Vec<Line> {
        let _ = self.0.end(Signal::SIGKILL, PATIENCE);
        self.lines()
    }
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
