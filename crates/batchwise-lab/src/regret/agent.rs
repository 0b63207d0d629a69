//! batchwise as its live agent runs it: looks at what the kernel keeps anyway, and tests.

use batchwise_core::tune::{
    Arm, Controller, Glimpse, Load, Next, Outcome, Params, Policy, Reason, Slice, Switchback,
};

use super::world::{Passed, TICK};

/// A controller is told how its service does every so many ticks.
const GLIMPSE: u64 = 200_000_000 / TICK;
/// After a switch, before a slice begins, ticks.
const SETTLE: u64 = 2_000_000 / TICK;
/// A slice is looked at so often while it goes on, …
const PARTS: u64 = 4;
/// … and ends when this many times as much is under way as when the test began.
const TOO_MUCH: f64 = 3.0;
/// The part of latency that a message spends in the queues of the end that looks.
const LOCAL: f64 = 0.6;

/// An agent with one service.
pub struct Agent {
    controller: Controller,
    /// What the application asked for.
    own: Arm,
    seed: u64,
    /// Since the last glimpse: sums over so many ticks.
    seen: Passed,
    ticks: u64,
    test: Option<Test>,
}

/// A test that goes on.
struct Test {
    reason: Reason,
    switchback: Switchback,
    /// Of a slice, ticks.
    length: u64,
    too_much: f64,
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
            seen: Passed::default(),
            ticks: 0,
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
                self.controller.tested(test.reason, outcome, now);
                self.test = None;
            }
            return;
        }
        self.seen.add(passed);
        self.ticks += 1;
        if self.ticks < GLIMPSE {
            return;
        }
        let glimpse = self.glimpse(now);
        // what is given back the controller no longer says is adopted
        if let Next::Test { slice, reason } = self.controller.see(&glimpse) {
            let (seed, in_force) = (self.seed ^ now, self.arm());
            let params = Params::default();
            self.test = Some(Test {
                reason,
                switchback: Switchback::new(Policy::Latency, params, self.own, in_force, seed),
                length: slice / TICK,
                too_much: TOO_MUCH * passed.outstanding.max(1.0),
                slice: Slice::default(),
                ticks: 0,
            });
        }
    }

    fn glimpse(&mut self, now: u64) -> Glimpse {
        let seen = std::mem::take(&mut self.seen);
        let ticks = std::mem::take(&mut self.ticks) as f64;
        let time = ticks * TICK as f64;
        Glimpse {
            now,
            app_setting: self.own,
            load: Load {
                bytes: seen.bytes * 1e9 / time,
                segments: seen.done * 1e9 / time,
            },
            overlap: (seen.outstanding / ticks).max(seen.seen / time),
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
        let part = |ticks| ticks * PARTS / self.length;
        let looked_at = part(counted) > part(counted - 1);
        if counted < self.length && !(looked_at && passed.outstanding > self.too_much) {
            return None;
        }
        let all = std::mem::take(&mut self.ticks) * TICK;
        self.switchback
            .add(std::mem::take(&mut self.slice), all as f64);
        let over = self.switchback.next().is_none();
        over.then(|| self.switchback.outcome())
    }
}
