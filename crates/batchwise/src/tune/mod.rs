//! `batchwise tune`: the loop from the sensor through each service's controller to its sockets.

mod decider;
pub mod decisions;
mod guard;
mod hold;
pub mod metrics;
mod service;

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::{self as bpf, Actuator, Config, Control, Reading, Sensor, Units, release};
use batchwise_core::sense::report::{Side, Unit};
use batchwise_core::sense::tracker::Tracker;
use batchwise_core::sense::wire::State;
use batchwise_core::tune::{Arm, Policy, Tuning};
use clap::Args;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::frame::args::{PortArgs, parse_duration, parse_exchange_period};
use crate::frame::clock::monotonic_ns;
use crate::frame::metrics::Exporter;
use crate::frame::rows::Format;
use crate::frame::signals::{hangup_flag, stop_flag};
use crate::frame::ticks::{Ticks, Turn};
use crate::hints::{HintArgs, HintWindows, Hints};
use decider::Decider;
use decisions::Decisions;
use guard::Guard;
pub use guard::{GuardArgs, run as guard};
use hold::Hold;
use metrics::TuneMetrics;
use service::Service;

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise tune --port 6379 --policy slo:500us
      the highest throughput whose mean latency stays under 500 us
  sudo batchwise tune --port 6379 --policy latency --dry-run --explain
      measure and say what would be done, but touch no socket
  sudo batchwise tune --port 6379 --log /var/log/batchwise.jsonl
      keep every decision, with all that it was made from
  sudo batchwise tune --port 6379 --metrics 127.0.0.1:9464
      what it does and knows, for Prometheus

Run it on both hosts: each agent changes its own host's sockets, and learns of the other end through
TCP options, on connections that are made from now on. Whatever happens to the agent, every socket
has its application's own setting back within a second.";

/// Batch only when it helps: switch Nagle's algorithm for a live service.
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    ports: PortArgs,
    /// What is to be gained: latency, throughput, or slo:TIME, the highest throughput whose mean
    /// latency stays under TIME
    #[arg(long, default_value = "latency")]
    policy: Policy,
    /// Only sockets made by processes in this cgroup v2 directory or below it (default: the whole
    /// machine)
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Decide and log, but leave every socket as it is
    #[arg(long)]
    dry_run: bool,
    /// Append every decision to this file, a line of JSON each; SIGHUP opens it anew
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Say every second what is known of each arm and what it waits for
    #[arg(long)]
    explain: bool,
    /// How decisions are shown
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Stop after this time; without it, at Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// What trying the other arm may add to the mean latency, as a share
    #[arg(long, default_value_t = 0.02, value_name = "SHARE", value_parser = parse_share)]
    budget: f64,
    /// Do not act on estimates that are trusted less, 0 to 1; those from one end alone have 0.4
    #[arg(long, default_value_t = 0.5, value_name = "CONFIDENCE", value_parser = parse_share)]
    min_confidence: f64,
    /// Decide nothing: hold every socket at Nagle on or off, or at a batching limit in bytes. Or
    /// aimd: at a limit that moves gradually (additive increase, multiplicative decrease), an
    /// experiment to compare with; it counts all the time, and trying has no budget
    #[arg(long, value_name = "on|off|BYTES|aimd", value_parser = hold::parse, conflicts_with = "dry_run")]
    hold: Option<Hold>,
    /// Least time between two options of the exchange on a connection
    #[arg(long, default_value = "500us", value_parser = parse_exchange_period)]
    exchange_period: Duration,
    #[command(flatten)]
    hints: HintArgs,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a number from 0 to 1".to_owned()),
    }
}

/// A kernel tick at HZ=250, the granularity that the paper guesses (§5).
const TICK: Duration = Duration::from_millis(4);
/// Between looks while nothing is counted.
const SLOW_TICK: Duration = Duration::from_millis(10);
/// Reading all connections may take this share of a CPU.
const READING_SHARE: u32 = 50;
/// We count for a peer that asked within this time.
const WANTED: u64 = 60_000_000;
/// Sockets that were opened since the last decision are looked for at most this often.
const STRAGGLERS: Duration = Duration::from_millis(100);
/// A service without connections is forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// For the guard of an agent that has just died to give the sockets back.
const LOCK_PATIENCE: Duration = Duration::from_millis(1_500);
const LOCK_POLL: Duration = Duration::from_millis(5);
const EXPLAIN_EVERY: Duration = Duration::from_secs(1);

/// Tunes until the duration is over or a signal comes; then every socket has its own setting back.
pub fn run(args: TuneArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    // without a log a closed terminal ends the agent, as it does other commands
    let hangup = args.log.is_some().then(hangup_flag).transpose()?;
    let decisions = Decisions::open(
        args.log.as_deref(),
        args.format,
        args.policy,
        args.dry_run,
        args.hold.and_then(Hold::arm),
    )?;
    let exporter = args.metrics.as_deref().map(Exporter::bind).transpose()?;
    let cgroup = match &args.cgroup {
        Some(dir) => dir.clone(),
        None => bpf::cgroup_mount_point()?,
    };
    let lock = lock(&cgroup)?;
    first_in_line();
    let config = Config {
        ports: args.ports.numbers.clone(),
        cgroup: args.cgroup.clone(),
        units: Units::of(&[Unit::Sends]),
        tails: false,
        brief: false,
    };
    let period = args.exchange_period;
    let hinting = args.hints.are_wanted().then_some(bpf::Hints);
    let extensions = (bpf::Exchange { period }, (hinting, bpf::Tuning));
    let (sensor, ((), (advertiser, actuator))) = Sensor::open(&config, &extensions)
        .context("cannot tune (`batchwise doctor` checks what is needed)")?;
    let guard = Guard::start(&actuator, args.cgroup.as_deref(), lock.as_fd())?;
    let mut agent = Agent {
        hints: args.hints.listen(advertiser)?,
        args,
        sensor,
        actuator,
        guard,
        lock,
        decisions,
        exporter,
        tracker: Tracker::new(monotonic_ns()),
        services: HashMap::new(),
        looked_for_stragglers: Instant::now(),
        explained: Instant::now(),
    };
    let ran = agent.run(stop, hangup.as_deref());
    let finished = agent.finish();
    ran?;
    finished?;
    Ok(ExitCode::SUCCESS)
}

/// A tick is short, and must come in time most of all when the CPUs are busy. The guard inherits it.
fn first_in_line() {
    if let Err(error) = rustix::process::setpriority_process(None, -20) {
        tracing::debug!("the agent has no higher priority than others: {error}");
    }
}

/// Two agents would take each other's settings for the applications' own. Where one has just died
/// its guard keeps the lock until all sockets are given back.
fn lock(cgroup: &Path) -> anyhow::Result<Flock<File>> {
    let mut dir =
        File::open(cgroup).with_context(|| format!("cannot open {}", cgroup.display()))?;
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((_, error)) if Instant::now() >= end => {
                return Err(error).with_context(|| {
                    let cgroup = cgroup.display();
                    format!("another `batchwise tune` runs for {cgroup}: stop it first, or give it --cgroup")
                });
            }
            Err((unlocked, _)) => dir = unlocked,
        }
        std::thread::sleep(LOCK_POLL);
    }
}

/// How soon the next look is to come.
enum Pace {
    /// Nothing is counted.
    Asleep,
    Counting,
    /// The other arm is in force for a few ticks.
    Pulse,
}

/// What the services were told in a tick.
#[derive(Default)]
struct Commanded {
    /// Someone wants the queues counted.
    sensing: bool,
    /// The other arm is in force somewhere for a few ticks.
    pulse: bool,
    /// Namespaces whose sockets are to follow.
    walk: Vec<u32>,
}

struct Agent {
    args: TuneArgs,
    sensor: Sensor,
    actuator: Actuator,
    guard: Guard,
    lock: Flock<File>,
    decisions: Decisions,
    exporter: Option<Exporter<TuneMetrics>>,
    hints: Option<Hints>,
    tracker: Tracker,
    services: HashMap<(SocketAddr, Side), Service>,
    looked_for_stragglers: Instant,
    explained: Instant,
}

impl Agent {
    fn run(&mut self, stop: Arc<AtomicBool>, hangup: Option<&AtomicBool>) -> anyhow::Result<()> {
        let mut ticks = Ticks::new(stop, Duration::ZERO, self.args.duration);
        loop {
            let mut guarded = true;
            let turn = ticks.turn(guard::BEAT, |time| {
                guarded = self.wait(time)?;
                Ok(false)
            })?;
            if matches!(turn, Turn::End | Turn::Stopped) {
                return Ok(());
            }
            if !guarded || !self.guard.beat() {
                self.start_over()?;
            } else if turn == Turn::Look {
                continue;
            }
            if hangup.is_some_and(|flag| flag.swap(false, Ordering::Relaxed)) {
                self.decisions.reopen();
            }
            let (begin, cpu) = (Instant::now(), cpu_time()?);
            let reading = self.sensor.read()?;
            let pace = self.tick(&reading)?;
            let used = (cpu_time()? - cpu) * READING_SHARE;
            let next = match pace {
                Pace::Pulse => TICK, // it is short, and rare
                Pace::Counting => TICK.max(used),
                Pace::Asleep => SLOW_TICK.max(used),
            };
            ticks.set_next(begin + next);
        }
    }

    /// Sleeps for `left`, until a signal, or the guard's end; whether the guard is still there.
    fn wait(&self, left: Duration) -> anyhow::Result<bool> {
        let mut fds = [PollFd::new(self.guard.as_fd(), PollFlags::empty())];
        match ppoll(&mut fds, Some(TimeSpec::from_duration(left)), None) {
            Ok(ready) => Ok(ready == 0),
            Err(nix::errno::Errno::EINTR) => Ok(true),
            Err(error) => Err(error).context("waiting"),
        }
    }

    /// The guard took us for dead, and gave all sockets back (we were stopped, or the machine
    /// stood still), or was killed itself: everything begins anew.
    fn start_over(&mut self) -> anyhow::Result<()> {
        let why = match self.give_back()? {
            true => "took this agent for dead",
            false => "was killed",
        };
        tracing::warn!("the guard {why}: all sockets were given back, beginning anew");
        self.sensor.detach();
        for (server, side) in self.services.drain().map(|(key, _)| key) {
            self.actuator.forget(server, side)?;
        }
        self.tracker = Tracker::new(monotonic_ns());
        self.actuator.resume()?;
        self.guard = Guard::start(
            &self.actuator,
            self.args.cgroup.as_deref(),
            self.lock.as_fd(),
        )?;
        Ok(())
    }

    /// One look at all services; how soon the next is to come.
    fn tick(&mut self, reading: &Reading) -> anyhow::Result<Pace> {
        let now = monotonic_ns(); // as the kernel's counters
        self.take_in(reading, now);
        let hints = match &mut self.hints {
            Some(hints) => hints.read(&reading.open)?,
            None => HintWindows::default(),
        };
        let look = self.looked_for_stragglers.elapsed() >= STRAGGLERS;
        let Commanded {
            sensing,
            pulse,
            mut walk,
        } = self.command(&hints, look)?;
        if look {
            self.looked_for_stragglers = Instant::now();
            if let Some(exporter) = &self.exporter {
                let dropped = self.decisions.dropped();
                exporter.update(|m| m.tick(&self.services, reading.lost_events, dropped));
            }
        }
        let wanted = now.saturating_sub(self.sensor.wanted_at()) < WANTED;
        let counts = sensing || wanted;
        if sensing && !self.sensor.is_counting() {
            // sockets fell silent while nothing was counted; where the peer begins they hear it
            walk.extend(self.services.values().flat_map(Service::namespaces));
        }
        match counts {
            true => self.sensor.begin()?,
            false => self.sensor.detach(),
        }
        walk.sort_unstable();
        walk.dedup();
        if !walk.is_empty() {
            self.actuator.apply(walk.into_iter())?;
        }
        self.forget_old()?;
        self.explain()?;
        Ok(if pulse {
            Pace::Pulse
        } else if counts {
            Pace::Counting
        } else {
            Pace::Asleep
        })
    }

    /// Gives each connection to its service.
    fn take_in(&mut self, reading: &Reading, now: u64) {
        let epoch = self.sensor.epoch();
        self.tracker
            .read(reading, self.sensor.is_counting().then_some(epoch));
        for service in self.services.values_mut() {
            service.begin_tick(now);
        }
        for c in self.tracker.connections() {
            let (server, side) = (c.last.server(), c.last.side);
            let service = self.services.entry((server, side)).or_insert_with(|| {
                let tuning = Tuning {
                    budget: self.args.budget,
                    min_confidence: self.args.min_confidence,
                    dry_run: self.args.dry_run || self.args.hold.is_some(),
                    ..Tuning::new(self.args.policy, side)
                };
                let gradual = self.args.hold == Some(Hold::Gradual);
                Service::new(Decider::new(tuning, gradual, now), side, now)
            });
            service.add(c);
        }
    }

    /// Lets each service decide, and puts what it decided into the maps; `look`: for sockets that
    /// were opened since its last decision, too.
    fn command(&mut self, hints: &HintWindows, look: bool) -> anyhow::Result<Commanded> {
        let mut all = Commanded::default();
        for (key, service) in &mut self.services {
            if let (Side::Client, Some(window)) = (key.1, hints.of_service(&key.0)) {
                service.hear(window);
            }
            let before = service.control();
            let command = service.end_tick();
            all.sensing |= command.sensing;
            all.pulse |= command.pulse;
            let moved = service.decider.limit().unwrap_or(0);
            let (arm, limit) = hold::setting(self.args.hold, &command, moved);
            let control = Control {
                arm,
                limit,
                advertised: State {
                    nagle_off: arm.unwrap_or(service.decider.app_setting()) == Arm::Off,
                    probing: command.probing,
                    wants: command.sensing,
                },
            };
            if before != Some(control) {
                self.actuator.control(key.0, key.1, &control)?;
                service.set_control(control);
            }
            // all at once where the arm changes; what was opened since, when it is looked for
            let switched = before.map_or(control.arm.is_some(), |b| b.arm != control.arm);
            let late = look && (control.limit > 0 || service.has_stragglers());
            if switched || late {
                all.walk.extend(service.namespaces());
            }
            for event in service.events() {
                self.decisions.event(key.0, key.1, &event)?;
            }
        }
        Ok(all)
    }

    fn explain(&mut self) -> anyhow::Result<()> {
        if self.args.explain && self.explained.elapsed() >= EXPLAIN_EVERY {
            self.explained = Instant::now();
            for (key, service) in &self.services {
                self.decisions.explain(key.0, key.1, service)?;
            }
        }
        Ok(())
    }

    fn forget_old(&mut self) -> anyhow::Result<()> {
        let old = |_: &_, s: &mut Service| s.idle_for() > FORGOTTEN;
        for ((server, side), _) in self.services.extract_if(old) {
            self.actuator.forget(server, side)?;
        }
        Ok(())
    }

    /// All endings are the guard's: it gives the sockets back when we are gone. If it has been
    /// killed, we do it ourselves. Whether it was there.
    fn give_back(&mut self) -> anyhow::Result<bool> {
        let done = self.guard.finish();
        if !done {
            release(&self.actuator.guard_fds(), self.args.cgroup.as_deref())
                .context("cannot give the sockets back")?;
        }
        Ok(done)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.give_back()?;
        for (key, service) in &self.services {
            self.decisions.stop(key.0, key.1, service)?;
        }
        Ok(())
    }
}

/// What this thread has used of a CPU.
fn cpu_time() -> anyhow::Result<Duration> {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("reading the clock")?;
    Ok(used.into())
}
