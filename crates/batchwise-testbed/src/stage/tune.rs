//! A running `batchwise tune`, its guard, and its decision log, every line of which is held against
//! the contract.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Instant;

use batchwise_core::tune::report::Decision;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{PATIENCE, batchwise, eventually, memory};
use crate::bpf_stats::wait_attached;
use crate::host::{Host, Role};
use crate::process::{Process, children};
use crate::redis::PORT;
use crate::stop::Stop;

/// A running agent; killed when dropped.
pub struct Agent {
    process: Process,
    log: PathBuf,
}

impl Agent {
    /// Tunes Redis's port in the cgroup of `host`, from its namespace, and waits until its programs
    /// are attached. Its log, named for the host, is appended to in `logs`.
    pub fn start(host: &Host, logs: &Path, args: &[&str]) -> Self {
        let mut agent = Self::launch(host, logs, args);
        agent.wait_attached();
        agent
    }

    /// The same without waiting.
    pub fn launch(host: &Host, logs: &Path, args: &[&str]) -> Self {
        Self::launch_at(host, logs, PORT, args)
    }

    /// The same for another port than Redis's.
    pub fn launch_at(host: &Host, logs: &Path, port: u16, args: &[&str]) -> Self {
        let log = logs.join(format!("{}.jsonl", host.namespace().name()));
        let mut command = batchwise();
        command.args(["tune", "--port", &port.to_string()]);
        command.arg("--cgroup").arg(host.cgroup());
        command.arg("--log").arg(&log).args(args);
        let mut process = host
            .spawn("the agent", command, Role::Observer)
            .expect("an agent");
        // Read, so that it never blocks on a full pipe; the log says the same.
        process.on_line(drop);
        Self { process, log }
    }

    /// Waits until its programs are attached.
    pub fn wait_attached(&mut self) {
        let attached = wait_attached(&mut self.process, "the agent", &Stop::default());
        attached.expect("its programs are attached");
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// The process id of its guard.
    pub fn guard(&self) -> Option<Pid> {
        children(self.pid()).first().copied()
    }

    /// Waits for a guard other than `dead` that no signal ends any more: one that has just been
    /// started is still a process like others.
    pub fn next_guard(&self, dead: Pid) -> Pid {
        let signals = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
        let all = signals.iter().fold(0, |all, &s| all | 1 << (s as u64 - 1));
        let caught = |guard: &Pid| -> Option<u64> {
            // until it is executed it is a copy of the agent, which catches them
            let name = fs::read_to_string(format!("/proc/{guard}/cmdline")).ok()?;
            name.strip_prefix("batchwise-guard\0")?;
            let status = fs::read_to_string(format!("/proc/{guard}/status")).ok()?;
            let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"))?;
            u64::from_str_radix(caught.trim(), 16).ok()
        };
        let ready = |guard: &Pid| caught(guard).is_some_and(|c| c & all == all);
        eventually(
            "another guard",
            || self.guard().filter(|g| *g != dead && ready(g)),
            || format!("there is {:?}", self.guard()),
        )
    }

    /// Memory that it has in use, bytes, without what it maps of files and of the kernel.
    pub fn resident_bytes(&self) -> u64 {
        memory(self.pid(), "RssAnon")
    }

    /// Fails when it has ended.
    pub fn assert_alive(&mut self) {
        self.process.check_alive().expect("the agent runs");
    }

    /// Sends it a signal; gives the time of that.
    pub fn signal(&self, signal: Signal) -> Instant {
        kill(self.pid(), signal).expect("the agent is there");
        Instant::now()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.process.wait(&Stop::default(), PATIENCE);
        status.expect("the agent ends")
    }

    /// Ends it as a user does; it must do so in order.
    pub fn finish(mut self) {
        self.assert_alive();
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert!(status.success(), "{status}{}", self.process.quote());
    }

    /// What it wrote to its stderr.
    pub fn messages(&self) -> String {
        self.process.quote()
    }

    /// The decisions so far.
    pub fn decisions(&self) -> Vec<Decision> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        text[..whole].lines().map(read).collect()
    }

    /// Waits until `enough` holds for the decisions from the `from`-th on.
    pub fn until(&self, what: &str, from: usize, enough: impl Fn(&[Decision]) -> bool) {
        eventually(
            what,
            || enough(&self.decisions()[from..]).then_some(()),
            || {
                let all = self.decisions();
                let last = &all[all.len().saturating_sub(6)..];
                format!("its last decisions: {last:#?}{}", self.process.quote())
            },
        );
    }
}

/// Reads a line of the log, which must have all fields of the contract, and no others.
fn read(line: &str) -> Decision {
    let decision: Decision = serde_json::from_str(line).expect("a decision");
    let all: Value = serde_json::from_str(line).expect("JSON");
    let written = serde_json::to_value(&decision).expect("JSON");
    assert_eq!(written, all, "{line}");
    let service = decision.service.parse::<SocketAddr>();
    assert!(service.is_ok(), "{line}");
    let words = [&decision.why, &decision.policy];
    assert!(words.iter().all(|text| !text.is_empty()), "{line}");
    decision
}
