//! A trial of the other arm: while it lasts, and what its outcome means.

use alloc::format;
use alloc::string::String;

use super::super::probe::{Hurt, Probe};
use super::super::{Arm, Context, Happened, Measurement, Meter, Perf, Quick, Vitals};
use super::{Controller, LOAD_STEP, LONG, MS, SHORTEST_SLEEP, us};
use crate::sense::report::Side;

/// What a message waits at a sender that cannot keep up, ns, once that goes on for a while.
pub(super) const HIDDEN: f64 = 50e6;
/// A window under which this much less is served may have choked a sender.
const LESS: f64 = 1.08;
/// A trial under which this much more is served has relieved a sender.
pub(super) const RELIEF: f64 = 1.15;
/// One under which this much more is served may have: what the sender held back itself, where nobody saw
/// it, waits in its queues now. If latency is no longer for that, it stays.
const MORE: f64 = 1.05;
/// The weights in what is known to wait at a sender: of a trial that relieved it, and of one under
/// which as much was served as before.
const RELIEVED: f64 = 0.5;
const KEPT_UP: f64 = 0.75;
/// A trial ends when it has cost this, s, ...
pub(super) const ALLOWANCE_S: f64 = 0.03;
/// ...and messages wait so many times as long end to end, or, where that is not known yet, at this end.
const WORSE: f64 = 1.4;
const MUCH_WORSE: f64 = 3.0;
/// No trial is charged with more, s: one disaster must not end all learning.
pub(super) const MOST_COST_S: f64 = 0.1;
/// Between two trials whose outcome was not clear.
const SHORTEST_PAUSE: u64 = 200 * MS;
/// Between trials, at most.
const LONGEST_PAUSE: u64 = 60_000 * MS;
/// A trial that cost no more, s, is repeated after this time at the latest.
const CHEAP_S: f64 = 0.03;
const CHEAP_PAUSE: u64 = 15_000 * MS;
/// A trial that had no clean window in this time ends.
const LONGEST_PROBE: u64 = 2_000 * MS;

/// A trial under which less was served: its arm's doing, or the load's?
#[derive(Clone, Copy, Debug)]
pub(super) struct Less {
    arm: Arm,
    context: Context,
    before: Measurement,
    served: f64,
}

impl Controller {
    /// The first window after a trial under which less was served: if now as much is served as
    /// before it, it was the arm's doing; if not, load fell, or a sender had caught up.
    pub(super) fn judge_less(&mut self, m: &Measurement) {
        let Some(less) = self.less.take() else { return };
        let (now, before) = (m.throughput, less.before.throughput);
        if libm::fabs(now - before) < libm::fabs(now - less.served) {
            self.mark_choked(less.arm, less.context, &less.before);
            self.back_off(less.context, true);
        }
    }

    /// A trial must not hurt for longer than it takes to see that it does.
    pub(super) fn watch_probe(&mut self, quick: &Quick, v: &Vitals, meter: &mut dyn Meter) {
        let Some(probe) = &mut self.probe else { return };
        if v.peer.is_some_and(|p| p.probing) && self.tuning.side == Side::Server {
            let why = String::from("the other end's agent is trying an arm: it goes first");
            self.end_probe(Happened::Yield, why, v);
            return;
        }
        if v.now > probe.since + LONGEST_PROBE {
            let why = String::from("no window of it was undisturbed");
            self.end_probe(Happened::Keep, why, v);
            return;
        }
        let Some(hurt) = probe.tick(v.now, quick, v.bytes) else {
            return;
        };
        let Hurt::Waits(ratio) = hurt else {
            self.end_choked(v);
            return;
        };
        if probe.is_relieved(MORE) && probe.before.latency * ratio < HIDDEN {
            return;
        }
        // queues at this end may grow while the whole gets quicker
        let total = meter.measure();
        let known = total.filter(|m| m.confidence >= self.tuning.min_confidence);
        let (ratio, worse) = match known {
            Some(m) => (m.latency / probe.before.latency.max(1.0), WORSE),
            None => (ratio, MUCH_WORSE),
        };
        if ratio < worse || probe.cost(Some(ratio)) < ALLOWANCE_S {
            return;
        }
        let (context, latency) = (probe.context, probe.before.latency * ratio);
        let rate = self.bytes as f64 * 1e9 / (v.now - self.since).max(1) as f64;
        if rate > LOAD_STEP * self.normal.bytes_per_s {
            // it may be the load that hurts
            let why = format!("load rose, and messages waited {ratio:.1} times as long");
            self.end_probe(Happened::Abort, why, v);
            return;
        }
        let perf = Perf {
            latency,
            throughput: probe.before.throughput,
        };
        let tried = self.arm;
        let page = self.memory.page(context);
        page.arm_mut(tried).add(&perf, v.now);
        let clear = ratio > 2.0 || page.arm(tried).count() >= 2.0;
        self.back_off(context, clear);
        let why = format!("messages waited {ratio:.1} times as long");
        self.end_probe(Happened::Abort, why, v);
    }

    /// Fewer messages are served: those that are not wait at their sender, for as long as that goes on.
    fn end_choked(&mut self, v: &Vitals) {
        let Some(probe) = self.probe.take() else {
            return;
        };
        self.mark_choked(self.arm, probe.context, &probe.before);
        self.pay(&probe, probe.cost(None) + probe.cost_of_choking());
        self.back_off(probe.context, true);
        let why = String::from("far fewer messages were served: their sender cannot keep up");
        self.undo(&probe, Happened::Abort, why, v);
    }

    /// Under this load an arm makes its sender fall behind.
    pub(super) fn mark_choked(&mut self, arm: Arm, context: Context, instead: &Measurement) {
        let perf = Perf {
            latency: instead.latency + HIDDEN,
            throughput: instead.throughput,
        };
        self.memory.page(context).arm_mut(arm).add(&perf, self.now);
    }

    /// Back to the arm from before the trial, before a window of it was measured.
    pub(super) fn end_probe(&mut self, happened: Happened, why: String, v: &Vitals) {
        if let Some(probe) = self.probe.take() {
            self.pay(&probe, probe.cost(None));
            self.undo(&probe, happened, why, v);
        }
    }

    fn undo(&mut self, probe: &Probe, happened: Happened, why: String, v: &Vitals) {
        self.probed_at = self.now;
        self.arm = probe.from;
        self.tell(happened, why);
        self.settle(self.settling(v));
    }

    fn pay(&mut self, probe: &Probe, cost: f64) {
        let cost = cost.min(MOST_COST_S);
        self.budget.spend(cost);
        self.memory.page(probe.context).last_cost = Some(cost);
    }

    pub(super) fn back_off(&mut self, context: Context, clear: bool) {
        let now = self.now;
        let page = self.memory.page(context);
        page.interval = if clear {
            // a sender that falls behind shows only in a trial: cheap ones go on
            let cheap = page.last_cost.is_some_and(|c| c < CHEAP_S);
            let longest = if cheap { CHEAP_PAUSE } else { LONGEST_PAUSE };
            (2 * page.interval).clamp(2 * SHORTEST_PAUSE, longest)
        } else {
            page.interval.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
        };
        page.next_probe = now + page.interval;
    }

    /// A whole window under the arm on trial.
    pub(super) fn probed(&mut self, probe: Probe, m: Measurement, v: &Vitals) {
        let context = Context::of(&m, v.peer.map(|p| p.arm), Some(&probe.context));
        let (tried, margin, policy) = (self.arm, self.tuning.margin, self.tuning.policy);
        let safe = self.safe(&context);
        let page = self.memory.page(context);
        page.arm_mut(tried).add(&Perf::from(&m), v.now);
        if m.throughput * MORE > probe.before.throughput {
            page.arm_mut(tried).add_hidden(0.0, KEPT_UP);
        }
        let (old, new) = (*page.arm(probe.from), *page.arm(tried));
        let alike = (context.size - probe.context.size).abs() <= 1;
        let share = probe.usual_share();
        let more = m.throughput / probe.before.throughput.max(1.0);
        let less = more.max(share) * LESS < 1.0;
        let longer = m.latency / probe.before.latency.max(1.0);
        let known_worse = old.count() > 0.0 && policy.prefers(&old.perf(), &Perf::from(&m), margin);
        let relieved =
            (more.min(share) > RELIEF && m.latency < probe.before.latency + HIDDEN && !known_worse)
                || (more.min(share) > MORE && longer < 1.0 + margin);
        if relieved && more > RELIEF {
            // what was served more had waited at its sender
            let wait = (more - 1.0) * (v.now - self.since) as f64;
            let page = self.memory.page(probe.context);
            page.arm_mut(probe.from).add_hidden(wait, RELIEVED);
        }
        let (adopt, clear) = if relieved && alike {
            (true, true)
        } else if less && alike {
            self.less = Some(Less {
                arm: tried,
                context: probe.context,
                before: probe.before,
                served: m.throughput,
            });
            (false, false)
        } else if context == probe.context {
            let error = libm::hypot(old.error(), new.error());
            let gain = old.mean() - new.mean();
            let (was, is) = (old.perf_at(m.throughput), new.perf_at(m.throughput));
            let better = policy.prefers(&is, &was, margin) && gain > error;
            let worse = policy.prefers(&was, &is, margin) && -gain > error;
            // no better than what the applications asked for themselves
            let alike = !better && !worse && new.count() >= 3.0;
            let settled = better || worse || alike;
            (better || (alike && tried == safe), settled)
        } else {
            // More is served, and sooner: that is the arm's doing. All else may be the world's; if
            // not, what was just seen will be recalled.
            let (before, after) = (Perf::from(&probe.before), Perf::from(&m));
            // a backlog that still drains says nothing of what comes after it
            let drains = after.latency > LONG;
            let sooner = after.throughput > before.throughput
                && policy.prefers(&after, &before, margin)
                && (drains || !known_worse);
            let better = alike && context.peer == probe.context.peer && sooner;
            (better, better)
        };
        let (was, is) = (us(probe.before.latency), us(m.latency));
        let why = format!(
            "{was} at {:.0}/s before, {is} at {:.0}/s now",
            probe.before.throughput, m.throughput
        );
        if !adopt {
            let waited = probe.cost(Some(longer));
            let held = if less { probe.cost_of_choking() } else { 0.0 };
            self.pay(&probe, waited + held);
        }
        self.back_off(probe.context, clear);
        if adopt {
            self.context = Some(context);
            self.last = Some(m);
            self.adopted_at = v.now;
            self.relief = relieved.then_some(m.throughput);
            self.sleep = SHORTEST_SLEEP;
            self.tell(Happened::Adopt, why);
            self.settle(0);
        } else {
            self.undo(&probe, Happened::Keep, why, v);
        }
    }
}
