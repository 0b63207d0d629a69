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

pub(super) mod compare;
mod pulse;
mod trial;

use pulse::Pulses;
use trial::Less;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::probe::Probe;
use super::{
    Arm, Budget, Context, Event, Happened, Known, Measurement, Memory, Meter, Peer, Quick, Tuning,
    Vitals,
};

const MS: u64 = 1_000_000;

/// The longest window; in less than [`Tuning::enough`] messages in it there is nothing to learn.
pub(super) const LONGEST_WINDOW: u64 = 1_000 * MS;
/// TCP_DELACK_MIN: what a switch disturbed has passed after this and two round trips.
pub(super) const DELAYED_ACK: u64 = 40 * MS;
/// From waking until the counters of both ends tell of the present.
pub(super) const WAKE: u64 = 20 * MS;
/// Enough to see load and size, three ticks.
const GLANCE: u64 = 12 * MS;
const SHORTEST_SLEEP: u64 = 50 * MS;
const LONGEST_SLEEP: u64 = 2_000 * MS;
/// So many messages under way on each connection, for longer than this, ns, are an overload: an open
/// loop of which few messages complete.
pub(super) const DEEP: f64 = 20.0;
pub(super) const LONG: f64 = 1e6;
/// A load that changed by this much wakes.
pub(super) const LOAD_STEP: f64 = 1.4;
/// A tick in which messages waited this much longer than in the window's median tick was a stall of
/// the machine: the window is measured again, as often as this.
const STALL: f64 = 4.0;
pub(super) const MOST_STALLS: u32 = 4;
const STALL_GRAIN: f64 = 20e3;
/// Ticks of a window that are remembered one by one.
pub(super) const MOST_TICKS: usize = 64;
/// Messages outstanding, over what there were, that wake.
const QUEUE_STEP: f64 = 3.0;
const QUEUE_GRAIN: f64 = 20.0;

/// The share of the budget that pulses may use.
const PURSE: f64 = 0.5;

/// What the agent is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The arm that all sockets of the service are to use; `None`: each application's own.
    pub arm: Option<Arm>,
    /// Count the queues.
    pub sensing: bool,
    /// An arm is on trial: tell the other end's agent.
    pub probing: bool,
    /// The other arm is in force for a few ms: sockets are to follow its begin and its end at once.
    pub pulse: bool,
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
    /// The part of the budget that pulses have.
    purse: Budget,
    pulses: Pulses,
    context: Option<Context>,
    last: Option<Measurement>,
    probe: Option<Probe>,
    adopted_at: u64,
    /// When the last trial that changed nothing ended.
    probed_at: u64,
    /// Trials in distress that did not end it.
    in_vain: u32,
    /// What was served while a sender caught up, messages/s.
    relief: Option<f64>,
    less: Option<Less>,
    sleep: u64,
    unknown: u32,
    /// Why there was no trial when last looked, for people.
    waits_for: String,
    now: u64,
    /// Since the window began: this end's queues, outstanding bytes by time, all bytes.
    quick: Quick,
    /// Mean wait in each of its ticks, ns.
    ticks: Vec<f64>,
    /// Windows on end that held a stall.
    stalls: u32,
    outstanding: f64,
    bytes: u64,
    retransmits: u64,
    since: u64,
    normal: Normal,
    /// This end's queues in the last window under the arm in force, and messages under way in it.
    calm: Quick,
    under_way: f64,
    strikes: u32,
    /// A changed load ended the sleep: a glance may tell which arm was better under it.
    woken: bool,
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
            budget: Budget::new((1.0 - PURSE) * tuning.budget),
            purse: Budget::new(PURSE * tuning.budget),
            pulses: Pulses::default(),
            context: None,
            last: None,
            probe: None,
            adopted_at: 0,
            probed_at: 0,
            in_vain: 0,
            relief: None,
            less: None,
            sleep: SHORTEST_SLEEP,
            unknown: 0,
            waits_for: String::new(),
            now,
            quick: Quick::default(),
            ticks: Vec::new(),
            stalls: 0,
            outstanding: 0.0,
            bytes: 0,
            retransmits: 0,
            since: now,
            normal: Normal::default(),
            calm: Quick::default(),
            under_way: 0.0,
            strikes: 0,
            woken: false,
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
        let rate = self.last.map_or(0.0, |m| m.latency * m.throughput);
        self.budget.left() * rate
    }

    /// For so long, s, may messages still wait twice as long for the sake of trials; below zero, that
    /// was overdrawn.
    pub fn budget_left_s(&self) -> f64 {
        self.budget.left()
    }

    /// Pulses so far, and those of them that found a sender behind.
    pub fn pulses(&self) -> (u64, u64) {
        (self.pulses.count, self.pulses.found)
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
                let Pulses { count, found, .. } = self.pulses;
                format!(
                    "asleep, looks again in {left} ms or when load changes; {}; {count} pulses so far, {found} found a sender behind",
                    self.waits_for
                )
            }
            Phase::Settle { .. } => String::from("waiting for what the switch disturbed to pass"),
            Phase::Measure { since } => {
                let elapsed = self.now.saturating_sub(since) / MS;
                format!("measuring for {elapsed} ms")
            }
        };
        format!("{probing}; {phase}")
    }

    /// A tick has passed.
    pub fn tick(&mut self, v: &Vitals, meter: &mut dyn Meter) -> Command {
        let elapsed = v.now.saturating_sub(self.now);
        self.now = v.now;
        self.follow_wish(v.wish);
        self.bytes += v.bytes;
        self.retransmits += v.retransmits;
        self.outstanding += v.outstanding as f64 * elapsed as f64;
        if self.probe.is_none() {
            self.budget.earn(elapsed as f64 / 1e9);
            self.purse.earn(elapsed as f64 / 1e9);
        }
        let on_trial = self.probe.is_some();
        let disturbed = self.is_disturbed(v);
        self.peer = v.peer;
        if let Some(quick) = &v.quick {
            self.quick.add(quick);
            if self.ticks.len() < MOST_TICKS {
                self.ticks.push(quick.latency());
            }
            self.watch_probe(quick, v, meter);
        }
        match self.phase {
            Phase::Sleep { until } => self.asleep(until, v, elapsed),
            _ if disturbed => self.settle(self.settling(v)),
            Phase::Settle { until } if v.now >= until => {
                self.measure(meter);
            }
            Phase::Settle { .. } => {}
            Phase::Measure { since } => {
                let elapsed = v.now - since;
                let enough = self.quick.done >= self.tuning.enough;
                let shortest = if self.woken {
                    GLANCE
                } else {
                    self.tuning.window
                };
                if elapsed >= LONGEST_WINDOW || (elapsed >= shortest && enough) {
                    if self.held_a_stall() {
                        self.measure(meter);
                    } else {
                        self.finish_window(v, meter, elapsed);
                    }
                }
            }
        }
        if self.probe.is_some() && !on_trial {
            meter.restart(); // what the trial shows, from its first tick
        }
        Command {
            arm: (self.arm != self.wish).then_some(self.arm),
            sensing: !matches!(self.phase, Phase::Sleep { .. }),
            probing: self.probe.is_some(),
            pulse: self.pulses.is_on(),
        }
    }

    fn asleep(&mut self, until: u64, v: &Vitals, elapsed: u64) {
        if v.connections == 0 || self.pulse(v, elapsed) || self.pulses.is_on() {
            return;
        }
        self.woken = self.is_woken(v);
        if self.woken || v.now >= until {
            self.settle(WAKE);
        }
    }

    /// Many messages are under way on each connection, for long, and do not get fewer, as they would
    /// after a stall of the machine.
    fn is_deep(&self, v: &Vitals, elapsed: u64) -> bool {
        let elapsed = elapsed.max(1) as f64;
        let under_way = self.quick.waited / elapsed;
        let drains = (v.outstanding as f64) < 0.9 * self.outstanding / elapsed;
        under_way > DEEP * v.connections as f64 && self.quick.latency() > LONG && !drains
    }

    /// More is outstanding at the end of the window than on average in it.
    fn is_growing(&self, v: &Vitals, elapsed: u64) -> bool {
        v.outstanding as f64 > 1.1 * self.outstanding / elapsed.max(1) as f64
    }

    /// The machine stood still for a moment: that would count more than all else in the mean.
    fn held_a_stall(&mut self) -> bool {
        let stalled = holds_a_stall(&self.ticks);
        self.stalls = if stalled { self.stalls + 1 } else { 0 };
        if self.stalls > MOST_STALLS {
            self.stalls = 0;
            return false; // it is always so
        }
        stalled
    }

    /// An application changed its mind. Where sockets are as it set them, that is the new arm.
    fn follow_wish(&mut self, wish: Arm) {
        if wish == self.wish {
            return;
        }
        self.cancel_pulse();
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

    fn measure(&mut self, meter: &mut dyn Meter) {
        self.begin_window();
        meter.restart();
        self.phase = Phase::Measure { since: self.now };
    }

    fn begin_window(&mut self) {
        self.quick = Quick::default();
        self.ticks.clear();
        self.outstanding = 0.0;
        self.bytes = 0;
        self.retransmits = 0;
        self.since = self.now;
        self.strikes = 0;
    }

    fn go_to_sleep(&mut self, time: u64) {
        self.pulses.begin(self.now);
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

    fn tell(&mut self, happened: Happened, why: String) {
        let event = Event {
            at: self.now,
            happened,
            arm: self.arm,
            is_wish: self.arm == self.wish,
            wish: self.wish,
            load: self.load(),
            message_bytes: self.message_bytes(),
            on: self.known(Arm::On),
            off: self.known(Arm::Off),
            budget_left: self.budget_left(),
            peer: self.peer,
            limit: None,
            why,
        };
        self.events.push(event);
    }
}

/// Whether in one of these ticks messages waited far longer than in most.
pub(super) fn holds_a_stall(ticks: &[f64]) -> bool {
    let mut sorted = ticks.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
    let worst = sorted.last().copied().unwrap_or(0.0);
    worst > STALL * median + STALL_GRAIN
}

pub(super) fn us(ns: f64) -> String {
    format!("{:.1} us", ns / 1e3)
}
