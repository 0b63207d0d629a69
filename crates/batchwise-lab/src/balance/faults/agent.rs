//! `batchwise balance` as it is run in these scenarios: its configuration, its process, and the
//! commands that talk to it.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_core::balance::report::{BackendLine, EventLine, Health, Line, TotalsLine};
use batchwise_testbed::host::{Host, Place};
use batchwise_testbed::nginx::PORT;
use batchwise_testbed::process::{Process, lock};
use batchwise_testbed::segment::{self, LINK, SERVERS, VIP, VIP6};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};

use super::clients::WHO;

/// Both services: by layer 2, and through tunnels.
pub(super) const SERVICES: [&str; 2] = ["web", "web6"];
/// Between two health checks.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(200);
/// For so long a check is waited for: on a slow machine servers that live must not look dead, least
/// of all all of them.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// So many checks in a row fail until a server is down.
pub(super) const FALL: u32 = 2;
/// For how long a condition may take to come true: only a broken product or machine needs it all.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// A policy of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// The configured weights.
    Static,
    /// Weights by latency.
    Latency,
}

/// What differs between configurations.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// Weights that are configured, by server.
    pub weights: [u32; SERVERS as usize],
    /// What decides.
    pub policy: Policy,
    /// A server that is not in it.
    pub without: Option<u8>,
    /// For so long a check is waited for.
    pub check_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            weights: [100; SERVERS as usize],
            policy: Policy::Static,
            without: None,
            check_timeout: CHECK_TIMEOUT,
        }
    }
}

impl Settings {
    fn text(&self, name: &str) -> String {
        let policy = match self.policy {
            Policy::Static => "static",
            Policy::Latency => "latency",
        };
        let mut text = format!(
            "name = \"{name}\"\ninterfaces = [\"{LINK}\"]\npolicy = \"{policy}\"\n\
             interval = \"200ms\"\nflows = 16384\ndrain_timeout = \"10m\"\n"
        );
        let services: [(IpAddr, &str); 2] = [(VIP.into(), "l2"), (VIP6.into(), "ipip")];
        for (service, (address, method)) in SERVICES.into_iter().zip(services) {
            text += &format!(
                "\n[[service]]\nname = \"{service}\"\naddress = \"{address}\"\nport = {PORT}\n\
                 method = \"{method}\"\n[service.health]\ncheck = \"http\"\npath = \"/{WHO}\"\n\
                 interval = \"{}ms\"\ntimeout = \"{}ms\"\nrise = 1\nfall = {FALL}\n",
                CHECK_EVERY.as_millis(),
                self.check_timeout.as_millis()
            );
            let servers = (0..SERVERS).zip(self.weights);
            for (index, weight) in servers.filter(|(index, _)| self.without != Some(*index)) {
                let (v4, v6) = segment::server(index);
                let to: IpAddr = if address.is_ipv4() {
                    v4.into()
                } else {
                    v6.into()
                };
                let server = server_name(index);
                text += &format!(
                    "[[service.backend]]\nname = \"{server}\"\naddress = \"{to}\"\nweight = {weight}\n"
                );
            }
        }
        text
    }
}

/// What the server with this index says that it is, and is called in the configuration.
pub(super) fn server_name(index: u8) -> String {
    format!("s{}", index + 1)
}

/// What the agent said since it was started.
#[derive(Debug, Default)]
struct Said {
    /// By service and backend: the last line of each.
    backends: BTreeMap<(String, String), BackendLine>,
    events: Vec<EventLine>,
    /// Decisions that moved slots.
    decisions: u64,
    totals: TotalsLine,
}

/// The balancer: what belongs to its name, and a process while one runs. All is removed when it is
/// dropped.
#[derive(Debug)]
pub(super) struct Agent<'a> {
    name: String,
    folder: PathBuf,
    command: &'a Path,
    host: &'a Host,
    stop: &'a Stop,
    process: Option<Process>,
    /// Backends of the configuration, of all services.
    backends: usize,
    said: Arc<Mutex<Said>>,
}

impl<'a> Agent<'a> {
    /// Writes the configuration and starts it; waits until all servers are healthy.
    pub(super) fn start(
        name: &str,
        command: &'a Path,
        host: &'a Host,
        stop: &'a Stop,
        settings: &Settings,
    ) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("bw-{name}"));
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let mut agent = Self {
            name: name.to_owned(),
            folder,
            command,
            host,
            stop,
            process: None,
            backends: 0,
            said: Arc::default(),
        };
        agent.configure(settings)?;
        agent.start_process()?;
        Ok(agent)
    }

    /// Writes the configuration; nobody is told.
    pub(super) fn configure(&mut self, settings: &Settings) -> Result<()> {
        let servers = SERVERS - u8::from(settings.without.is_some());
        self.backends = SERVICES.len() * usize::from(servers);
        self.write(&settings.text(&self.name))
    }

    /// Writes anything in place of the configuration.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        // as an editor does: there is always a whole file
        let part = self.folder.join("lb.part");
        fs::write(&part, text).and_then(|()| fs::rename(&part, self.config()))?;
        Ok(())
    }

    fn config(&self) -> PathBuf {
        self.folder.join("lb.toml")
    }

    /// Starts the process, which takes over what is there; waits until all servers are healthy.
    pub(super) fn start_process(&mut self) -> Result<()> {
        *lock(&self.said) = Said::default();
        let mut command = self.batchwise(&[]);
        command.arg("--config").arg(self.config());
        command.args(["--format", "jsonl"]);
        let mut process = self.host.spawn("the balancer", command, Place::Observer)?;
        let said = Arc::clone(&self.said);
        process.on_line(move |line| {
            let mut said = lock(&said);
            match serde_json::from_str(&line) {
                Ok(Line::Backend(line)) => {
                    let key = (line.service.clone(), line.backend.clone());
                    said.backends.insert(key, *line);
                }
                Ok(Line::Event(line)) => said.events.push(line),
                Ok(Line::Decision(line)) => {
                    said.decisions += u64::from(line.applied && line.moved_slots > 0);
                }
                Ok(Line::Totals(line)) => said.totals = line,
                Err(error) => tracing::warn!("{line:?} is not what the balancer prints: {error}"),
            }
        });
        let ready = self.stop.wait_until(LIMIT, || {
            process.check_alive()?;
            let said = lock(&self.said);
            let up = said.backends.values().filter(|b| b.health == Health::Up);
            Ok((up.count() == self.backends).then_some(()))
        })?;
        if ready.is_none() {
            let said = lock(&self.said);
            bail!(
                "not all servers became healthy within {LIMIT:?}: {:?}{}",
                said.backends,
                process.quote()
            );
        }
        self.process = Some(process);
        Ok(())
    }

    fn batchwise(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.command);
        command.arg("balance").args(args);
        command.env("BATCHWISE_RUN_DIR", &self.folder);
        command
    }

    /// Runs a subcommand for this balancer, to its end.
    pub(super) fn command(&self, args: &[&str]) -> Result<Output> {
        let mut command = self.batchwise(args);
        command.args(["--name", &self.name]);
        let output = self.host.inside(|| Ok(command.output()?))?;
        Ok(output)
    }

    /// The same, and it must succeed.
    pub(super) fn must(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args)?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("`balance {}` failed: {}", args.join(" "), error.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sends its process a signal. SIGKILL and SIGTERM end it: then it is waited for.
    pub(super) fn signal(&mut self, signal: Signal) -> Result<()> {
        let process = self.process.as_mut().context("no agent runs")?;
        process.check_alive()?;
        kill(process.pid(), signal)?;
        if matches!(signal, Signal::SIGKILL | Signal::SIGTERM) {
            process.wait(self.stop, LIMIT)?;
            self.process = None;
        }
        Ok(())
    }

    /// Fails when it has ended by itself.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        self.process.as_mut().map_or(Ok(()), Process::check_alive)
    }

    /// Waits until its lines of `service` and `backend` satisfy `is`.
    pub(super) fn until(
        &self,
        what: &str,
        service: &str,
        backend: &str,
        is: impl Fn(&BackendLine) -> bool,
    ) -> Result<()> {
        let key = (service.to_owned(), backend.to_owned());
        let look = || {
            Ok(lock(&self.said)
                .backends
                .get(&key)
                .is_some_and(&is)
                .then_some(()))
        };
        match self.stop.wait_until(LIMIT, look)? {
            Some(()) => Ok(()),
            None => bail!(
                "waited in vain until {what}: {:?}",
                lock(&self.said).backends.get(&key)
            ),
        }
    }

    /// Packets' fates, and what the agent that runs told beside reloads.
    pub(super) fn account(&self) -> (TotalsLine, Vec<EventLine>) {
        let said = lock(&self.said);
        let told = said.events.iter().filter(|e| e.what != "reload");
        (said.totals.clone(), told.cloned().collect())
    }

    /// How many of its decisions moved slots.
    pub(super) fn decisions(&self) -> u64 {
        lock(&self.said).decisions
    }

    /// How many events of this kind it told.
    pub(super) fn events(&self, what: &str) -> u64 {
        let said = lock(&self.said);
        said.events.iter().filter(|e| e.what == what).count() as u64
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.terminate(Duration::from_secs(2));
        }
        if let Err(error) = self.must(&["remove"]) {
            tracing::warn!("{error:#}");
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!("{} stays behind: {error}", self.folder.display());
        }
    }
}
