//! `batchwise balance` as experiments run it: its configuration, its process, the lines that it
//! prints, and the commands that talk to it.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_core::balance::report::{BackendLine, EventLine, Health, Line, State, TotalsLine};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::nginx::PORT;
use batchwise_testbed::process::{Process, Reader, lock};
use batchwise_testbed::segment::{self, LINK, SERVERS, VIP, VIP6};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};

/// How long a condition may take to come true: only a broken product or machine needs it all.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// The service of IPv4, by layer 2.
pub(crate) const WEB: &str = "web";
/// The service of IPv6, through tunnels.
pub(crate) const WEB6: &str = "web6";
/// What a backend begins with in a configuration.
const BACKEND: &str = "[[service.backend]]";
/// What servers are called, by index.
pub(crate) const NAMES: [&str; SERVERS as usize] = ["s1", "s2", "s3", "s4"];

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub services: &'static [&'static str],
    /// `static` or `latency`.
    pub policy: &'static str,
    /// The services' `choices`, if not what the policy takes.
    pub choices: Option<u8>,
    /// More lines of the whole.
    pub more: &'static str,
    /// More lines of the health checks.
    pub checks: String,
    /// By server.
    pub weights: [u32; SERVERS as usize],
    /// A server that is not in it.
    pub without: Option<u8>,
}

impl Settings {
    /// The file of a balancer of this name.
    pub(crate) fn text(&self, name: &str) -> String {
        let choices = self.choices.map(|n| format!("choices = {n}\n"));
        let choices = choices.unwrap_or_default();
        let (policy, more) = (self.policy, self.more);
        let mut text =
            format!("name = \"{name}\"\ninterfaces = [\"{LINK}\"]\npolicy = \"{policy}\"\n{more}");
        for &service in self.services {
            let (address, method) = match service {
                WEB6 => (IpAddr::from(VIP6), "ipip"),
                _ => (VIP.into(), "l2"),
            };
            text += &format!(
                "\n[[service]]\nname = \"{service}\"\naddress = \"{address}\"\nport = {PORT}\n\
                 method = \"{method}\"\n{choices}\
                 [service.health]\ncheck = \"http\"\nrise = 1\n{}",
                self.checks
            );
            for (index, weight) in (0..SERVERS).zip(self.weights) {
                if self.without == Some(index) {
                    continue;
                }
                let server = NAMES[usize::from(index)];
                let (v4, v6) = segment::server(index);
                let to: IpAddr = if service == WEB { v4.into() } else { v6.into() };
                text += &format!(
                    "{BACKEND}\nname = \"{server}\"\naddress = \"{to}\"\nweight = {weight}\n"
                );
            }
        }
        text
    }
}

/// What the process printed since it was started.
#[derive(Debug, Default)]
pub(super) struct Printed {
    /// By service, in the order of time.
    pub backends: Vec<BackendLine>,
    pub events: Vec<EventLine>,
    /// Decisions that moved slots.
    pub decisions: u64,
    pub totals: TotalsLine,
    unreadable: Option<String>,
}

impl Printed {
    fn read(&mut self, text: &str) {
        match serde_json::from_str(text) {
            Ok(Line::Backend(line)) => self.backends.push(*line),
            Ok(Line::Event(line)) => self.events.push(line),
            Ok(Line::Decision(line)) => {
                self.decisions += u64::from(line.applied && line.moved_slots > 0);
            }
            Ok(Line::Totals(line)) => self.totals = line,
            Err(error) => {
                self.unreadable
                    .get_or_insert_with(|| format!("{text:?}: {error}"));
            }
        }
    }

    /// Whether the last lines of so many backends say that they get connections.
    fn all_serve(&self, count: usize) -> bool {
        let by_name = self.backends.iter().map(|b| ((&b.service, &b.backend), b));
        let last: BTreeMap<_, _> = by_name.collect();
        let serves = |b: &&&BackendLine| b.state == State::Serving && b.health == Health::Up;
        last.values().filter(serves).count() == count
    }

    fn last(&self, service: &str, backend: &str) -> Option<&BackendLine> {
        let of_it = |b: &&BackendLine| b.service == service && b.backend == backend;
        self.backends.iter().rev().find(of_it)
    }

    /// How many events of this kind there were.
    pub(super) fn count(&self, what: &str) -> u64 {
        self.events.iter().filter(|e| e.what == what).count() as u64
    }
}

/// The balancer: what belongs to its name, and a process while one runs. All is removed when it is
/// dropped.
pub(super) struct Agent<'a> {
    name: String,
    folder: PathBuf,
    command: &'a Path,
    host: &'a Host,
    role: Role,
    stop: &'a Stop,
    process: Option<(Process, Reader)>,
    /// Backends of the configuration, of all services.
    backends: usize,
    printed: Arc<Mutex<Printed>>,
}

impl<'a> Agent<'a> {
    /// Writes the configuration and starts it; waits until all servers get connections. `name` is
    /// that of pins and socket: two at a time need two.
    pub(super) fn start(
        name: &str,
        command: &'a Path,
        (host, role): (&'a Host, Role),
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
            role,
            stop,
            process: None,
            backends: 0,
            printed: Arc::default(),
        };
        agent.configure(settings)?;
        agent.start_process()?;
        Ok(agent)
    }

    /// Writes the configuration; the process reads it at the next SIGHUP or reload.
    pub(super) fn configure(&mut self, settings: &Settings) -> Result<()> {
        let text = settings.text(&self.name);
        self.backends = text.matches(BACKEND).count();
        self.write(&text)
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

    /// Starts the process, which takes over what is there; waits until all servers get connections.
    pub(super) fn start_process(&mut self) -> Result<()> {
        self.start_without(0)
    }

    /// The same where so many backends, of all services, are down.
    pub(super) fn start_without(&mut self, down: usize) -> Result<()> {
        *self.printed() = Printed::default();
        let mut command = self.batchwise(&[]);
        command.arg("--config").arg(self.config());
        // as its unit does
        command.arg("--state").arg(&self.folder);
        command.args(["--format", "jsonl"]);
        let mut process = self.host.spawn("the balancer", command, self.role)?;
        let printed = Arc::clone(&self.printed);
        let reader = process.on_line(move |line| lock(&printed).read(&line));
        let serving = self.backends - down;
        let ready = self.stop.wait_until(LIMIT, || {
            process.check_alive()?;
            Ok(self.printed().all_serve(serving).then_some(()))
        })?;
        if ready.is_none() {
            bail!(
                "not all servers became healthy within {LIMIT:?}: {:?}{}",
                self.printed().backends.last(),
                process.quote()
            );
        }
        self.process = Some((process, reader));
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
        self.host.inside(|| Ok(command.output()?))
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
        self.check_alive()?;
        let (process, _) = self.process.as_ref().context("no agent runs")?;
        kill(process.pid(), signal)?;
        if signal != Signal::SIGHUP
            && let Some((mut process, reader)) = self.process.take()
        {
            process.wait(self.stop, LIMIT)?;
            reader.finish();
        }
        Ok(())
    }

    /// Fails when it has ended by itself, or printed something unknown.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        if let Some(what) = &self.printed().unreadable {
            bail!("`batchwise balance` printed something unknown: {what}");
        }
        let process = self.process.as_mut();
        process.map_or(Ok(()), |(process, _)| process.check_alive())
    }

    /// Waits until its lines of `service` and `backend` satisfy `is`.
    pub(super) fn until(
        &self,
        what: &str,
        service: &str,
        backend: &str,
        is: impl Fn(&BackendLine) -> bool,
    ) -> Result<()> {
        let look = || Ok(self.shows(service, backend, &is).then_some(()));
        if self.stop.wait_until(LIMIT, look)?.is_none() {
            let last = self.printed().last(service, backend).cloned();
            bail!("{what}: that did not come within {LIMIT:?}: {last:?}");
        }
        Ok(())
    }

    /// Whether its last line of `service` and `backend` satisfies `is`.
    pub(super) fn shows(
        &self,
        service: &str,
        backend: &str,
        is: impl Fn(&BackendLine) -> bool,
    ) -> bool {
        self.printed().last(service, backend).is_some_and(is)
    }

    /// What the process printed so far.
    pub(super) fn printed(&self) -> MutexGuard<'_, Printed> {
        lock(&self.printed)
    }

    /// Ends it in order; gives what it printed.
    pub(super) fn finish(mut self) -> Result<Printed> {
        self.signal(Signal::SIGTERM)?;
        Ok(std::mem::take(&mut *self.printed()))
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.process {
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
