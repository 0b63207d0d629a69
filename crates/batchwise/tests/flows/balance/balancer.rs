//! The command, as it runs at the site's balancer.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::segment::{LINK, VIP, VIP6, server};
use batchwise_testbed::stage::{PATIENCE, batchwise, eventually};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use crate::balance::site::PORT;

/// A backend in a configuration.
pub fn backend(name: &str, address: IpAddr) -> String {
    format!("[[service.backend]]\nname = \"{name}\"\naddress = \"{address}\"\n")
}

/// The balancer; what it pinned is removed when it is dropped.
pub struct Balancer<'a> {
    host: &'a Host,
    name: String,
    folder: TempDir,
    process: Option<Process>,
}

impl<'a> Balancer<'a> {
    /// One that does not run yet.
    pub fn new(host: &'a Host, name: &str) -> Self {
        Self {
            host,
            name: format!("c-{name}"),
            folder: TempDir::new().expect("a folder"),
            process: None,
        }
    }

    /// One that runs with these servers, which are up.
    pub fn running(host: &'a Host, name: &str, servers: &[u8]) -> Self {
        let mut balancer = Self::new(host, name);
        balancer.write(&balancer.text(servers));
        balancer.start(servers.len());
        balancer
    }

    /// A configuration with these servers.
    pub fn text(&self, servers: &[u8]) -> String {
        let servers = servers.iter().map(|n| (*n, server(n - 1).0.into()));
        self.text_at(VIP.into(), servers)
    }

    /// The same for IPv6.
    pub fn text6(&self, servers: &[u8]) -> String {
        let servers = servers.iter().map(|n| (*n, server(n - 1).1.into()));
        self.text_at(VIP6.into(), servers)
    }

    fn text_at(&self, vip: IpAddr, servers: impl Iterator<Item = (u8, IpAddr)>) -> String {
        let text = format!(
            "name = \"{}\"\ninterfaces = [\"{LINK}\"]\ninterval = \"100ms\"\nflows = 4096\n\
             [[service]]\nname = \"web\"\naddress = \"{vip}\"\nport = {PORT}\n\
             [service.health]\ncheck = \"tcp\"\ninterval = \"100ms\"\nrise = 1\nfall = 2\n",
            self.name
        );
        let servers = servers.map(|(n, address)| backend(&format!("s{n}"), address));
        servers.fold(text, |text, server| text + &server)
    }

    /// Where the configuration is.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("lb.toml")
    }

    /// Writes it.
    pub fn write(&self, text: &str) {
        fs::write(self.file(), text).expect("a file");
    }

    /// Starts the agent, and waits until `healthy` backends are up.
    pub fn start(&mut self, healthy: usize) {
        self.start_with(&[], healthy);
    }

    /// The same with more arguments.
    pub fn start_with(&mut self, args: &[&str], healthy: usize) {
        let mut command = self.command(&["balance", "--format", "text", "--config"]);
        command.arg(self.file()).args(args);
        let process = self
            .host
            .spawn("batchwise balance", command, Role::Observer);
        self.process = Some(process.expect("it starts"));
        self.until_up(healthy);
    }

    /// Waits until so many backends are up.
    pub fn until_up(&self, healthy: usize) {
        self.until("backends to be healthy", |status| {
            let up = status.iter().filter(|l| l["health"] == "up");
            up.count() == healthy
        });
    }

    /// Waits until the checks of a backend say this.
    pub fn until_health(&self, name: &str, health: &str) {
        self.until_backend(name, health, |line| line["health"] == health);
    }

    /// Waits until a backend's line is `enough`.
    pub fn until_backend(&self, name: &str, what: &str, enough: impl Fn(&Value) -> bool) {
        self.until(&format!("{name} to be {what}"), |status| {
            let mut lines = status.iter().filter(|l| l["kind"] == "backend");
            lines.find(|l| l["backend"] == name).is_some_and(&enough)
        });
    }

    /// What an agent says that does not get to run.
    pub fn refused(&self) -> Output {
        let mut command = self.command(&["balance", "--config"]);
        command.arg(self.file());
        self.run(command)
    }

    fn run(&self, mut command: Command) -> Output {
        let output = self.host.inside(|| Ok(command.output()?));
        output.expect("the command runs")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = batchwise();
        command
            .env("BATCHWISE_RUN_DIR", self.folder.path())
            .args(args);
        command
    }

    /// Runs `batchwise balance` with these arguments and the name.
    pub fn tell(&self, args: &[&str]) -> Output {
        let mut command = self.command(&["balance"]);
        command.args(args).args(["--name", &self.name]);
        self.run(command)
    }

    /// The same; it must succeed.
    pub fn must(&self, args: &[&str]) -> String {
        let output = self.tell(args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The lines of its status; none while it does not answer.
    pub fn status(&self) -> Vec<Value> {
        let output = self.tell(&["status", "--format", "jsonl"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON lines")
    }

    /// Brings a configuration into force.
    pub fn reload(&self, text: &str) {
        self.write(text);
        self.must(&["reload"]);
    }

    /// The line of a backend in its status; it must have these values.
    pub fn expect(&self, name: &str, values: Value) -> Value {
        let line = self.backend(name);
        for (key, value) in values.as_object().expect("an object") {
            assert_eq!(line[key], *value, "{key} in {line}");
        }
        line
    }

    /// The line of a backend in its status.
    pub fn backend(&self, name: &str) -> Value {
        let mut lines = self.status().into_iter();
        let line = lines.find(|l| l["kind"] == "backend" && l["backend"] == name);
        line.expect("it is in the status")
    }

    /// Its last events of a kind, oldest first.
    pub fn events(&self, what: &str) -> Vec<Value> {
        let mut lines = self.status();
        lines.retain(|l| l["what"] == what);
        lines
    }

    /// Waits until the lines of its status are `enough`.
    pub fn until(&self, what: &str, enough: impl Fn(&[Value]) -> bool) {
        eventually(
            what,
            || enough(&self.status()).then_some(()),
            || format!("{:#?}{}", self.status(), self.process().quote()),
        );
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("it was started")
    }

    /// Files that the agent has open.
    pub fn open_files(&self) -> u64 {
        let files = fs::read_dir(format!("/proc/{}/fd", self.process().pid()));
        files.expect("it is there").count() as u64
    }

    /// The agent can have so many files open.
    pub fn limit_files(&self, most: u64) {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(1024),
        };
        let pid = Pid::from_raw(self.process().pid().as_raw());
        prlimit(pid, Resource::Nofile, limit).expect("a limit");
    }

    /// Sends the agent a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.process().pid(), signal).expect("it is there");
    }

    /// Ends the agent with a signal.
    pub fn end(&mut self, signal: Signal) {
        self.signal(signal);
        let mut process = self.process.take().expect("it was started");
        process.wait(&Stop::default(), PATIENCE).expect("it ends");
    }
}

impl Drop for Balancer<'_> {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.terminate(Duration::from_secs(5));
        }
        // one that was removed in the test has nothing left
        let _ = self.tell(&["remove"]);
    }
}
