//! Beyond on and off (§5 of the paper, "Better Batching Heuristics"): a batching limit in bytes that
//! moves gradually, as TCP's congestion window does. Additive increase while latency is no worse for
//! it, multiplicative decrease when it is.
//!
//! An experiment to compare with [`super::Controller`]: it counts all the time, and has no budget.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::controller::compare::{LOSSY, NOTHING_TO_BATCH};
use super::controller::{
    DEEP, DELAYED_ACK, LOAD_STEP, LONG, LONGEST_WINDOW, MOST_STALLS, MOST_TICKS, WAKE,
    holds_a_stall, us,
};
use super::{
    Arm, Command, Event, Happened, Known, Measurement, Meter, Peer, Perf, Quick, Tuning, Vitals,
};

/// The highest limit, bytes: what one segment to the device may hold (`GSO_LEGACY_MAX_SIZE`).
pub const MOST_LIMIT: u32 = 65_536;
/// The additive increase, bytes: an MSS over Ethernet.
const STEP: u32 = 1_448;
/// The weight of a new window in what latency was before.
const WEIGHT: f64 = 0.3;

/// So many windows on end without enough confidence are told of.
const MOST_UNKNOWN: u32 = 25;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Settle { until: u64 },
    Measure { since: u64 },
}

/// Moves the limit of one service.
#[derive(Clone, Debug)]
pub struct Gradual {
    tuning: Tuning,
    limit: u32,
    /// The limit when it was last told of.
    told: u32,
    wish: Arm,
    peer: Option<Peer>,
    phase: Phase,
    now: u64,
    /// What windows showed that were no worse than those before them, smoothed.
    before: Option<Measurement>,
    last: Option<Measurement>,
    /// By arm, and when.
    seen: [Option<(Measurement, u64)>; 2],
    /// Of the window: this end's queues, their mean wait by tick, outstanding bytes by time.
    quick: Quick,
    ticks: Vec<f64>,
    outstanding: f64,
    retransmits: u64,
    /// Windows on end that held a stall.
    stalls: u32,
    /// Windows on end whose confidence was too low.
    unknown: u32,
    /// Why the last window was no evidence, if it was none.
    unused: Option<String>,
    events: Vec<Event>,
}

impl Gradual {
    /// Begins at `now`, when first measured at a limit of nothing. Of `tuning` its policy, margin,
    /// confidence and window count.
    pub fn new(tuning: Tuning, now: u64, wish: Arm) -> Self {
        Self {
            tuning,
            limit: 0,
            told: 0,
            wish,
            peer: None,
            phase: Phase::Settle { until: now + WAKE },
            now,
            before: None,
            last: None,
            seen: [None; 2],
            quick: Quick::default(),
            ticks: Vec::new(),
            outstanding: 0.0,
            retransmits: 0,
            stalls: 0,
            unknown: 0,
            unused: None,
            events: Vec::new(),
        }
    }

    /// Bytes that may be held back, 0 to [`MOST_LIMIT`].
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The limit, where it is in force: until the service is first measured its sockets are as the
    /// applications asked.
    pub fn limit_in_force(&self) -> Option<u32> {
        self.last.map(|_| self.limit)
    }

    /// Under a limit of less than two messages nothing would ever wait for another: that is
    /// TCP_NODELAY. (A message is measured with its response, so this errs towards it.)
    pub fn arm(&self) -> Arm {
        match &self.last {
            None => self.wish,
            Some(m) if self.limit > 0 && f64::from(self.limit) >= 2.0 * m.message_bytes => Arm::On,
            Some(_) => Arm::Off,
        }
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

    /// What was last seen with or without batching, under whatever load and limit.
    pub fn known(&self, arm: Arm) -> Option<Known> {
        let (m, at) = self.seen[arm as usize]?;
        Some(Known {
            latency_ns: m.latency as u64,
            throughput_per_s: m.throughput,
            confidence: m.confidence,
            age_ns: self.now.saturating_sub(at),
        })
    }

    /// What was decided since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// What it is doing at this moment, for people.
    pub fn explain(&self) -> String {
        let before = self
            .before
            .map_or_else(|| String::from("not known"), |b| us(b.latency));
        let unused = match &self.unused {
            Some(why) => format!("; the last window was no evidence: {why}"),
            None => String::new(),
        };
        let limit = self.limit;
        format!("limit {limit} bytes; latency was {before} before{unused}")
    }

    /// A tick has passed.
    pub fn tick(&mut self, v: &Vitals, meter: &mut dyn Meter) -> Command {
        let elapsed = v.now.saturating_sub(self.now);
        self.now = v.now;
        self.wish = v.wish;
        let arm = |p: Option<Peer>| p.map(|p| p.arm);
        let disturbed = v.peer.is_some_and(|p| p.probing)
            || (v.peer.is_some() && arm(v.peer) != arm(self.peer));
        self.peer = v.peer;
        self.outstanding += v.outstanding as f64 * elapsed as f64;
        self.retransmits += v.retransmits;
        if let Some(quick) = &v.quick {
            self.quick.add(quick);
            if self.ticks.len() < MOST_TICKS {
                self.ticks.push(quick.latency());
            }
        }
        match self.phase {
            _ if disturbed => self.settle(WAKE),
            Phase::Settle { until } if v.now >= until => self.measure(meter),
            Phase::Settle { .. } => {}
            Phase::Measure { since } => {
                let elapsed = v.now.saturating_sub(since);
                let enough = self.quick.done >= self.tuning.enough;
                if elapsed >= LONGEST_WINDOW || (elapsed >= self.tuning.window && enough) {
                    let limit = self.limit;
                    self.finish_window(v, meter, elapsed);
                    if self.limit == limit {
                        self.measure(meter);
                    } else {
                        self.settle(2 * v.rtt + DELAYED_ACK);
                    }
                }
            }
        }
        let arm = self.arm();
        let ours = self.last.is_some() && (arm == Arm::On || self.wish == Arm::On);
        Command {
            // without batching applications that asked for it have it, but a limit is ours
            arm: ours.then_some(arm),
            sensing: true,
            probing: false,
            pulse: false,
        }
    }

    fn finish_window(&mut self, v: &Vitals, meter: &mut dyn Meter, elapsed: u64) {
        let under_way = self.quick.waited / elapsed.max(1) as f64;
        match self.evidence(meter, under_way) {
            Ok(m) => {
                self.unused = None;
                self.judge(m, v, under_way, elapsed);
            }
            Err(why) => self.unused = Some(why),
        }
    }

    /// What the window shows, or why that is no evidence.
    fn evidence(&mut self, meter: &mut dyn Meter, under_way: f64) -> Result<Measurement, String> {
        let stalled = holds_a_stall(&self.ticks);
        self.stalls = if stalled { self.stalls + 1 } else { 0 };
        if stalled && self.stalls <= MOST_STALLS {
            return Err(String::from("the machine stood still"));
        }
        self.stalls = 0;
        let m = meter.measure().ok_or("nothing was sent")?;
        if m.confidence < self.tuning.min_confidence {
            let (has, needs) = (m.confidence, self.tuning.min_confidence);
            let why = format!("confidence is {has:.2}, {needs:.2} is needed");
            self.unknown += 1;
            if self.unknown == MOST_UNKNOWN {
                self.tell(Happened::Undecided, why.clone());
            }
            return Err(why);
        }
        self.unknown = 0;
        if self.retransmits as f64 > LOSSY * self.quick.done as f64 {
            return Err(format!("{} segments were lost", self.retransmits));
        }
        if under_way < NOTHING_TO_BATCH {
            return Err(format!(
                "{under_way:.2} messages under way: nothing to batch"
            ));
        }
        Ok(m)
    }

    fn judge(&mut self, m: Measurement, v: &Vitals, under_way: f64, elapsed: u64) {
        let first = self.last.is_none();
        let arm = self.arm();
        self.last = Some(m);
        self.seen[arm as usize] = Some((m, v.now));
        if first {
            let why = format!(
                "policy {}: first measured, {}",
                self.tuning.policy,
                us(m.latency)
            );
            self.tell(Happened::Start, why);
        }
        if self.limit < MOST_LIMIT && self.is_overloaded(v, under_way, elapsed) {
            self.before = None;
            let two = (2.0 * m.message_bytes) as u32;
            let limit = self.limit.saturating_mul(2).max(STEP).max(two);
            let why = format!("overload: {under_way:.0} messages under way, and growing");
            self.move_to(limit, why);
            return;
        }
        let Some(before) = self.before else {
            self.before = Some(m);
            return;
        };
        if !is_near(before.message_bytes, m.message_bytes) {
            // climbing on from a limit that hurts these would never show that it does
            self.before = None;
            let why = format!("messages of {:.0} B: other traffic", m.message_bytes);
            self.move_to(0, why);
            return;
        }
        if !is_near(before.throughput, m.throughput) {
            // another load, or a sender that was held back: latency would differ in any case
            self.before = Some(m);
            return;
        }
        let (then, now) = (Perf::from(&before), Perf::from(&m));
        let change = format!("{} became {}", us(then.latency), us(now.latency));
        let worse = self.tuning.policy.prefers(&then, &now, self.tuning.margin);
        if arm == Arm::On && worse {
            self.move_to(self.limit / 2, format!("it got worse: {change}"));
            return;
        }
        let mean = |old: f64, new: f64| old + WEIGHT * (new - old);
        self.before = Some(Measurement {
            latency: mean(before.latency, m.latency),
            throughput: mean(before.throughput, m.throughput),
            ..m
        });
        let why = format!("no worse for it: {change}");
        self.move_to(self.limit.saturating_add(STEP), why);
    }

    /// As [`super::Controller`] knows it: many messages under way on each connection, for long, and
    /// more of them at the end of the window than on average in it.
    fn is_overloaded(&self, v: &Vitals, under_way: f64, elapsed: u64) -> bool {
        let mean = self.outstanding / elapsed.max(1) as f64;
        under_way > DEEP * v.connections as f64
            && self.quick.latency() > LONG
            && v.outstanding as f64 > 1.1 * mean
    }

    fn move_to(&mut self, limit: u32, why: String) {
        self.limit = limit.min(MOST_LIMIT);
        let (new, old) = (self.limit, self.told);
        if new != old && (new >= old.saturating_mul(2) || new <= old / 2) {
            self.told = new;
            self.tell(
                Happened::Limit,
                format!("limit {old} to {new} bytes; {why}"),
            );
        }
    }

    fn settle(&mut self, time: u64) {
        self.phase = Phase::Settle {
            until: self.now + time,
        };
    }

    fn measure(&mut self, meter: &mut dyn Meter) {
        self.quick = Quick::default();
        self.ticks.clear();
        (self.outstanding, self.retransmits) = (0.0, 0);
        meter.restart();
        self.phase = Phase::Measure { since: self.now };
    }

    fn tell(&mut self, happened: Happened, why: String) {
        let arm = self.arm();
        self.events.push(Event {
            at: self.now,
            happened,
            arm,
            is_wish: arm == Arm::Off && self.wish == Arm::Off,
            wish: self.wish,
            load: self.load(),
            message_bytes: self.message_bytes(),
            on: self.known(Arm::On),
            off: self.known(Arm::Off),
            budget_left: 0.0,
            peer: self.peer,
            limit: Some(self.limit),
            why,
        });
    }
}

/// Less than a step of the load apart.
fn is_near(a: f64, b: f64) -> bool {
    a < LOAD_STEP * b && b < LOAD_STEP * a
}

#[cfg(test)]
mod tests;
