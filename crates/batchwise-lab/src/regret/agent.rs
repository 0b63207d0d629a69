//! batchwise as its live agent runs it: looks at what the kernel keeps anyway, and tests.

use std::collections::VecDeque;

use batchwise_core::tune::{
    Arm, Controller, Glimpse, Load, Next, Outcome, Params, Policy, Reason, Slice, Switchback, Usual,
};

use super::world::{Passed, TICK};

/// A look at the service takes so many ticks, or so many while its load seems to change, …
const LOOK: u64 = 80_000_000 / TICK;
const SOON: u64 = 20_000_000 / TICK;
/// … and a controller is told of so many of them.
const LOOKS: usize = 3;
/// After a switch, before a slice begins, ticks.
const SETTLE: u64 = 2_000_000 / TICK;
/// The part of latency that a message spends in the queues of the end that looks.
const LOCAL: f64 = 0.6;

/// An agent with one service.
pub struct Agent {
    controller: Controller,
    /// What the application asked for.
    own: Arm,
    seed: u64,
    /// The last looks, the oldest first, with their ticks. The last one goes on.
    seen: VecDeque<(Passed, u64)>,
    test: Option<Test>,
}

/// A test that goes on.
struct Test {
    reason: Reason,
    since: u64,
    switchback: Switchback,
    /// Of a slice, ticks.
    length: u64,
    usual: Usual,
    /// The slice that goes on, and ticks since the switch to its setting.
    slice: Slice,
    ticks: u64,
}

impl Agent {
    pub fn new(own: Arm, seed: u64) -> Self {
        Self {
            controller: Controller::new(Params::default()),
            own,
            seed,
            seen: VecDeque::new(),
            test: None,
        }
    }

    pub fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// What is in force in the next tick.
    pub fn arm(&self) -> Arm {
        let tried = self.test.as_ref().and_then(|test| test.switchback.next());
        tried.or(self.controller.adopted()).unwrap_or(self.own)
    }

    /// A tick has passed, and it is `now`.
    pub fn tick(&mut self, now: u64, passed: &Passed) {
        if let Some(test) = &mut self.test {
            if let Some(outcome) = test.tick(passed) {
                let time = test.since..now;
                self.controller.tested(test.reason, outcome, time);
                self.test = None;
                self.seen.clear();
            }
            return;
        }
        let is_restless = {
            let before = self.seen.len().saturating_sub(1);
            before < LOOKS || self.controller.is_restless(self.rates(before))
        };
        if self.seen.is_empty() {
            self.seen.push_back((Passed::default(), 0));
        }
        let Some((look, ticks)) = self.seen.back_mut() else {
            return;
        };
        look.add(passed);
        *ticks += 1;
        if *ticks < if is_restless { SOON } else { LOOK } {
            return;
        }
        if self.seen.len() > LOOKS {
            self.seen.pop_front();
        }
        let glimpse = (self.seen.len() == LOOKS).then(|| self.glimpse(now));
        self.seen.push_back((Passed::default(), 0));
        let Some(glimpse) = glimpse else {
            return;
        };
        // what is given back the controller no longer says is adopted
        if let Next::Test {
            slice,
            limit,
            reason,
        } = self.controller.see(&glimpse)
        {
            let (seed, in_force) = (self.seed ^ now, self.arm());
            let params = Params::default();
            let test = Switchback::new(Policy::Latency, params, self.own, in_force, seed);
            self.test = Some(Test {
                reason,
                since: now,
                switchback: test.within(limit),
                length: slice / TICK,
                usual: Usual::default(),
                slice: Slice::default(),
                ticks: 0,
            });
        }
    }

    /// Bytes a second in the first so many looks.
    fn rates(&self, looks: usize) -> impl DoubleEndedIterator<Item = f64> {
        let rate = |(look, ticks): &(Passed, u64)| look.bytes * 1e9 / (ticks * TICK) as f64;
        self.seen.iter().take(looks).map(rate)
    }

    fn glimpse(&self, now: u64) -> Glimpse {
        let mut sum = Passed::default();
        self.seen.iter().for_each(|(look, _)| sum.add(look));
        let rates = || self.rates(LOOKS);
        let ticks: u64 = self.seen.iter().map(|(_, ticks)| ticks).sum();
        let span = ticks * TICK;
        let per_second = |n: f64| n * 1e9 / span as f64;
        Glimpse {
            now,
            app_setting: self.own,
            load: Load {
                bytes: per_second(sum.bytes),
                segments: per_second(sum.done),
            },
            bytes: [
                rates().fold(f64::INFINITY, f64::min),
                rates().fold(0.0, f64::max),
            ],
            span,
            overlap: (sum.outstanding / ticks as f64).max(sum.seen / span as f64),
            held: 0.0, // whoever has several under way is tested all the same
        }
    }
}

impl Test {
    /// A tick has passed; `Some`: the test is over.
    fn tick(&mut self, passed: &Passed) -> Option<Outcome> {
        self.ticks += 1;
        let counted = self.ticks.checked_sub(SETTLE).filter(|n| *n > 0)?;
        self.slice.time += TICK as f64;
        self.slice.bytes += passed.bytes;
        self.slice.waited += LOCAL * passed.seen;
        self.slice.done += passed.done;
        let part = |ticks| ticks * u64::from(Usual::PARTS) / self.length;
        let looked_at = part(counted) > part(counted - 1);
        let bytes = passed.outstanding * passed.bytes / passed.done.max(1.0);
        let is_over = looked_at && self.usual.is_exceeded_by(bytes);
        if counted < self.length && !is_over {
            return None;
        }
        let all = std::mem::take(&mut self.ticks) * TICK;
        self.switchback
            .add(std::mem::take(&mut self.slice), all as f64);
        let over = self.switchback.next().is_none();
        over.then(|| self.switchback.outcome())
    }
}
