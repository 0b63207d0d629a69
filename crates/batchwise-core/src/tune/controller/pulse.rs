//! Pulses: a few milliseconds of the other arm while asleep, to see whether a sender has fallen behind.
//!
//! What a sender cannot send fast enough waits inside the application, where no queue of TCP shows
//! it. But the other arm drains it: more is served than was before, at once, and Little's law tells
//! from how much more for how long it had waited. Only bytes are looked at, so nothing is counted
//! for it in the kernel, and a pulse costs a tenth of a trial.

use alloc::format;

use super::super::{Arm, Context, Happened, Measurement, Vitals};
use super::{Controller, LONG, MS};
use crate::sense::report::Side;

/// A pulse lasts until so many messages are expected in it, within these limits.
const MESSAGES: f64 = 400.0;
const SHORTEST: u64 = 12 * MS;
const LONGEST: u64 = 40 * MS;
/// Under less load, messages/s, chance would weigh more than what is looked for.
const LEAST_LOAD: f64 = 5e3;
/// Between pulses; longer by that after each that found nothing, but where load rises.
const PAUSE: u64 = 400 * MS;
const MOST_PAUSES: u64 = 2;
const RISE: f64 = 1.05;
/// The time over which the load before a pulse is taken.
const BLOCK: u64 = 50 * MS;
/// So much more is served when there was something to catch up with: this share, and so many standard
/// deviations of what Poisson arrivals do.
const MORE: f64 = 0.2;
const DEVIATIONS: f64 = 4.0;
/// What was served less so shortly before, in a stall of the machine, is served late, whatever the arm.
const BEFORE: usize = 20;
/// The weight of a pulse in what is known of an arm.
const WEIGHT: f64 = 0.125;
/// Two that found something within this time are no accident.
const AGAIN: u64 = 5_000 * MS;
/// Where the other arm costs no more than this, one is enough.
const CHEAP_RATIO: f64 = 1.3;
/// An arm that is known to be slower than this relieves nobody.
const MOST_RATIO: f64 = 3.0;
/// A message under the other arm waits so many times as long, where neither is known.
const UNKNOWN_RATIO: f64 = 3.0;
/// Nothing is for free.
const LEAST_RATIO: f64 = 1.05;
/// Pulses with fewer messages under way than this have nothing to find.
const CROWD: f64 = 0.5;

/// The pulse that is on.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    from: Arm,
    since: u64,
    until: u64,
    bytes: u64,
}

/// When pulses come, and what they are held against.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulses {
    on: Option<Pulse>,
    /// The last one began, and the load that it was under, bytes/s.
    began: u64,
    pace_then: f64,
    /// Pulses on end that found nothing.
    in_vain: u64,
    block_since: u64,
    block_bytes: u64,
    /// Bytes a second in the last two whole blocks; 0: there was none.
    blocks: [f64; 2],
    /// Time (ns) and bytes of the last ticks.
    ticks: [(u64, u64); BEFORE],
    last: usize,
    /// Those that were, and those in which a sender had fallen behind.
    pub count: u64,
    pub found: u64,
    found_at: u64,
}

impl Pulses {
    /// Asleep from now on.
    pub fn begin(&mut self, now: u64) {
        self.blocks = [0.0; 2];
        self.block_since = now;
        self.block_bytes = 0;
        self.ticks = Default::default();
    }

    pub fn is_on(&self) -> bool {
        self.on.is_some()
    }

    fn add(&mut self, now: u64, elapsed: u64, bytes: u64) {
        self.last = (self.last + 1) % BEFORE;
        self.ticks[self.last] = (elapsed, bytes);
        self.block_bytes += bytes;
        let block = now - self.block_since;
        if block >= BLOCK {
            self.blocks = [self.blocks[1], self.block_bytes as f64 * 1e9 / block as f64];
            self.block_since = now;
            self.block_bytes = 0;
        }
    }

    /// Bytes a second. A stall of the machine makes one block look small.
    fn pace(&self) -> f64 {
        self.blocks[0].max(self.blocks[1])
    }

    /// Bytes that were served less than usual in the last ticks.
    fn deficit(&self) -> f64 {
        let (time, bytes) = self
            .ticks
            .iter()
            .fold((0, 0), |sum, t| (sum.0 + t.0, sum.1 + t.1));
        self.pace() * time as f64 / 1e9 - bytes as f64
    }
}

impl Controller {
    /// A tick of sleep; whether a pulse has found that a sender fell behind, and a trial begins.
    pub(super) fn pulse(&mut self, v: &Vitals, elapsed: u64) -> bool {
        if let Some(pulse) = &mut self.pulses.on {
            pulse.bytes += v.bytes;
            let pulse = *pulse;
            return v.now >= pulse.until && self.end_pulse(pulse, v);
        }
        self.pulses.add(v.now, elapsed, v.bytes);
        if let Some(length) = self.wants_pulse(v) {
            self.pulses.on = Some(Pulse {
                from: self.arm,
                since: v.now,
                until: v.now + length,
                bytes: 0,
            });
            self.pulses.count += 1;
            self.arm = self.arm.other();
        }
        false
    }

    /// Back to the arm in force.
    pub(super) fn cancel_pulse(&mut self) {
        if let Some(pulse) = self.pulses.on.take() {
            self.arm = pulse.from;
        }
    }

    /// Where and how a pulse would be, by what is known.
    fn at_pace(&self, v: &Vitals) -> Option<(Context, Measurement)> {
        let last = self.last?;
        let m = Measurement {
            throughput: self.pulses.pace() / last.message_bytes.max(1.0),
            ..last
        };
        let context = Context::of(&m, v.peer.map(|p| p.arm), self.context.as_ref());
        Some((context, m))
    }

    fn wants_pulse(&mut self, v: &Vitals) -> Option<u64> {
        let rises = self.pulses.pace() > RISE * self.pulses.pace_then;
        let pauses = if rises {
            1
        } else {
            1 + self.pulses.in_vain.min(MOST_PAUSES - 1)
        };
        let quiet = (self.pulses.count > 0 && v.now < self.pulses.began + pauses * PAUSE)
            || self.under_way < CROWD
            || self.tuning.dry_run;
        let server = self.tuning.side == Side::Server;
        if quiet || server || v.peer.is_some_and(|p| p.probing) {
            return None;
        }
        let (context, m) = self.at_pace(v)?;
        // an arm that falls behind itself can relieve nobody
        let behind = self
            .memory
            .is_lost(&context, self.arm.other(), LONG / 2.0, 0);
        if m.throughput < LEAST_LOAD || behind {
            return None;
        }
        let length = ((MESSAGES / m.throughput * 1e9) as u64).clamp(SHORTEST, LONGEST);
        let ratio = self
            .memory
            .ratio_nearby(&context, self.arm, LONG)
            .unwrap_or(UNKNOWN_RATIO);
        let cost = (ratio.max(LEAST_RATIO) - 1.0) * length as f64 / 1e9;
        if cost > self.purse.left() || ratio > MOST_RATIO {
            return None;
        }
        self.purse.spend(cost);
        self.pulses.began = v.now;
        self.pulses.pace_then = self.pulses.pace();
        Some(length)
    }

    fn end_pulse(&mut self, pulse: Pulse, v: &Vitals) -> bool {
        self.pulses.on = None;
        self.arm = pulse.from;
        self.bytes = 0;
        self.since = v.now;
        let Some((context, m)) = self.at_pace(v) else {
            return false;
        };
        let expected = m.throughput * (v.now - pulse.since) as f64 / 1e9;
        let excess = pulse.bytes as f64 / m.message_bytes.max(1.0) - expected;
        let much = (MORE * expected).max(DEVIATIONS * libm::sqrt(expected));
        let deficit = self.pulses.deficit() / m.message_bytes.max(1.0);
        self.pulses.begin(v.now);
        let ratio = self.memory.ratio_nearby(&context, pulse.from, LONG);
        let record = self.memory.page(context).arm_mut(pulse.from);
        self.pulses.in_vain += 1;
        if excess < much {
            record.add_hidden(0.0, WEIGHT);
            return false;
        }
        if excess < 2.0 * deficit {
            return false;
        }
        let hidden = excess / m.throughput * 1e9;
        // one alone may have met what a stall of the machine left behind
        let again = self.pulses.found > 0 && v.now < self.pulses.found_at + AGAIN;
        let cheap = ratio.is_none_or(|r| r < CHEAP_RATIO);
        if again || cheap {
            record.add_hidden(hidden, if again { WEIGHT } else { WEIGHT / 2.0 });
        }
        self.pulses.found_at = v.now;
        self.pulses.in_vain = 0;
        self.pulses.found += 1;
        self.context = Some(context);
        self.last = Some(m);
        self.quick = self.calm;
        let why = format!(
            "{:.0} % more were served in a pulse of it: {:.1} ms wait at their sender",
            100.0 * excess / expected,
            hidden / 1e6
        );
        self.begin_probe(Happened::Probe, why, m, context, v);
        true
    }
}
