//! A trial of the other arm: what it is held against, what it has cost so far, and when it must
//! end early.

use alloc::vec::Vec;

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
    /// The last tick, ns.
    last: u64,
    /// Messages served, and those that would have been before: the rest is held back by a sender
    /// that cannot keep up, where no queue shows it.
    served: f64,
    expected: f64,
    /// How long they waited so far, summed, ns.
    held_for: f64,
    /// Time, ns, times how much longer than before messages waited in it.
    waited_more: f64,
    ticks: u32,
    /// What was served of what was expected, in each tick.
    shares: Vec<f64>,
    /// Ticks on end in which fewer messages were served than expected, but some.
    slow_ticks: u32,
    /// Ticks on end in which messages waited too long, and how long in the worst, ns.
    bad_ticks: u32,
    worst: f64,
}

/// Why a trial must end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hurt {
    /// Messages wait so many times as long as before.
    Waits(f64),
    /// Far fewer messages are served.
    Choked,
}

/// A trial ends when it has served less than this share of what was served before, of so many; unless
/// that was an overload, which serves what was sent earlier.
const CHOKED: f64 = 0.75;
const ENOUGH_SERVED: f64 = 500.0;
/// ...and not because the machine stood still: then nothing is served, and much more right after.
const SLOW: core::ops::Range<f64> = 0.3..0.9;
const SLOW_TICKS: u32 = 2;
const OVERLOADED: f64 = 1e6;
/// Ticks of a trial that are remembered one by one.
const MOST_TICKS: usize = 64;
/// Messages that must have passed before a trial is judged.
const ENOUGH: u64 = 20;
/// A trial ends when messages wait this much longer than before in three ticks on end...
const WORSE: f64 = 1.5;
const BAD_TICKS: u32 = 3;
/// ...and the last is not better than the worst by so much: then a stall of the machine is passing.
const PASSING: f64 = 0.7;
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
            last: since,
            served: 0.0,
            expected: 0.0,
            held_for: 0.0,
            waited_more: 0.0,
            ticks: 0,
            shares: Vec::new(),
            slow_ticks: 0,
            bad_ticks: 0,
            worst: 0.0,
        }
    }

    /// What it has cost, in what all messages wait in a second: they waited so many times as long as
    /// before, or, where that is not known, what this end's queues showed. Below zero, it saved that.
    pub fn cost(&self, ratio: Option<f64>) -> f64 {
        let lasted = (self.last - self.since) as f64;
        let more = ratio.map_or(self.waited_more, |r| (r - 1.0) * lasted);
        more / 1e9
    }

    /// What it has cost besides where a sender fell behind: what it held back waits once more until it
    /// is served. Elsewhere less is served only by chance.
    pub fn cost_of_choking(&self) -> f64 {
        let waited = self.before.latency * self.before.throughput;
        2.0 * self.held_for / waited.max(1.0)
    }

    /// Whether so many times as much is served as before.
    pub fn is_relieved(&self, times: f64) -> bool {
        self.served > times * self.expected
    }

    /// What was served of what was expected, in the median tick: a stall of the machine serves less in
    /// some ticks and more in the next, an arm does in all.
    pub fn usual_share(&self) -> f64 {
        let mut sorted = self.shares.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(1.0)
    }

    /// A tick under the new arm. Answers how many times longer messages wait than before, when
    /// that is reason to end the trial.
    pub fn tick(&mut self, now: u64, quick: &Quick, bytes: u64) -> Option<Hurt> {
        let calm = self.calm.latency();
        let elapsed = now.saturating_sub(self.last) as f64;
        self.last = now;
        self.expected += self.before.throughput * elapsed / 1e9;
        // a server may answer many messages with one call: bytes tell
        let served = bytes as f64 / self.before.message_bytes.max(1.0);
        self.served += served;
        let share = served / (self.before.throughput * elapsed / 1e9).max(1e-9);
        if self.shares.len() < MOST_TICKS {
            self.shares.push(share);
        }
        self.slow_ticks = if SLOW.contains(&share) {
            self.slow_ticks + 1
        } else {
            0
        };
        self.held_for += (self.expected - self.served).max(0.0) * elapsed;
        self.ticks += 1;
        // with Little's law: what waited, in units of what a message used to wait
        let passed = quick.done.max((quick.waited / calm.max(1.0)) as u64);
        // the sockets are switched in the course of the first tick
        if self.ticks == 1 || passed < ENOUGH {
            return None;
        }
        let few = self.served < CHOKED * self.expected && self.expected > ENOUGH_SERVED;
        if self.slow_ticks >= SLOW_TICKS
            && self.ticks > BAD_TICKS
            && few
            && self.before.latency < OVERLOADED
        {
            return Some(Hurt::Choked);
        }
        let (latency, ratio) = (quick.latency(), quick.latency() / calm.max(1.0));
        self.waited_more += (ratio - 1.0) * elapsed;
        if ratio <= WORSE || latency <= calm + GRAIN {
            (self.bad_ticks, self.worst) = (0, 0.0);
            return None;
        }
        self.bad_ticks += 1;
        self.worst = self.worst.max(latency);
        let passing = latency < PASSING * self.worst;
        (self.bad_ticks >= BAD_TICKS && !passing).then_some(Hurt::Waits(ratio))
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

    /// Answers of a trial whose ticks show this.
    fn answers(ticks: &[Quick]) -> Vec<Option<Hurt>> {
        let mut p = probe();
        let times = (1..).map(|n| n * 4_000_000);
        times
            .zip(ticks)
            .map(|(now, t)| p.tick(now, t, t.done * 100))
            .collect()
    }

    #[test]
    fn a_trial_that_hurts_ends_at_the_fourth_tick() {
        let got = answers(&[tick(400, 500e3); 4]);
        assert_eq!(got[..3], [None; 3]);
        assert!(matches!(got[3], Some(Hurt::Waits(_))));
    }

    #[test]
    fn a_stall_of_the_machine_that_passes_ends_no_trial() {
        let waits = [30e3, 30e3, 3e6, 2e6, 1e6, 30e3, 30e3];
        assert_eq!(answers(&waits.map(|w| tick(400, w))), [None; 7]);
    }

    #[test]
    fn a_stall_in_which_nothing_completes_ends_a_trial() {
        let stalled = Quick {
            waited: 400.0 * 2e6,
            done: 0,
        };
        assert!(answers(&[stalled; 4]).iter().any(Option::is_some));
    }

    #[test]
    fn a_sender_that_cannot_keep_up_ends_a_trial_though_its_queues_are_short() {
        let got = answers(&[tick(250, 30e3); 4]);
        assert!(got.contains(&Some(Hurt::Choked)), "{got:?}");
    }

    #[test]
    fn a_trial_that_helps_goes_on_and_saves_what_was_not_waited() {
        let mut p = probe();
        for n in 1..20 {
            assert_eq!(p.tick(n * 4_000_000, &tick(400, 20e3), 40_000), None);
        }
        assert!(p.cost(Some(20.0 / 30.0)) < 0.0);
        assert!(p.cost(None) < 0.0);
    }
}
