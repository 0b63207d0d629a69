//! A trial of the other arm: what it is held against, what it has cost so far, and when it must
//! end early.

use super::{Arm, Context, Measurement, Quick};

/// The other arm on trial.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// The arm in force before.
    pub from: Arm,
    /// What it gave, just before.
    pub before: Measurement,
    /// Where that was.
    pub context: Context,
    /// What this end's queues showed then.
    calm: Quick,
    /// Since when, ns.
    pub since: u64,
    /// What messages have waited longer than before in this end's queues, so far, ns.
    cost: f64,
    /// This end's queues in the last ticks, newest first.
    recent: [Quick; 2],
    bad_ticks: u32,
}

/// Messages that must have passed before a trial is judged.
const ENOUGH: u64 = 20;
/// A trial ends when messages wait this much longer than before in two ticks on end...
const WORSE: f64 = 1.5;
/// ...or this much in one.
const MUCH_WORSE: f64 = 4.0;
/// Differences below this do not end a trial: a tick's mean is that coarse, ns.
const GRAIN: f64 = 10e3;

impl Probe {
    pub fn new(since: u64, from: Arm, before: Measurement, context: Context, calm: Quick) -> Self {
        Self {
            since,
            from,
            before,
            context,
            calm,
            cost: 0.0,
            recent: [Quick::default(); 2],
            bad_ticks: 0,
        }
    }

    /// What it has cost end to end, ns: this end's queues see only a part of it.
    pub fn cost(&self) -> f64 {
        self.cost * (self.before.latency / self.calm.latency().max(1.0)).max(1.0)
    }

    /// A tick under the new arm. Answers how many times longer messages wait than before, when
    /// that is reason to end the trial.
    pub fn tick(&mut self, quick: &Quick) -> Option<f64> {
        let calm = self.calm.latency();
        self.cost += quick.waited - calm * quick.done as f64;
        self.recent = [*quick, self.recent[0]];
        let mut both = self.recent[0];
        both.add(&self.recent[1]);
        // with Little's law: what waited, in units of what a message used to wait
        let passed = both.done.max((both.waited / calm.max(1.0)) as u64);
        if passed < ENOUGH {
            return None;
        }
        let (latency, ratio) = (both.latency(), both.latency() / calm.max(1.0));
        let worse = ratio > WORSE && latency > calm + GRAIN;
        self.bad_ticks = if worse { self.bad_ticks + 1 } else { 0 };
        let ends = self.bad_ticks >= 2 || (worse && ratio > MUCH_WORSE);
        ends.then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        let before = Measurement {
            latency: 40e3,
            throughput: 1e5,
            message_bytes: 100.0,
            confidence: 1.0,
        };
        let context = Context::of(&before, None, None);
        let calm = Quick {
            waited: 1e5 * 30e3,
            done: 100_000,
        };
        Probe::new(0, Arm::Off, before, context, calm)
    }

    fn tick(done: u64, latency: f64) -> Quick {
        Quick {
            waited: latency * done as f64,
            done,
        }
    }

    #[test]
    fn a_trial_that_hurts_badly_ends_at_the_first_tick() {
        assert!(probe().tick(&tick(400, 500e3)).is_some());
    }

    #[test]
    fn a_stall_in_which_nothing_completes_ends_a_trial() {
        let stalled = Quick {
            waited: 400.0 * 2e6,
            done: 0,
        };
        assert!(probe().tick(&stalled).is_some());
    }

    #[test]
    fn a_trial_that_hurts_a_little_ends_only_if_it_goes_on() {
        let mut p = probe();
        assert_eq!(p.tick(&tick(400, 60e3)), None);
        assert!(p.tick(&tick(400, 60e3)).is_some());
    }

    #[test]
    fn a_trial_that_helps_goes_on_and_costs_less_than_nothing() {
        let mut p = probe();
        for _ in 0..20 {
            assert_eq!(p.tick(&tick(400, 20e3)), None);
        }
        assert!(p.cost() < 0.0);
    }
}
