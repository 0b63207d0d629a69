//! The loop of a service: look, compare, try the other arm when that is affordable, sleep.
//!
//! ```text
//!            ┌────────────── nothing to decide ◀─────────────┐
//!            ▼                                               │
//!          Sleep ──time is up, or load changed──▶ Settle ──▶ Measure ──▶ compare
//!                                                  ▲                      │
//!                                                  └──── the other arm ◀──┘
//! ```
//!
//! Asleep, nothing is counted in the kernel and only [`Vitals`] are looked at: watching all the
//! time would cost more than Nagle's algorithm gives at many loads.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::probe::Probe;
use super::{
    Arm, Budget, Context, Event, Happened, Known, Measurement, Memory, Meter, Peer, Perf, Policy,
    Quick, Vitals,
};
use crate::report::Side;

const MS: u64 = 1_000_000;

/// What a controller may be told to do differently. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// What is to be gained.
    pub policy: Policy,
    /// Which end the sockets are: of two agents that try at the same time the server's gives way.
    pub side: Side,
    /// What exploration may add to the mean latency, as a share.
    pub budget: f64,
    /// An arm that is better by less than this changes nothing.
    pub margin: f64,
    /// Estimates that are trusted less are not acted upon.
    pub min_confidence: f64,
    /// The shortest window that is measured.
    pub window: u64,
    /// Messages that a window should hold.
    pub enough: u64,
    /// Decide and log, but leave every socket alone.
    pub dry_run: bool,
}

impl Tuning {
    /// A policy's usual tuning.
    pub fn new(policy: Policy, side: Side) -> Self {
        Self {
            policy,
            side,
            budget: 0.02,
            margin: 0.05,
            min_confidence: 0.5,
            window: 40 * MS,
            enough: 50,
            dry_run: false,
        }
    }
}

/// The longest window; in less than [`Tuning::enough`] messages in it there is nothing to learn.
const LONGEST_WINDOW: u64 = 1_000 * MS;
/// TCP_DELACK_MIN: what a switch disturbed has passed after this and two round trips.
const DELAYED_ACK: u64 = 40 * MS;
/// From waking until the counters of both ends tell of the present.
const WAKE: u64 = 20 * MS;
const SHORTEST_SLEEP: u64 = 50 * MS;
const LONGEST_SLEEP: u64 = 1_000 * MS;
/// An arm is left alone for this long after it was adopted.
const DWELL: u64 = 250 * MS;
/// Between two trials whose outcome was not clear.
const SHORTEST_PAUSE: u64 = 200 * MS;
/// Between trials, at most.
const LONGEST_PAUSE: u64 = 60_000 * MS;
/// What a first trial may cost, in what all messages wait in a second: four times the latency for
/// three kernel ticks.
const UNKNOWN_COST_S: f64 = 0.05;
/// With fewer messages under way than this, on average, none ever waits for another.
const NOTHING_TO_BATCH: f64 = 0.05;
/// Latency this much above the best that is known at no higher load is distress.
const DISTRESS: f64 = 5.0;
/// A load that changed by this much wakes.
const LOAD_STEP: f64 = 1.4;
/// Messages outstanding, over what there were, that wake.
const QUEUE_STEP: f64 = 3.0;
const QUEUE_GRAIN: f64 = 20.0;

/// What the agent is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The arm that all sockets of the service are to use; `None`: each application's own.
    pub arm: Option<Arm>,
    /// Count the queues.
    pub sensing: bool,
    /// An arm is on trial: tell the other end's agent.
    pub probing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Sleep { until: u64 },
    Settle { until: u64 },
    Measure { since: u64 },
}

/// What a window under the arm in force showed, to notice while asleep that it is no longer so.
#[derive(Clone, Copy, Debug, Default)]
struct Normal {
    bytes_per_s: f64,
    outstanding: f64,
    message_bytes: f64,
}

/// Decides for one service.
#[derive(Clone, Debug)]
pub struct Controller {
    tuning: Tuning,
    phase: Phase,
    arm: Arm,
    wish: Arm,
    peer: Option<Peer>,
    memory: Memory,
    budget: Budget,
    /// What messages wait, ns a second, all together.
    rate: f64,
    context: Option<Context>,
    last: Option<Measurement>,
    probe: Option<Probe>,
    adopted_at: u64,
    sleep: u64,
    unknown: u32,
    now: u64,
    /// Since the window began: this end's queues, outstanding bytes by time, all bytes.
    quick: Quick,
    outstanding: f64,
    bytes: u64,
    since: u64,
    normal: Normal,
    strikes: u32,
    events: Vec<Event>,
}

impl Controller {
    /// Begins at `now` with the arm that the applications asked for.
    pub fn new(tuning: Tuning, now: u64, wish: Arm) -> Self {
        Self {
            tuning,
            phase: Phase::Settle { until: now + WAKE },
            arm: wish,
            wish,
            peer: None,
            memory: Memory::default(),
            budget: Budget::new(tuning.budget),
            rate: 0.0,
            context: None,
            last: None,
            probe: None,
            adopted_at: 0,
            sleep: SHORTEST_SLEEP,
            unknown: 0,
            now,
            quick: Quick::default(),
            outstanding: 0.0,
            bytes: 0,
            since: now,
            normal: Normal::default(),
            strikes: 0,
            events: Vec::new(),
        }
    }

    /// What was decided since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// The arm in force.
    pub fn arm(&self) -> Arm {
        self.arm
    }

    /// What most of the applications asked for.
    pub fn wish(&self) -> Arm {
        self.wish
    }

    /// Messages a second, when last measured.
    pub fn load(&self) -> f64 {
        self.last.map_or(0.0, |m| m.throughput)
    }

    /// Bytes of a request and its response, when last measured.
    pub fn message_bytes(&self) -> f64 {
        self.last.map_or(0.0, |m| m.message_bytes)
    }

    /// What is known of an arm under the present load.
    pub fn known(&self, arm: Arm) -> Option<Known> {
        let record = self.memory.record(self.context.as_ref()?, arm)?;
        Some(Known {
            latency_ns: record.perf().latency as u64,
            throughput_per_s: record.perf().throughput,
            confidence: record.confidence(),
            age_ns: self.now.saturating_sub(record.at()),
        })
    }

    /// What exploration may still cost, ns of waiting summed over messages.
    pub fn budget_left(&self) -> f64 {
        self.budget.left()
    }

    /// What it is doing at this moment, for people.
    pub fn explain(&self) -> String {
        let probing = if self.probe.is_some() {
            "the other arm is on trial"
        } else {
            "the arm in force is kept"
        };
        let phase = match self.phase {
            Phase::Sleep { until } => {
                let left = until.saturating_sub(self.now) / MS;
                format!("asleep, looks again in {left} ms or when load changes")
            }
            Phase::Settle { .. } => String::from("waiting for what the switch disturbed to pass"),
            Phase::Measure { since } => {
                let elapsed = self.now.saturating_sub(since) / MS;
                format!("measuring for {elapsed} ms")
            }
        };
        format!("{probing}; {phase}")
    }

    /// What has been learned.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A tick has passed.
    pub fn tick(&mut self, v: &Vitals, meter: &mut dyn Meter) -> Command {
        let elapsed = v.now.saturating_sub(self.now);
        self.now = v.now;
        self.follow_wish(v.wish);
        self.bytes += v.bytes;
        self.outstanding += v.outstanding as f64 * elapsed as f64;
        if self.probe.is_none() {
            self.budget.earn(self.rate, elapsed as f64 / 1e9);
        }
        let disturbed = self.is_disturbed(v);
        self.peer = v.peer;
        if let Some(quick) = &v.quick {
            self.quick.add(quick);
            self.watch_probe(quick, v, meter);
        }
        match self.phase {
            Phase::Sleep { until } => {
                if v.connections > 0 && (v.now >= until || self.is_woken(v)) {
                    self.settle(WAKE);
                }
            }
            _ if disturbed && self.probe.is_none() => self.settle(WAKE),
            Phase::Settle { until } if v.now >= until => {
                self.begin_window();
                meter.restart();
                self.phase = Phase::Measure { since: v.now };
            }
            Phase::Settle { .. } => {}
            // what was retransmitted tells of the path, not of the arm
            Phase::Measure { .. } if v.retransmits > 0 => self.settle(self.settling(v)),
            Phase::Measure { since } => {
                let elapsed = v.now - since;
                let enough = self.quick.done >= self.tuning.enough;
                if elapsed >= LONGEST_WINDOW || (elapsed >= self.tuning.window && enough) {
                    self.finish_window(v, meter, elapsed);
                }
            }
        }
        Command {
            arm: (self.arm != self.wish).then_some(self.arm),
            sensing: !matches!(self.phase, Phase::Sleep { .. }),
            probing: self.probe.is_some(),
        }
    }

    /// An application changed its mind. Where sockets are as it set them, that is the new arm.
    fn follow_wish(&mut self, wish: Arm) {
        if wish == self.wish {
            return;
        }
        if self.arm == self.wish && self.probe.is_none() {
            self.arm = wish;
            self.settle(WAKE + DELAYED_ACK);
        }
        self.wish = wish;
    }

    /// The other end's agent is trying an arm, or has just changed it.
    fn is_disturbed(&self, v: &Vitals) -> bool {
        let arm = |p: Option<Peer>| p.map(|p| p.arm);
        v.peer.is_some_and(|p| p.probing) || (v.peer.is_some() && arm(v.peer) != arm(self.peer))
    }

    fn settling(&self, v: &Vitals) -> u64 {
        2 * v.rtt + DELAYED_ACK
    }

    fn settle(&mut self, time: u64) {
        self.begin_window();
        self.phase = Phase::Settle {
            until: self.now + time,
        };
    }

    fn begin_window(&mut self) {
        self.quick = Quick::default();
        self.outstanding = 0.0;
        self.bytes = 0;
        self.since = self.now;
        self.strikes = 0;
    }

    fn go_to_sleep(&mut self, time: u64) {
        self.begin_window();
        self.phase = Phase::Sleep {
            until: self.now + time,
        };
    }

    /// Asleep: whether load or queue are no longer what they were.
    fn is_woken(&mut self, v: &Vitals) -> bool {
        let n = self.normal;
        if v.outstanding as f64 > QUEUE_STEP * n.outstanding + QUEUE_GRAIN * n.message_bytes {
            self.strikes += 1;
            if self.strikes >= 3 {
                return true;
            }
        } else {
            self.strikes = 0;
        }
        let elapsed = self.now - self.since;
        let messages = self.bytes as f64 / n.message_bytes.max(1.0);
        if elapsed < 20 * MS || (messages < 200.0 && elapsed < 200 * MS) {
            return false;
        }
        let rate = self.bytes as f64 * 1e9 / elapsed as f64;
        let normal = n.bytes_per_s.max(1.0);
        let stepped = rate > LOAD_STEP * normal || rate * LOAD_STEP < normal;
        self.bytes = 0;
        self.since = self.now;
        stepped
    }

    /// A trial must not hurt for longer than it takes to see that it does.
    fn watch_probe(&mut self, quick: &Quick, v: &Vitals, meter: &mut dyn Meter) {
        let Some(probe) = &mut self.probe else { return };
        if v.peer.is_some_and(|p| p.probing) && self.tuning.side == Side::Server {
            let why = String::from("the other end's agent is trying an arm: it goes first");
            self.end_probe(Happened::Yield, why, v);
            return;
        }
        let Some(ratio) = probe.tick(quick) else {
            return;
        };
        // queues at this end may grow while the whole gets quicker
        let total = meter.measure();
        let known = total.filter(|m| m.confidence >= self.tuning.min_confidence);
        if known.is_some_and(|m| m.latency < probe.before.latency) {
            return;
        }
        let (context, latency) = (probe.context, probe.before.latency * ratio);
        let perf = Perf {
            latency,
            throughput: probe.before.throughput,
        };
        let tried = self.arm;
        let page = self.memory.page(context);
        page.arm_mut(tried).add(&perf, v.now);
        let clear = ratio > 2.0 || page.arm(tried).count() >= 2.0;
        self.back_off(context, clear);
        let why = format!("messages waited {ratio:.1} times as long in this end's queues");
        self.end_probe(Happened::Abort, why, v);
    }

    /// Back to the arm from before the trial.
    fn end_probe(&mut self, happened: Happened, why: String, v: &Vitals) {
        if let Some(probe) = self.probe.take() {
            self.pay(&probe);
            self.arm = probe.from;
            self.tell(happened, why);
            self.settle(self.settling(v));
        }
    }

    fn pay(&mut self, probe: &Probe) {
        self.budget.spend(probe.cost);
        let relative = probe.cost / self.rate.max(1.0);
        self.memory.page(probe.context).last_cost = Some(relative.max(0.0));
    }

    fn back_off(&mut self, context: Context, clear: bool) {
        let now = self.now;
        let page = self.memory.page(context);
        page.interval = if clear {
            (2 * page.interval).clamp(2 * SHORTEST_PAUSE, LONGEST_PAUSE)
        } else {
            page.interval.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
        };
        page.next_probe = now + page.interval;
    }

    fn finish_window(&mut self, v: &Vitals, meter: &mut dyn Meter, elapsed: u64) {
        let measured = meter.measure().or_else(|| self.stalled(elapsed));
        let Some(m) = measured else {
            // idle: no evidence
            if self.probe.is_some() {
                self.end_probe(Happened::Keep, String::from("nothing was sent"), v);
            }
            self.go_to_sleep(self.sleep);
            return;
        };
        if m.confidence < self.tuning.min_confidence {
            self.not_known(&m, v, elapsed);
            return;
        }
        self.unknown = 0;
        match self.probe.take() {
            None => self.checked(m, v, elapsed),
            Some(probe) => self.probed(probe, m, v),
        }
    }

    /// Much was sent and nothing came back in a whole window: a lower bound of the latency.
    fn stalled(&self, elapsed: u64) -> Option<Measurement> {
        let last = self.last?;
        (self.quick.done == 0 && self.quick.waited > elapsed as f64).then_some(Measurement {
            latency: elapsed as f64,
            throughput: 1e9 / elapsed as f64,
            ..last
        })
    }

    fn not_known(&mut self, m: &Measurement, v: &Vitals, elapsed: u64) {
        if elapsed < LONGEST_WINDOW / 4 {
            return; // the other end may just be waking
        }
        self.unknown += 1;
        if self.probe.is_some() {
            let why = format!("confidence fell to {:.2}", m.confidence);
            self.end_probe(Happened::Keep, why, v);
            return;
        }
        let why = format!(
            "confidence is {:.2}, {:.2} is needed: is the other end's agent running, and was the connection made since?",
            m.confidence, self.tuning.min_confidence
        );
        if self.unknown == 3 && self.arm != self.wish {
            self.arm = self.wish;
            self.tell(Happened::GiveBack, why);
        } else if self.unknown == 3 {
            self.tell(Happened::Undecided, why);
        }
        self.go_to_sleep(LONGEST_SLEEP);
    }

    /// A window under the arm in force.
    fn checked(&mut self, m: Measurement, v: &Vitals, elapsed: u64) {
        let first = self.last.is_none();
        let before = self.context;
        let context = Context::of(&m, v.peer.map(|p| p.arm), before.as_ref());
        self.context = Some(context);
        self.last = Some(m);
        self.rate = m.latency * m.throughput;
        self.normal = Normal {
            bytes_per_s: self.bytes as f64 * 1e9 / elapsed as f64,
            outstanding: self.outstanding / elapsed as f64,
            message_bytes: m.message_bytes,
        };
        if before != Some(context) {
            self.sleep = SHORTEST_SLEEP;
        }
        let (arm, now) = (self.arm, v.now);
        let page = self.memory.page(context);
        let old = page.arm(arm).perf().latency;
        let changed = page.arm_mut(arm).add(&Perf::from(&m), now);
        if changed {
            *page.arm_mut(arm.other()) = Default::default();
            page.interval = 0;
            page.next_probe = now;
            let why = format!("{} became {}", us(old), us(m.latency));
            self.tell(Happened::Reset, why);
        }
        if first {
            let why = format!("policy {}: first measured", self.tuning.policy);
            self.tell(Happened::Start, why);
        }
        let record = *self.memory.page(context).arm(arm);
        if record.is_surprised() || record.count() < 2.0 {
            self.settle(0); // look again before anything is made of it
            return;
        }
        self.decide(m, context, v, elapsed);
    }

    fn decide(&mut self, m: Measurement, context: Context, v: &Vitals, elapsed: u64) {
        let under_way = self.quick.waited / elapsed as f64;
        if under_way < NOTHING_TO_BATCH {
            if self.arm != self.wish {
                self.arm = self.wish;
                let why = format!("{under_way:.2} messages under way: nothing to batch");
                self.tell(Happened::GiveBack, why);
            }
            self.rest();
            return;
        }
        let policy = self.tuning.policy;
        let best = self.memory.best_below(&context).unwrap_or(m.latency);
        let distress = policy.is_missed_by(m.latency) || m.latency > DISTRESS * best;
        let page = *self.memory.page(context);
        let (here, there) = (page.arm(self.arm), page.arm(self.arm.other()));
        let recall = there.count() >= 2.0
            && policy.prefers(&there.perf(), &here.perf(), self.tuning.margin)
            && here.mean() - there.mean() > libm::hypot(here.error(), there.error());
        let cost = self.memory.cost_nearby(&context).unwrap_or(UNKNOWN_COST_S) * self.rate;
        let due = v.now >= page.next_probe;
        let rested = v.now >= self.adopted_at + DWELL || distress;
        let peer_busy = v.peer.is_some_and(|p| p.probing);
        if !due || !rested || peer_busy || !(recall || distress || self.budget.allows(cost)) {
            self.rest();
            return;
        }
        let other = there.perf().latency;
        let (happened, why) = match (recall, distress) {
            (true, _) => (Happened::Recall, format!("it gave {} here", us(other))),
            (_, true) => (Happened::Probe, format!("{} is too long", us(m.latency))),
            _ if there.count() > 0.0 => {
                let age = v.now.saturating_sub(there.at()) as f64 / 1e9;
                let why = format!("it gave {}, {age:.1} s ago", us(other));
                (Happened::Probe, why)
            }
            _ => (Happened::Probe, String::from("it was never tried here")),
        };
        if self.tuning.dry_run {
            self.tell(Happened::WouldProbe, why);
            self.back_off(context, true);
            self.rest();
            return;
        }
        self.probe = Some(Probe::new(self.arm, m, context, self.quick));
        self.arm = self.arm.other();
        self.tell(happened, why);
        self.settle(self.settling(v));
    }

    /// Sleeps, longer each time that nothing changed.
    fn rest(&mut self) {
        self.go_to_sleep(self.sleep);
        self.sleep = (self.sleep * 3 / 2).min(LONGEST_SLEEP);
    }

    /// A whole window under the arm on trial.
    fn probed(&mut self, probe: Probe, m: Measurement, v: &Vitals) {
        self.pay(&probe);
        let context = Context::of(&m, v.peer.map(|p| p.arm), Some(&probe.context));
        let (tried, margin, policy) = (self.arm, self.tuning.margin, self.tuning.policy);
        let page = self.memory.page(context);
        page.arm_mut(tried).add(&Perf::from(&m), v.now);
        let (old, new) = (*page.arm(probe.from), *page.arm(tried));
        let (adopt, clear) = if context == probe.context {
            let error = libm::hypot(old.error(), new.error());
            let gain = old.mean() - new.mean();
            let better = policy.prefers(&new.perf(), &old.perf(), margin) && gain > error;
            let worse = policy.prefers(&old.perf(), &new.perf(), margin) && -gain > error;
            // no better than what the applications asked for themselves
            let alike = !better && !worse && new.count() >= 3.0;
            let settled = better || worse || alike;
            (better || (alike && tried == self.wish), settled)
        } else {
            // the arm, or the world, changed the load: only the two windows can be compared
            let better = policy.prefers(&Perf::from(&m), &Perf::from(&probe.before), margin);
            (better, better)
        };
        let (was, is) = (us(probe.before.latency), us(m.latency));
        let why = format!(
            "{was} at {:.0}/s before, {is} at {:.0}/s now",
            probe.before.throughput, m.throughput
        );
        self.back_off(probe.context, clear);
        if adopt {
            self.context = Some(context);
            self.last = Some(m);
            self.rate = m.latency * m.throughput;
            self.adopted_at = v.now;
            self.sleep = SHORTEST_SLEEP;
            self.tell(Happened::Adopt, why);
            self.settle(0);
        } else {
            self.arm = probe.from;
            self.tell(Happened::Keep, why);
            self.settle(self.settling(v));
        }
    }

    fn tell(&mut self, happened: Happened, why: String) {
        let event = Event {
            at: self.now,
            happened,
            arm: self.arm,
            is_wish: self.arm == self.wish,
            wish: self.wish,
            load: self.last.map_or(0.0, |m| m.throughput),
            message_bytes: self.last.map_or(0.0, |m| m.message_bytes),
            on: self.known(Arm::On),
            off: self.known(Arm::Off),
            budget_left: self.budget.left(),
            peer: self.peer,
            why,
        };
        self.events.push(event);
    }
}

fn us(ns: f64) -> String {
    format!("{:.1} us", ns / 1e3)
}
