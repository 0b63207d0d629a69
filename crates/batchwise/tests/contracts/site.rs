//! The processes under test, at the hosts of a stage.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::stage::{self, PATIENCE, Stage, generator::Load};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::Signal;
use serde_json::Value;

/// The command with these arguments, written as in a shell.
pub fn batchwise(args: &str) -> Command {
    let mut command = stage::batchwise();
    command.args(args.split_whitespace());
    command
}

/// Runs it to its end.
pub fn run(args: &str) -> Output {
    batchwise(args).output().expect("the command runs")
}

/// The lines of JSON in a text.
pub fn json(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    text.lines().map(parse).collect()
}

/// A load on Redis that lasts until it is dropped.
pub fn load(stage: &Stage, options: &str) -> Load {
    let options = format!("--duration 300s {options}");
    Load::start(&stage.hosts.client, stage.redis_address(), &options)
}

/// A running process that prints lines of JSON; killed when dropped.
pub struct Running(Printing<Value>);

impl Running {
    /// Starts it at a host, outside of the cgroup of the host's applications.
    pub fn start(host: &Host, command: Command) -> Self {
        let name = format!("{command:?}");
        let process = Printing::start(host, &name, command, Role::Observer);
        Self(process.expect("it starts"))
    }

    /// The same of an agent that exchanges or counts for the sockets of the host's applications;
    /// waits until its programs are there.
    pub fn agent(host: &Host, args: &str) -> Self {
        let mut command = batchwise(args);
        command.arg("--cgroup").arg(host.cgroup());
        let mut agent = Self::start(host, command);
        let attached = wait_attached(agent.0.process(), "the agent", &Stop::default());
        attached.expect("its programs are attached");
        agent
    }

    pub fn lines(&self) -> Vec<Value> {
        self.0.with_lines(<[Value]>::to_vec)
    }

    /// Ends it with a signal; gives all lines and the exit code.
    pub fn end(mut self, signal: Signal) -> (Vec<Value>, Option<i32>) {
        let status = self.0.end(signal, PATIENCE).expect("it ends");
        (self.lines(), status.code())
    }

    /// Waits for its end.
    pub fn finish(mut self) {
        let status = self.0.wait(&Stop::default(), PATIENCE);
        let status = status.expect("it ends");
        assert!(status.success(), "{status}{}", self.0.quote());
    }
}

/// A thread that asks a server over and over, until dropped.
pub struct Asking {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// One that does this.
    pub fn start(mut ask: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                ask();
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // a panic was printed there already
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Something that the test's own process has at a host, such as a socket.
pub fn at<T: Send>(host: &Host, work: impl FnOnce() -> std::io::Result<T> + Send) -> T {
    host.inside(|| Ok(work()?)).expect("it can be had there")
}

/// A file of this folder.
pub fn fixture(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contracts/recorded");
    PathBuf::from(folder).join(name)
}

/// A set of texts.
pub fn set<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    texts.into_iter().map(Into::into).collect()
}
