//! The command, as it runs at the site's balancer.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use batchwise_lab::host::{Host, Place};
use batchwise_lab::process::Process;
use batchwise_lab::segment::{LINK, VIP, server};
use batchwise_lab::stop::Stop;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use tempfile::TempDir;

use crate::site::PORT;
use crate::stage::{BATCHWISE, PATIENCE, eventually};

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

    /// A configuration with these servers.
    pub fn text(&self, servers: &[u8]) -> String {
        let mut text = format!(
            "name = \"{}\"\ninterfaces = [\"{LINK}\"]\ninterval = \"100ms\"\nflows = 4096\n\
             [[service]]\nname = \"web\"\naddress = \"{VIP}\"\nport = {PORT}\n\
             [service.health]\ncheck = \"tcp\"\ninterval = \"100ms\"\nrise = 1\nfall = 2\n",
            self.name
        );
        for n in servers {
            let (address, _) = server(n - 1);
            text += &format!("[[service.backend]]\nname = \"s{n}\"\naddress = \"{address}\"\n");
        }
        text
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
        let mut command = self.command(&["balance", "--format", "jsonl", "--config"]);
        command.arg(self.file());
        let process = self
            .host
            .spawn("batchwise balance", command, Place::Observer);
        self.process = Some(process.expect("it starts"));
        self.until("backends to be healthy", |status| {
            let up = status.iter().filter(|l| l["health"] == "up");
            up.count() == healthy
        });
    }

    /// What another agent with the same configuration says.
    pub fn second(&self) -> Output {
        let mut command = self.command(&["balance", "--config"]);
        command.arg(self.file());
        let output = self.host.inside(|| Ok(command.output()?));
        output.expect("the command runs")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BATCHWISE);
        command
            .env("BATCHWISE_RUN_DIR", self.folder.path())
            .args(args);
        command
    }

    /// Runs `batchwise balance` with these arguments and the name.
    pub fn tell(&self, args: &[&str]) -> Output {
        let mut command = self.command(&["balance"]);
        command.args(args).args(["--name", &self.name]);
        let output = self.host.inside(|| Ok(command.output()?));
        output.expect("the command runs")
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

    /// Waits until the lines of its status are `enough`.
    pub fn until(&mut self, what: &str, enough: impl Fn(&[Value]) -> bool) {
        let quote = || format!("{:#?}", self.status());
        eventually(
            what,
            || enough(&self.status()).then_some(()),
            || {
                let said = self.process.as_ref().map(Process::quote);
                format!("{}{}", quote(), said.unwrap_or_default())
            },
        );
    }

    /// Sends the agent a signal.
    pub fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it was started");
        kill(process.pid(), signal).expect("it is there");
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
