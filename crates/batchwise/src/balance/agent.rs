//! The agent's loop: sense (epochs, health, neighbours, requests), estimate, act on the maps.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::balance::{self as bpf, Balancer, Measure, Options};
use batchwise_bpf::probe::{self, Probe};
use batchwise_core::balance::report::{Health as State, Line, Policy, TotalsLine};
use batchwise_core::passive::{Epoch, Params};

use super::config::{Config, Kind};
use super::control::{Asked, Request, Server};
use super::health::{Checker, Health, Target};
use super::install::{self, addresses};
use super::journal::{About, Journal};
use super::metrics::BalanceMetrics;
use super::nexthop::{Follower, Kernel, Known, NextHop, ask};
use super::service::Service;
use super::show;
use super::status::{AgentLine, Status};
use crate::output::Sink;
use crate::output::exporter::Exporter;
use crate::watch::wall_clock_ns;

/// Events wait in a buffer of limited size, and health does not wait for the interval's end.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// An epoch of a flow with few packets may last for so many intervals.
const LONGEST_EPOCH: u32 = 4;
/// A flow is no longer measured after so many of its longest epochs without a packet.
const FORGET: u32 = 3;

/// What the command line decides.
#[derive(Clone, Debug)]
pub struct Run {
    /// The configuration's file.
    pub file: PathBuf,
    /// Wins over the file's.
    pub policy: Option<Policy>,
    /// Wins over the file's.
    pub interval: Option<Duration>,
    /// Until it ends by itself.
    pub duration: Option<Duration>,
    /// Nothing stays at the end.
    pub remove_at_exit: bool,
}

impl Run {
    /// The file's configuration, as the command line changes it.
    ///
    /// # Errors
    /// The file is wrong.
    pub fn read(&self) -> anyhow::Result<Config> {
        let mut config = Config::read(&self.file)?;
        config.policy = self.policy.unwrap_or(config.policy);
        config.interval = self.interval.unwrap_or(config.interval);
        Ok(config)
    }
}

/// A backend that was taken out and may still have connections.
pub struct Leaving {
    /// Its place.
    pub index: u16,
    /// Its service's name.
    pub service: String,
    /// Its name.
    pub name: String,
    /// What the maps say.
    pub written: bpf::Backend,
    /// Its connections have until then.
    pub until: Instant,
}

/// How the loop ended.
pub struct Ended {
    /// Nothing is to stay.
    pub remove: bool,
    /// Who wanted it, and waits for it to be done.
    pub asked: Option<Asked>,
}

/// Everything that the loop knows.
pub struct Agent {
    pub(super) run: Run,
    pub(super) balancer: Balancer,
    pub(super) config: Config,
    pub(super) services: Vec<Service>,
    pub(super) leaving: Vec<Leaving>,
    pub(super) journal: Journal,
    kernel: Kernel,
    checker: Checker,
    follower: Follower,
    probes: BTreeMap<String, Probe>,
    /// Places of backends by index: service, backend.
    places: BTreeMap<u16, (usize, usize)>,
    pub(super) tallies: BTreeMap<u16, bpf::Tally>,
    /// Empty rings that were spoken of.
    empty: Vec<String>,
    generation: u64,
    config_error: Option<String>,
    started: bool,
    remove: Option<Asked>,
}

fn options(config: &Config) -> Options {
    let epoch_ns = crate::passive::nanos(config.interval);
    let max_ns = epoch_ns * u64::from(LONGEST_EPOCH);
    let measure = Measure {
        params: Params {
            epoch_ns,
            max_ns,
            ..Params::default()
        },
        flows: config.flows,
        forget: Duration::from_nanos(max_ns) * FORGET,
        udp_acks: 0,
    };
    Options {
        name: config.name.clone(),
        interfaces: config.interfaces.clone(),
        flows: config.flows,
        measure: (config.policy != Policy::Static).then_some(measure),
        attach: true,
        pin: true,
    }
}

impl Agent {
    /// Checks the configuration, loads or takes over the programs, and forwards from then on.
    ///
    /// # Errors
    /// The configuration does not hold or does not fit the machine, or the kernel refuses.
    pub fn start(run: Run, config: Config, mut journal: Journal) -> anyhow::Result<Self> {
        let kernel = Kernel::open()?;
        let checked = install::check(&kernel, config)?;
        let config = checked.config.clone();
        let balancer = Balancer::start(options(&config)).with_context(|| {
            let interfaces = config.interfaces.join(", ");
            format!("cannot balance at {interfaces} (`batchwise doctor` checks what is needed)")
        })?;
        if balancer.taken_over() {
            let detail = format!("the pinned maps of {:?} were taken over", config.name);
            journal.event("takeover", About::default(), detail);
        }
        let mut agent = Self {
            run,
            balancer,
            config,
            services: Vec::new(),
            leaving: Vec::new(),
            journal,
            kernel,
            checker: Checker::start()?,
            follower: Follower::start()?,
            probes: BTreeMap::new(),
            places: BTreeMap::new(),
            tallies: BTreeMap::new(),
            empty: Vec::new(),
            generation: 1,
            config_error: None,
            started: true,
            remove: None,
        };
        agent.install(checked)?;
        Ok(agent)
    }

    /// Runs until the duration is over, the user quits, `stop` is set or a request ends it.
    ///
    /// # Errors
    /// The kernel does not let us read or write, or the output is gone.
    pub fn run(
        &mut self,
        server: &Server,
        sink: &mut dyn Sink<Status>,
        exporter: Option<&Exporter<BalanceMetrics>>,
        stop: &AtomicBool,
        hangup: &Arc<AtomicBool>,
    ) -> anyhow::Result<Ended> {
        let start = Instant::now();
        let end = self.run.duration.map(|duration| start + duration);
        let mut next = start + self.config.interval;
        loop {
            let until = end.map_or(next, |end| end.min(next));
            let wait = until.saturating_duration_since(Instant::now());
            let quit = stop.load(Ordering::Relaxed) || sink.poll_quit(wait.min(POLL_EVERY))?;
            let epochs = self.balancer.poll()?;
            self.take(epochs);
            self.sense()?;
            if hangup.swap(false, Ordering::Relaxed) {
                // what is wrong has been said
                let _ = self.reload();
            }
            for asked in server.requests() {
                self.answer(asked)?;
            }
            let now = Instant::now();
            let over = quit || self.remove.is_some() || end.is_some_and(|end| now >= end);
            if over || now >= next {
                let status = self.interval(now)?;
                if let Some(exporter) = exporter {
                    exporter.update(|metrics| metrics.interval(&status));
                }
                sink.interval(&status)?;
                // an interval that was missed is not made up for
                next = (next + self.config.interval).max(now + POLL_EVERY);
            }
            if over {
                let asked = self.remove.take();
                return Ok(Ended {
                    remove: asked.is_some() || self.run.remove_at_exit,
                    asked,
                });
            }
        }
    }

    fn take(&mut self, epochs: Vec<Epoch>) {
        for epoch in epochs {
            let place = epoch.tuple.and_then(|t| self.places.get(&t.backend));
            if let Some((service, backend)) = place
                && let Some(service) = self.services.get_mut(*service)
            {
                service.epoch(*backend, &epoch);
            }
        }
    }

    /// Health and neighbours: what changed is acted upon at once.
    fn sense(&mut self) -> anyhow::Result<()> {
        let mut changed = false;
        let results: Vec<_> = self.checker.results().collect();
        for checked in results {
            let Some((service, backend)) = self.places.get(&checked.index).copied() else {
                continue;
            };
            let Some(service) = self.services.get_mut(service) else {
                continue;
            };
            let check = service.spec.check.clone();
            let Some(backend) = service.backends.get_mut(backend) else {
                continue;
            };
            backend.vouched |= checked.result.is_ok() && matches!(check.kind, Kind::Http { .. });
            if backend.health.checked(&check, checked.result) {
                changed = true;
                let detail = match (backend.health.state(), backend.health.why()) {
                    (state, Some(why)) => format!("{}: {why}", show::health(state)),
                    (state, None) => show::health(state).to_owned(),
                };
                let about = About::backend(&service.spec.name, &backend.spec.name);
                if backend.health.serves() {
                    self.journal.event("health", about, detail);
                } else {
                    self.journal.warn("health", about, &detail);
                }
            }
        }
        if let Some(known) = self.follower.news() {
            changed |= self.follow(&known);
        }
        if changed {
            self.push()?;
            self.say_empty();
        }
        Ok(())
    }

    fn follow(&mut self, known: &Known) -> bool {
        let mut changed = false;
        for service in &mut self.services {
            for backend in &mut service.backends {
                let before = backend.way.as_ref().ok().and_then(|way| way.mac);
                let way = known.way(backend.spec.address, service.spec.method);
                let way = way.map(|way| {
                    if way.mac.is_none() {
                        ask(way.station);
                    }
                    // the kernel forgets neighbours that it does not use itself
                    let mac = way.mac.or(before);
                    NextHop { mac, ..way }
                });
                if way == backend.way {
                    continue;
                }
                changed = true;
                let detail = match &way {
                    Ok(way) => format!(
                        "by {} to {}",
                        way.interface,
                        way.mac.map_or_else(|| "nobody".to_owned(), mac_text)
                    ),
                    Err(why) => why.clone(),
                };
                let about = About::backend(&service.spec.name, &backend.spec.name);
                self.journal.event("neighbour", about, detail);
                backend.way = way;
            }
        }
        changed
    }

    fn answer(&mut self, asked: Asked) -> anyhow::Result<()> {
        match asked.request.clone() {
            Request::Status => {
                let lines = self.status(Vec::new())?.to_lines()?;
                asked.lines(lines);
            }
            Request::Drain {
                backend,
                service,
                undo,
            } => {
                let done = self.drain(&backend, service.as_deref(), undo);
                if done.is_ok() {
                    self.push()?;
                    self.say_empty();
                }
                asked.answer(done);
            }
            Request::Reload => asked.answer(self.reload()),
            Request::Remove => self.remove = Some(asked),
        }
        Ok(())
    }

    fn drain(&mut self, name: &str, service: Option<&str>, undo: bool) -> Result<String, String> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (s, known) in self.services.iter().enumerate() {
            if service.is_none_or(|wanted| wanted == known.spec.name) {
                let backends = known.backends.iter().enumerate();
                found.extend(
                    backends
                        .filter(|(_, b)| b.spec.name == name)
                        .map(|(b, _)| (s, b)),
                );
            }
        }
        let [(s, b)] = found[..] else {
            let names = |s: &Service| {
                let names = s.backends.iter().map(|b| b.spec.name.as_str());
                format!("{}: {}", s.spec.name, names.collect::<Vec<_>>().join(", "))
            };
            return Err(if found.is_empty() {
                let known: Vec<String> = self.services.iter().map(names).collect();
                format!(
                    "there is no backend {name:?}; there are {}",
                    known.join("; ")
                )
            } else {
                format!("more than one service has a backend {name:?}: say which with --service")
            });
        };
        let Some(service) = self.services.get_mut(s) else {
            return Err("the service has gone".to_owned());
        };
        let of = service.spec.name.clone();
        let Some(backend) = service.backends.get_mut(b) else {
            return Err("the backend has gone".to_owned());
        };
        backend.drained = !undo;
        let connections = backend.connections.unwrap_or(0);
        let detail = if undo {
            "gets new connections again".to_owned()
        } else {
            format!("gets no new connections; {connections} are active")
        };
        let about = About::backend(&of, name);
        self.journal.event("drain", about, detail.clone());
        Ok(format!("{of}/{name} {detail}"))
    }

    /// Reads the configuration again; one that does not hold changes nothing.
    fn reload(&mut self) -> Result<String, String> {
        match self.try_reload() {
            Ok(()) => {
                self.generation += 1;
                self.config_error = None;
                let detail = format!(
                    "{} is in force (generation {})",
                    self.config.file.display(),
                    self.generation
                );
                self.journal
                    .event("reload", About::default(), detail.clone());
                Ok(detail)
            }
            Err(error) => {
                let error = format!("{error:#}");
                let detail = format!("the configuration before it stays in force: {error}");
                self.journal.warn("config_error", About::default(), &detail);
                self.config_error = Some(error.clone());
                Err(error)
            }
        }
    }

    fn try_reload(&mut self) -> anyhow::Result<()> {
        let config = self.run.read()?;
        let fixed = [
            ("name", config.name != self.config.name),
            ("interfaces", config.interfaces != self.config.interfaces),
            ("flows", config.flows != self.config.flows),
        ];
        if let Some((what, _)) = fixed.iter().find(|(_, changed)| *changed) {
            anyhow::bail!(
                "{}: {what} cannot change while the agent runs: restart it, or put back what it was",
                config.file.display()
            );
        }
        let checked = install::check(&self.kernel, config)?;
        let new = &checked.config;
        if new.policy != self.config.policy || new.interval != self.config.interval {
            // the program that measures otherwise takes the place of this one in the pinned links
            self.balancer = Balancer::start(options(new)).context("loading the programs again")?;
        }
        self.install(checked)
    }

    /// Which index is whose.
    pub(super) fn index(&mut self) {
        self.places.clear();
        for (s, service) in self.services.iter().enumerate() {
            for (b, backend) in service.backends.iter().enumerate() {
                self.places.insert(backend.index, (s, b));
            }
        }
    }

    /// Brings what must not wait into force: backends and tables.
    pub(super) fn push(&mut self) -> anyhow::Result<()> {
        let (policy, now) = (self.config.policy, wall_clock_ns());
        for service in &mut self.services {
            let delta = service.react(policy, now);
            write(&self.balancer, service, &delta)?;
        }
        Ok(())
    }

    /// Health checks, routes and exits of the configuration in force.
    pub(super) fn watch(&mut self, exits: &[String]) -> anyhow::Result<()> {
        self.probes.retain(|name, _| exits.contains(name));
        for exit in exits {
            if !self.probes.contains_key(exit) {
                let probe = Probe::attach(&self.balancer, exit)
                    .with_context(|| format!("cannot send health checks by {exit}"))?;
                self.probes.insert(exit.clone(), probe);
            }
        }
        let mut targets = Vec::new();
        for service in &mut self.services {
            let check = &service.spec.check;
            for backend in &mut service.backends {
                let unchecked = check.kind == Kind::None;
                if unchecked != (backend.health.state() == State::Unchecked) {
                    backend.health = Health::new(if unchecked {
                        State::Unchecked
                    } else {
                        State::Unknown
                    });
                }
                if !unchecked {
                    targets.push(Target {
                        index: backend.index,
                        address: service.spec.address,
                        mark: probe::mark(backend.index),
                        check: check.clone(),
                    });
                }
            }
        }
        self.checker.set(targets)?;
        self.follower.follow(addresses(&self.config))
    }

    /// Backends that were taken out keep their connections until their time is over.
    pub(super) fn drain_leaving(&mut self) -> anyhow::Result<()> {
        for leaving in &mut self.leaving {
            if leaving.written.state != bpf::State::Draining {
                leaving.written.state = bpf::State::Draining;
                self.balancer.set_backend(leaving.index, &leaving.written)?;
                let about = About::backend(&leaving.service, &leaving.name);
                let left = leaving.until.saturating_duration_since(Instant::now());
                let detail = format!(
                    "taken out; its connections have {} s",
                    left.as_secs_f64().ceil()
                );
                self.journal.event("removed", about, detail);
            }
        }
        Ok(())
    }

    fn vacate_leaving(&mut self, census: &[bpf::Counted], now: Instant) -> anyhow::Result<()> {
        let mut staying = Vec::new();
        for leaving in self.leaving.drain(..) {
            let counted = census.get(usize::from(leaving.index));
            let connections = counted.map_or(0, |c| c.kept);
            if connections > 0 && now < leaving.until {
                staying.push(leaving);
                continue;
            }
            self.balancer.vacate(leaving.index)?;
            let about = About::backend(&leaving.service, &leaving.name);
            let detail = format!("gone, with {connections} connections left");
            self.journal.event("removed", about, detail);
        }
        self.leaving = staying;
        Ok(())
    }

    fn interval(&mut self, now: Instant) -> anyhow::Result<Status> {
        let epochs = self.balancer.sweep()?;
        self.take(epochs);
        self.balancer.follow_macs()?;
        let census = self.balancer.census()?;
        let tallies: BTreeMap<u16, bpf::Tally> =
            self.balancer.backend_tallies()?.into_iter().collect();
        let (policy, ts_ns) = (self.config.policy, wall_clock_ns());
        for service in &mut self.services {
            for backend in &mut service.backends {
                let at = usize::from(backend.index);
                backend.connections = census.get(at).map(|c| c.active);
                let tally = tallies.get(&backend.index).copied().unwrap_or_default();
                let before = self.tallies.get(&backend.index).copied();
                backend.grown = grown(&before.unwrap_or_default(), &tally);
            }
            service.close_interval(now);
            let change = service.decide(policy, ts_ns);
            write(&self.balancer, service, &change.delta)?;
            if policy != Policy::Static || change.line.moved_slots > 0 {
                self.journal.decision(change.line);
            }
        }
        self.tallies.extend(tallies);
        self.vacate_leaving(&census, now)?;
        self.say_empty();
        let news = self.journal.take();
        self.status(news)
    }

    /// An empty table drops everything: that is said.
    pub(super) fn say_empty(&mut self) {
        let empty: Vec<String> = self
            .services
            .iter()
            .filter(|s| s.ring.iter().all(|slot| *slot == 0))
            .map(|s| s.spec.name.clone())
            .collect();
        for name in empty.iter().filter(|name| !self.empty.contains(name)) {
            let detail = "no backend serves: its packets are dropped until one does";
            self.journal.warn("empty", About::service(name), detail);
        }
        for name in self.empty.iter().filter(|name| !empty.contains(name)) {
            self.journal
                .event("empty", About::service(name), "it is served again");
        }
        self.empty = empty;
    }

    fn status(&mut self, news: Vec<Line>) -> anyhow::Result<Status> {
        let (ts_ns, now) = (wall_clock_ns(), Instant::now());
        let outcomes = self.balancer.outcomes()?;
        let kept = self.balancer.kept();
        let by_name = outcomes.by_name().into_iter();
        Ok(Status {
            agent: AgentLine {
                kind: "agent".to_owned(),
                ts_ns,
                name: self.config.name.clone(),
                pid: std::process::id(),
                policy: self.config.policy,
                interfaces: self.config.interfaces.clone(),
                config: self.config.file.display().to_string(),
                generation: self.generation,
                config_error: self.config_error.clone(),
                taken_over: self.balancer.taken_over() && self.started,
            },
            backends: self
                .services
                .iter()
                .flat_map(|s| s.lines(ts_ns, now))
                .collect(),
            totals: TotalsLine {
                ts_ns,
                outcomes: by_name.map(|(name, n)| (name.to_owned(), n)).collect(),
                unknown_flows: outcomes.unknown_flow,
                insert_failed: outcomes.insert_failed,
                flows_settled: kept.settled.into(),
                flows_young: kept.young.into(),
                lost_events: self.balancer.measured()?.lost_events,
            },
            events: self.journal.recent().to_vec(),
            news,
        })
    }
}

/// Writes a service's backends and table so that no packet finds a place that is not ready.
fn write(balancer: &Balancer, service: &mut Service, delta: &[(u32, u16)]) -> anyhow::Result<()> {
    let method = service.spec.method;
    let mut later = Vec::new();
    for (at, backend) in service.backends.iter_mut().enumerate() {
        let wanted = backend.wanted(method);
        if wanted == backend.written {
            continue;
        }
        if wanted.state == bpf::State::Serving {
            balancer.set_backend(backend.index, &wanted)?;
            backend.written = wanted;
        } else {
            later.push((at, wanted));
        }
    }
    if !delta.is_empty() {
        balancer.write_ring(service.number, delta)?;
    }
    for (at, wanted) in later {
        if let Some(backend) = service.backends.get_mut(at) {
            balancer.set_backend(backend.index, &wanted)?;
            backend.written = wanted;
        }
    }
    Ok(())
}

fn grown(before: &bpf::Tally, now: &bpf::Tally) -> bpf::Tally {
    bpf::Tally {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
        opened: now.opened.saturating_sub(before.opened),
        closed: now.closed.saturating_sub(before.closed),
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    let parts: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
    parts.join(":")
}
