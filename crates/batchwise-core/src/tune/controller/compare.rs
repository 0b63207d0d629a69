//! What a window of the arm in force means, and whether the other arm is worth a trial.

use alloc::format;
use alloc::string::String;

use super::super::probe::Probe;
use super::super::{Arm, Context, Happened, Measurement, Meter, Perf, Vitals};
use super::trial::{ALLOWANCE_S, HIDDEN, MOST_COST_S, RELIEF};
use super::{
    Controller, LOAD_STEP, LONG, LONGEST_SLEEP, LONGEST_WINDOW, MS, Normal, SHORTEST_SLEEP, us,
};

/// More segments sent again than this share of messages: what a window shows is the path's loss.
pub(in crate::tune) const LOSSY: f64 = 1e-3;
/// An arm is left alone for this long after it was adopted.
const DWELL: u64 = 250 * MS;
/// A load so many times that of the last trial may be beyond what an arm can carry.
const RISE: f64 = 1.1;
/// An arm under which a sender fell behind is not tried under a higher load for this long.
const LOST_FOR: u64 = 60_000 * MS;
/// A sender that was held back catches up within this time, or was not.
const CATCH_UP: u64 = 500 * MS;
/// Between the end of a trial and the next; twice that after each that did not end a distress.
const PAUSE: u64 = 150 * MS;
const MOST_IN_VAIN: u32 = 6;
/// Between two trials in an overload that the other arm may end.
const URGENT_PAUSE: u64 = 500 * MS;
/// With fewer messages under way than this, on average, none ever waits for another.
pub(in crate::tune) const NOTHING_TO_BATCH: f64 = 0.05;
/// Latency this much above the best that is known at no higher load is distress.
const DISTRESS: f64 = 5.0;

impl Controller {
    pub(super) fn finish_window(&mut self, v: &Vitals, meter: &mut dyn Meter, elapsed: u64) {
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
        if core::mem::take(&mut self.woken) && self.probe.is_none() {
            let idle = self.quick.waited / (elapsed as f64) < NOTHING_TO_BATCH;
            if idle || !self.recalled_at_a_glance(&m, v) {
                self.settle(0);
            }
            return;
        }
        let lossy = self.retransmits as f64 > LOSSY * self.quick.done as f64;
        match self.probe.take_if(|_| !lossy) {
            Some(probe) => self.probed(probe, m, v),
            None if !lossy => self.checked(m, v, elapsed),
            // what was sent again tells of the path, not of the arm
            None if self.probe.is_some() => self.settle(self.settling(v)),
            None => self.rest(String::from("segments are being sent again")),
        }
    }

    /// Load has changed. Where both arms are known under the new one, memory says which is better, and
    /// needs no measurement first: whether it is has begun to be tried.
    fn recalled_at_a_glance(&mut self, m: &Measurement, v: &Vitals) -> bool {
        let context = Context::of(m, v.peer.map(|p| p.arm), self.context.as_ref());
        let page = *self.memory.page(context);
        let (here, there) = (page.arm(self.arm), page.arm(self.arm.other()));
        let (this, other) = (here.perf_at(m.throughput), there.perf_at(m.throughput));
        let known = here.count() > 0.0 && there.count() > 0.0;
        let better = self
            .tuning
            .policy
            .prefers(&other, &this, self.tuning.margin);
        let busy = v.peer.is_some_and(|p| p.probing) || self.tuning.dry_run;
        if !known || !better || busy || Some(context) == self.context {
            return false;
        }
        self.context = Some(context);
        self.last = Some(*m);
        let before = Measurement {
            latency: this.latency,
            ..*m
        };
        let why = format!("load changed; it gave {} here", us(other.latency));
        self.begin_probe(Happened::Recall, why, before, context, v);
        true
    }

    pub(super) fn begin_probe(
        &mut self,
        happened: Happened,
        why: String,
        before: Measurement,
        context: Context,
        v: &Vitals,
    ) {
        let page = self.memory.page(context);
        (page.may_recall, page.probed_at) = (false, v.now);
        page.probed_load = page.probed_load.max(before.throughput);
        self.probe = Some(Probe::new(v.now, self.arm, before, context, self.quick));
        self.arm = self.arm.other();
        self.tell(happened, why);
        self.settle(self.settling(v));
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
        self.normal = Normal {
            bytes_per_s: self.bytes as f64 * 1e9 / elapsed as f64,
            outstanding: self.outstanding / elapsed as f64,
            message_bytes: m.message_bytes,
        };
        let (arm, now) = (self.arm, v.now);
        let page = self.memory.page(context);
        if before != Some(context) {
            self.sleep = SHORTEST_SLEEP;
            page.may_recall = true;
        }
        // it caught up with what had been held back, and now serves less: that was no rise of load
        let caught_up = self.relief.is_some_and(|t| m.throughput * LOAD_STEP < t);
        let rises = self.relief.is_some_and(|t| m.throughput > RELIEF * t);
        let catches_up = self.relief.is_some() && now < self.adopted_at + CATCH_UP && !rises;
        if catches_up && !caught_up {
            self.settle(0);
            return;
        }
        self.relief = None;
        self.calm = self.quick;
        self.under_way = self.quick.waited / elapsed as f64;
        self.judge_less(&m);
        let page = self.memory.page(context);
        let old = page.arm(arm).perf().latency;
        let changed = page.arm_mut(arm).add(&Perf::from(&m), now);
        if changed {
            page.arm_mut(arm.other()).doubt();
            page.interval = 0;
            page.next_probe = now;
            let why = format!("{} became {}", us(old), us(m.latency));
            self.tell(Happened::Reset, why);
        }
        if caught_up {
            self.mark_choked(arm.other(), context, &m);
        }
        if first {
            let why = format!("policy {}: first measured", self.tuning.policy);
            self.tell(Happened::Start, why);
        }
        let record = *self.memory.page(context).arm(arm);
        // a stall of the machine passes, an overload grows
        let grows = self.is_deep(v, elapsed) && self.is_growing(v, elapsed);
        if !grows && (record.is_surprised() || record.count() < 2.0) {
            self.settle(0); // look again before anything is made of it
            return;
        }
        self.decide(m, context, v, elapsed);
    }

    fn decide(&mut self, m: Measurement, context: Context, v: &Vitals, elapsed: u64) {
        let under_way = self.quick.waited / elapsed as f64;
        if under_way < NOTHING_TO_BATCH {
            let harmless = m.latency < 2.0 * self.memory.best(&context).unwrap_or(0.0);
            if self.arm != self.wish && !(harmless && self.safe(&context) == self.arm) {
                self.arm = self.wish;
                let why = format!("{under_way:.2} messages under way: nothing to batch");
                self.tell(Happened::GiveBack, why);
            }
            self.rest(String::from("too few messages are under way for batches"));
            return;
        }
        let policy = self.tuning.policy;
        let best = self.memory.best_below(&context).unwrap_or(m.latency);
        let deep = self.is_deep(v, elapsed);
        let since = v.now.saturating_sub(LOST_FOR);
        let lost = self
            .memory
            .is_lost(&context, self.arm.other(), HIDDEN / 2.0, since);
        let page = *self.memory.page(context);
        let (here, there) = (page.arm(self.arm), page.arm(self.arm.other()));
        let waits = m.latency.max(here.hidden()); // also where no queue shows it
        let distress = (deep || policy.is_missed_by(waits) || waits > DISTRESS * best) && !lost;
        // what was served within a context says nothing of the arm
        let (this, other) = (here.perf_at(m.throughput), there.perf_at(m.throughput));
        let recall = there.count() > 0.0
            && policy.prefers(&other, &this, self.tuning.margin)
            && here.mean() - there.mean() > libm::hypot(here.error(), there.error());
        let known = self.memory.cost_nearby(&context).unwrap_or(ALLOWANCE_S);
        // a second look waits until more is left than a first one needs
        let reserve = if there.count() > 0.0 {
            ALLOWANCE_S
        } else {
            0.0
        };
        let cost = if lost {
            known.max(MOST_COST_S)
        } else {
            known.clamp(0.0, ALLOWANCE_S) + reserve
        };
        let hopeless = policy.prefers(&this, &other, self.tuning.margin);
        let urgent = deep && !hopeless && v.now >= page.probed_at + URGENT_PAUSE;
        let grows = deep && self.is_growing(v, elapsed);
        let news = urgent || (recall && page.may_recall) || (grows && here.is_surprised());
        let risen = page.probed_load > 0.0 && m.throughput > RISE * page.probed_load;
        let due = v.now >= page.next_probe || news || risen;
        // distress is no reason to try again and again what does not help
        self.in_vain = if distress { self.in_vain } else { 0 };
        let pause = PAUSE << self.in_vain.min(MOST_IN_VAIN);
        let rested =
            (v.now >= self.adopted_at + DWELL || distress) && v.now >= self.probed_at + pause;
        let peer_busy = v.peer.is_some_and(|p| p.probing);
        let affordable = recall || distress || self.budget.allows(cost);
        if !due || !rested || peer_busy || !affordable {
            let left = page.next_probe.saturating_sub(v.now) as f64 / 1e9;
            self.rest(match (due, affordable) {
                (false, _) => format!("the next trial here is due in {left:.1} s"),
                (_, false) => format!(
                    "a trial may cost what all messages wait in {:.0} ms, {:.0} ms of the budget are left",
                    cost * 1e3,
                    self.budget.left() * 1e3
                ),
                _ if peer_busy => String::from("the other end's agent is trying an arm"),
                _ => String::from("the last trial was a moment ago"),
            });
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
            self.rest(String::from("this is a dry run"));
            return;
        }
        self.in_vain += u32::from(distress);
        self.begin_probe(happened, why, m, context, v);
    }

    /// The arm to use where both are alike: the applications' own, unless it was overwhelmed by a
    /// load that the other one carried. That load may come back at any moment.
    pub(super) fn safe(&self, context: &Context) -> Arm {
        let (wish, other) = (self.wish, self.wish.other());
        let overwhelmed = |arm| self.memory.overwhelmed(context, arm, LONG);
        if overwhelmed(wish) && !overwhelmed(other) {
            other
        } else {
            wish
        }
    }

    /// Sleeps, longer each time that nothing changed.
    fn rest(&mut self, why: String) {
        self.waits_for = why;
        self.go_to_sleep(self.sleep);
        self.sleep = (2 * self.sleep).min(LONGEST_SLEEP);
    }
}
