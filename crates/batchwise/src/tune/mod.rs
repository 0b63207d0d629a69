//! `batchwise tune`: the loop from the sensor through each service's controller to its sockets.

mod args;
mod decisions;
mod give_back;
mod guard;
mod lever;
pub mod metrics;
mod place;
mod service;
mod test;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::{
    self as bpf, Actuator, Config, MOST_SERVICES, Owners, Reading, Sensor, Socket, Units,
    monotonic_ns,
};
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Unit;
use batchwise_core::sense::tracker::Tracker;
use batchwise_core::tune::report::DecisionEvent;
use batchwise_core::tune::{Arm, InForce, Knob, Next, Params, Reason, Recalled};

use crate::frame::metrics::Exporter;
use crate::frame::signals::{hangup_flag, stop_flag};
use crate::frame::ticks::{Ticks, Turn};
use crate::hints::Hints;
use crate::unseen::{Bypassed, Unseen};
pub use args::{EXAMPLES, TuneArgs};
use decisions::{Decisions, found};
use guard::Guard;
pub use guard::{GuardArgs, run as guard};
use lever::Levers;
use metrics::TuneMetrics;
use place::{Asked, Kept, Place};
use service::{Member, Service};
use test::{Ended, Plan};

/// Between looks at what the kernel keeps of the sockets, …
const LOOK: Duration = Duration::from_millis(80);
/// … where a load seems to change, …
const SOON: Duration = Duration::from_millis(20);
/// … which take at most this share of a CPU, unless they would be rarer than this.
const LOOKING_SHARE: u32 = 100;
const MOST_LOOK: Duration = Duration::from_secs(1);
/// … and this at most, however rare they get: a kernel that shows sockets by descriptors only has to look at all that there are.
const LARGEST_SHARE: u32 = 10;
/// A service without connections is forgotten after this time.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// While programs are loaded and the guard starts, which takes 0.4 s of a CPU that the service may need: the lowest that
/// there is. …
const LOADING_NICENESS: i32 = 19;
/// … Where an agent before this one had a setting in force, a quarter of a busy CPU: it is so again after 1.4 s instead of 5.3.
const RESUMING_NICENESS: i32 = 5;
/// Sockets that are switched between two looks at the heartbeat: about ten milliseconds.
const AT_A_TIME: usize = 2_048;
const EXPLAIN_EVERY: Duration = Duration::from_secs(1);
/// What is in force is written down so often, though nothing changes: an agent that is killed has no time for it.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// After so long it is said what is not seen, as after an interval of `watch`.
const UNSEEN_EVERY: Duration = Duration::from_secs(1);

/// Tunes until the duration is over or a signal comes; then every socket has its own setting back.
pub fn run(args: TuneArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    // without a log a closed terminal ends the agent, as it does other commands
    let hangup = args.log.is_some().then(hangup_flag).transpose()?;
    let form = args.stay.format.without_live()?;
    let decisions = Decisions::open(args.log.as_deref(), form, args.policy, args.dry_run)?;
    let exporter = Exporter::open(args.stay.metrics.as_deref(), args.stay.otlp.as_deref())?;
    let hints = args.hints.listen()?;
    let cgroup = bpf::find_cgroup(args.cgroup.as_deref())?;
    let place = Place::take(&cgroup)?;
    let kept = match args.dry_run || args.hold.is_some() {
        true => Vec::new(),
        false => place.kept(),
    };
    let niceness = match kept.is_empty() {
        true => LOADING_NICENESS,
        false => RESUMING_NICENESS,
    };
    // who could not rise again must not go down
    match first_in_line() {
        true => {
            rustix::process::setpriority_process(None, niceness)
                .context("lowering the priority")?;
        }
        false => tracing::warn!(
            "agent and guard have no priority over other processes (CAP_SYS_NICE): where CPUs are busy, sockets may be given back late"
        ),
    }
    let config = Config {
        ports: args.ports.clone(),
        cgroup: args.cgroup.clone(),
        units: Units::of(&[Unit::Sends]),
        tails: false,
        brief: true,
    };
    let (sensor, actuator) = Sensor::open(&config, &bpf::Tuning)
        .context("cannot tune (`batchwise doctor` checks what is needed)")?;
    let guard = Guard::start(&actuator, args.cgroup.as_deref(), &place)?;
    first_in_line();
    let duration = args.stay.duration;
    let unseen = Unseen::on(&args.ports);
    let levers = Levers::new(args.scope, place.levers());
    let mut agent = Agent {
        args,
        sensor,
        actuator,
        guard,
        place,
        levers,
        decisions,
        exporter,
        hints,
        tracker: Tracker::new(monotonic_ns()),
        services: HashMap::new(),
        kept: kept
            .into_iter()
            .map(|k| (k.service, (k.knob, k.in_force)))
            .collect(),
        kept_at: Instant::now(),
        ticks: Ticks::new(Arc::clone(&stop), LOOK, duration),
        stop,
        explained: Instant::now(),
        unseen,
        looked_for_unseen: Instant::now(),
        forgetful: false,
        left_alone: 0,
    };
    agent.give_back_what_was_left()?;
    let ran = agent.run(hangup.as_deref());
    let finished = agent.finish();
    ran?;
    finished?;
    Ok(ExitCode::SUCCESS)
}

/// What agent and guard do is short, and must come in time most of all when the CPUs are busy. Whether that could be asked for.
fn first_in_line() -> bool {
    rustix::process::setpriority_process(None, -20).is_ok()
}

struct Agent {
    args: TuneArgs,
    sensor: Sensor,
    actuator: Actuator,
    guard: Guard,
    place: Place,
    levers: Levers,
    decisions: Decisions,
    exporter: Option<Exporter<TuneMetrics>>,
    hints: Option<Hints>,
    tracker: Tracker,
    services: HashMap<ServiceKey, Service>,
    /// What the agent before this one had in force, and when that of this one was last written down.
    kept: HashMap<ServiceKey, (Knob, InForce)>,
    kept_at: Instant,
    ticks: Ticks,
    stop: Arc<AtomicBool>,
    explained: Instant,
    unseen: Unseen,
    looked_for_unseen: Instant,
    /// What applications asked for could not be written down when that was last tried.
    forgetful: bool,
    /// Connections that were left alone in the last look, as there were too many services.
    left_alone: u64,
}

impl Agent {
    fn run(&mut self, hangup: Option<&AtomicBool>) -> anyhow::Result<()> {
        loop {
            let mut turn = Turn::Look;
            while turn == Turn::Look {
                if !self.guard.beat() {
                    self.start_over()?;
                }
                turn = self.ticks.turn(guard::BEAT, |time| {
                    self.guard.wait(time)?;
                    Ok(false)
                })?;
            }
            if matches!(turn, Turn::End | Turn::Stopped) {
                return Ok(());
            }
            if hangup.is_some_and(|flag| flag.swap(false, Ordering::Relaxed)) {
                self.decisions.reopen();
            }
            let begin = Instant::now();
            if let Some(hints) = self.hints.as_mut().filter(|hints| hints.due().is_zero()) {
                // applications come and go; what they say is asked for in tests only
                hints.read(&[])?;
            }
            // each step takes long where there are tens of thousands of connections
            let reading = self.read()?;
            self.look(&reading)?;
            self.guard.beat();
            let cost = begin.elapsed();
            self.decide()?;
            self.export(reading.lost_events);
            self.explain()?;
            if self.kept_at.elapsed() >= KEEP_EVERY {
                self.keep();
            }
            let is_restless = self.services.values().any(Service::is_restless);
            let pause = if is_restless { SOON } else { LOOK };
            let pause = (cost * LOOKING_SHARE)
                .clamp(pause, MOST_LOOK)
                .max(cost * LARGEST_SHARE);
            self.ticks.set_next(Instant::now() + pause);
        }
    }

    /// Takes in what each service's sockets do, and brings those in line that were opened since.
    fn look(&mut self, reading: &Reading) -> anyhow::Result<()> {
        self.tracker.read(reading, None);
        self.guard.beat();
        let (params, now) = (self.params(), monotonic_ns());
        // what is held is of one knob
        let knob = self.args.knob.0.or(self.args.hold.map(|_| Knob::Nagle));
        for service in self.services.values_mut() {
            service.begin_look(now);
        }
        let before = std::mem::take(&mut self.left_alone);
        let mut bypassed = Bypassed::default();
        for c in self.tracker.connections() {
            if bypassed.add(&c.last) {
                continue;
            }
            let is_full = self.services.len() >= MOST_SERVICES;
            match self.services.entry(c.last.service()) {
                Entry::Occupied(mut service) => service.get_mut().see(c),
                Entry::Vacant(_) if is_full => self.left_alone += 1,
                Entry::Vacant(new) => {
                    let mut service = Service::new(params, knob, now);
                    if let Some((knob, then)) = self.kept.remove(new.key()) {
                        service.take(knob);
                        if service.knob == knob {
                            service.controller.resume(then);
                        }
                    }
                    new.insert(service).see(c);
                }
            }
        }
        if self.looked_for_unseen.elapsed() >= UNSEEN_EVERY {
            self.looked_for_unseen = Instant::now();
            let ports = self.services.keys().map(|key| key.server.port()).collect();
            self.unseen.look(&ports, &bypassed, &self.sensor);
        }
        if self.left_alone > 0 && before == 0 {
            tracing::warn!(
                "more than {MOST_SERVICES} services: {} connections are left alone; give fewer ports, or a --cgroup",
                self.left_alone
            );
        }
        let mut held = Vec::new();
        for (key, service) in &mut self.services {
            service.end_look();
            if service.arm != self.args.hold && self.args.hold.is_some() {
                service.arm = self.args.hold;
                held.push(*key);
            }
        }
        self.pull_levers();
        let could = !self.forgetful;
        if !self.remember() {
            for key in held {
                self.services.entry(key).and_modify(|s| s.arm = None);
            }
            // what is opened meanwhile is left alone, too
            if could {
                self.control(false)?;
            }
            return Ok(());
        }
        if !could {
            self.control(true)?;
        }
        for key in held {
            let held = self.services[&key].control(self.args.hold);
            self.actuator.control(&key, held)?;
        }
        let services = self.services.values();
        let out_of_line: BTreeSet<_> = services.flat_map(Service::out_of_line).collect();
        self.actuator.set_all(&out_of_line)?;
        let strays: Vec<_> = self
            .services
            .values()
            .flat_map(Service::stragglers)
            .collect();
        if !strays.is_empty() {
            self.guard.beat();
            let owners = self.owners()?;
            self.set(&owners, &strays)?;
        }
        let old = |_: &_, s: &mut Service| s.idle_for() > FORGOTTEN;
        for (key, _) in self.services.extract_if(old) {
            self.actuator.forget(&key)?;
        }
        Ok(())
    }

    /// Beyond sockets, services have what is in force for them.
    fn pull_levers(&mut self) {
        let services = self.services.iter().filter(|(_, s)| s.acks_soon());
        self.levers.pull(services.map(|(key, _)| key));
        for (key, service) in &mut self.services {
            service.lever = service.acks_soon().then(|| self.levers.of(key));
        }
    }

    /// New sockets of services that are switched: as these are, or as their applications ask.
    fn control(&self, switched: bool) -> anyhow::Result<()> {
        for (key, service) in self.services.iter().filter(|(_, s)| s.arm.is_some()) {
            let arm = service.arm.filter(|_| switched);
            self.actuator.control(key, service.control(arm))?;
        }
        Ok(())
    }

    /// What all connections did; the guard is let know that we live.
    fn read(&mut self) -> anyhow::Result<Reading> {
        let guard = &mut self.guard;
        Ok(self.sensor.read_long(&mut || _ = guard.beat())?)
    }

    fn owners(&mut self) -> anyhow::Result<Owners> {
        let guard = &mut self.guard;
        Ok(self.actuator.owners(&mut || _ = guard.beat())?)
    }

    /// Sets these sockets, and lets the guard know that we live: each takes microseconds, and there may be tens of thousands.
    fn set(&mut self, owners: &Owners, sockets: &[Socket]) -> anyhow::Result<()> {
        for some in sockets.chunks(AT_A_TIME) {
            self.guard.beat();
            self.actuator.set(owners, some.iter().copied())?;
        }
        Ok(())
    }

    /// Writes down what applications asked for whose sockets are to have something else: should neither
    /// we nor the guard have time to give them back, the next agent does. False: nothing may be switched.
    fn remember(&mut self) -> bool {
        let is_overridden =
            |(_, s): &(&ServiceKey, &Service)| s.arm.is_some() && s.knob == Knob::Nagle;
        let services = self.services.iter().filter(is_overridden);
        let settings = services.flat_map(|(key, service)| {
            let port = key.server.port();
            let asked = move |s: &Member| {
                (
                    s.cookie,
                    Asked {
                        nodelay: s.app_nodelay,
                        port,
                    },
                )
            };
            service.sockets.iter().map(asked)
        });
        let done = self.place.remember(settings.collect());
        if let (Err(error), false) = (&done, self.forgetful) {
            tracing::warn!("nothing is switched until this works: {error:#}");
        }
        self.forgetful = done.is_err();
        !self.forgetful
    }

    /// Lets each service's controller decide, and does what it says.
    fn decide(&mut self) -> anyhow::Result<()> {
        let keys: Vec<_> = self.services.keys().copied().collect();
        for key in keys {
            let Some(service) = self.services.get_mut(&key) else {
                continue;
            };
            let Some(glimpse) = service.glimpse() else {
                continue;
            };
            if !service.started && glimpse.load.segments > 0.0 {
                service.started = true;
                let why = "seen for the first time; its own setting stays unless a test shows that the other is better";
                self.decisions
                    .tell(key, service, DecisionEvent::Start, why.to_owned())?;
            }
            if self.args.hold.is_some() {
                continue;
            }
            match service.controller.see(&glimpse) {
                Next::Stay => {}
                Next::Test { reason, .. } if self.args.dry_run => {
                    let why = format!("{}; a dry run tests nothing", words(service.knob, reason));
                    let now = glimpse.now;
                    service.controller.passed_over(reason, now..now);
                    self.decisions
                        .tell(key, service, DecisionEvent::WouldProbe, why)?;
                }
                Next::Test {
                    slice,
                    limit,
                    reason,
                } => {
                    let slice = Duration::from_nanos(slice);
                    let plan = Plan {
                        slice,
                        limit,
                        reason,
                    };
                    self.try_out(key, plan)?;
                }
                Next::GiveBack => {
                    let why = "the applications ask for what was adopted themselves";
                    self.put(key, None, why.to_owned())?;
                }
                Next::Recall(from) => {
                    let why = match from {
                        Recalled::Test(age) => format!(
                            "a load like this one was tested {:.0} s ago",
                            age as f64 / 1e9
                        ),
                        Recalled::Before => "the agent before this one had it in force".to_owned(),
                    };
                    let arm = service.controller.adopted();
                    self.put(key, arm, why)?;
                }
            }
        }
        Ok(())
    }

    /// Has the service's sockets at this setting without a test.
    fn put(&mut self, key: ServiceKey, arm: Option<Arm>, why: String) -> anyhow::Result<()> {
        let owners = self.owners()?;
        self.switch(key, arm, &owners)?;
        self.keep();
        let event = match arm {
            Some(_) => DecisionEvent::Adopt,
            None => DecisionEvent::GiveBack,
        };
        self.decisions.tell(key, &self.services[&key], event, why)
    }

    /// Tests the other setting of a service, and goes by what is found.
    fn try_out(&mut self, key: ServiceKey, plan: Plan) -> anyhow::Result<()> {
        let reason = plan.reason;
        self.decisions.tell(
            key,
            &self.services[&key],
            DecisionEvent::Probe,
            words(self.services[&key].knob, reason).to_owned(),
        )?;
        let owners = self.owners()?;
        let begin = monotonic_ns();
        let ended = self.test(key, plan, &owners)?;
        let time = begin..monotonic_ns();
        let Some(service) = self.services.get_mut(&key) else {
            return Ok(());
        };
        let (event, why) = match ended {
            Ended::Decided(outcome) => {
                service.controller.tested(reason, outcome, time.clone());
                let event = match outcome.better {
                    Some(true) => DecisionEvent::Adopt,
                    _ => DecisionEvent::Keep,
                };
                (event, found(service.knob, &outcome))
            }
            Ended::Aborted(why) => {
                service.controller.passed_over(reason, time.clone());
                (DecisionEvent::Abort, why)
            }
            Ended::Stopped => return Ok(()),
        };
        service.counts.count(event);
        let arm = service.controller.adopted();
        // the test has read what all connections did
        self.services
            .values_mut()
            .for_each(|s| s.forget_looks(time.end));
        self.switch(key, arm, &owners)?;
        self.keep();
        self.decisions.tell(key, &self.services[&key], event, why)
    }

    /// What is in force is written down for the next agent.
    fn keep(&mut self) {
        self.kept_at = Instant::now();
        let in_force = self.services.iter().filter_map(|(service, s)| {
            let in_force = s.controller.in_force()?;
            Some(Kept {
                service: *service,
                knob: s.knob,
                in_force,
            })
        });
        self.place.keep(&in_force.collect::<Vec<_>>());
    }

    fn params(&self) -> Params {
        Params {
            budget: self.args.budget,
            ..Params::default()
        }
    }

    /// Waits, and lets the guard know that we live. False: we are to stop, or it is gone.
    fn pause(&mut self, time: Duration) -> anyhow::Result<bool> {
        let end = Instant::now() + time;
        loop {
            self.ticks.alive();
            let left = end.saturating_duration_since(Instant::now());
            if !self.guard.beat() || self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if left.is_zero() {
                return Ok(true);
            }
            self.guard.wait(left.min(guard::BEAT))?;
        }
    }

    fn export(&mut self, lost_events: u64) {
        if let Some(exporter) = &self.exporter {
            let dropped = self.decisions.dropped();
            exporter.update(|m| m.tick(&self.services, self.left_alone, lost_events, dropped));
        }
    }

    fn explain(&mut self) -> anyhow::Result<()> {
        if self.args.explain && self.explained.elapsed() >= EXPLAIN_EVERY {
            self.explained = Instant::now();
            for (key, service) in &self.services {
                self.decisions.explain(*key, service)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.keep();
        self.give_back()?;
        for (key, service) in &self.services {
            let why = "the agent ends: every socket has its application's own setting back";
            self.decisions
                .tell(*key, service, DecisionEvent::Stop, why.to_owned())?;
        }
        Ok(())
    }
}

fn words(knob: Knob, reason: Reason) -> &'static str {
    match reason {
        Reason::New => "was not tested yet",
        Reason::Held if knob == Knob::Delack => "the other end waits for acknowledgments",
        Reason::Held => "Nagle's algorithm holds messages back",
        Reason::Shift => "the load is another one than the tested",
        Reason::Due => "the last test is long enough ago",
    }
}
