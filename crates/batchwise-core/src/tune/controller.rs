//! When to test, and what follows from a test. Three states: the applications' own setting, a test, and
//! the other setting adopted.

use super::{Arm, Outcome, Params};

/// What is seen of a service without counting anything: what the kernel itself keeps of its sockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glimpse {
    /// ns of any monotonic clock.
    pub now: u64,
    /// What most of the applications asked for.
    pub app_setting: Arm,
    /// How much it does, in the mean over a few looks, …
    pub load: Load,
    /// … bytes a second in the quietest and in the busiest of them, …
    pub bytes: [f64; 2],
    /// … and how long they took in all, ns.
    pub span: u64,
    /// Segments that are under way or held back on a connection that sends, in the mean.
    pub overlap: f64,
}

/// How much a service does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Bytes a second, in both directions.
    pub bytes: f64,
    /// Segments with data a second, sent.
    pub segments: f64,
}

/// Nagle's algorithm holds nothing back while all that was sent is acknowledged. A connection with one
/// request at a time has at most one segment under way in the mean, seen with some noise: only with more
/// is there something to test.
const OVERLAP: f64 = 1.25;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Stay,
    /// A test, with slices of so many ns.
    Test {
        /// A slice's length, ns.
        slice: u64,
        /// Why now.
        reason: Reason,
    },
    /// The applications have their own setting back.
    GiveBack,
}

/// Why a test is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The service was never tested.
    New,
    /// The load is another one than the last test's.
    Shift,
    /// The last test is long enough ago.
    Due,
}

/// Decides for one service.
#[derive(Clone, Debug)]
pub struct Controller {
    params: Params,
    /// The setting in force, if it is not the applications' own.
    adopted: Option<Arm>,
    /// What the last test found, and when it ended.
    last: Option<(Outcome, u64)>,
    pause: Option<Pause>,
    /// As last seen.
    load: Load,
}

/// Between tests.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: u64,
    /// When all tests so far are paid for.
    paid: u64,
    /// The next test comes after this, ns, if nothing happens.
    rest: u64,
    /// The load that the answer is for. `None`: a setting was adopted or given up, which may change the
    /// load, and what waited is served now.
    load: Option<Load>,
}

impl Controller {
    /// Begins with the applications' own setting.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            adopted: None,
            last: None,
            pause: None,
            load: Load::default(),
        }
    }

    /// The setting in force, if it is not the applications' own.
    pub fn adopted(&self) -> Option<Arm> {
        self.adopted
    }

    /// What the last test found, and when it ended.
    pub fn last(&self) -> Option<&(Outcome, u64)> {
        self.last.as_ref()
    }

    /// When the next test comes if nothing happens, ns.
    pub fn next_test(&self) -> Option<u64> {
        self.pause.map(|pause| pause.end())
    }

    /// What tests have cost and is not paid for yet, ns of the service's time.
    pub fn debt(&self, now: u64) -> f64 {
        let paid = self.pause.map_or(0, |pause| pause.paid);
        paid.saturating_sub(now) as f64 * self.params.budget
    }

    /// Whether the load may be changing, so that the next look should come soon. `rates`: bytes a second
    /// in the last looks, the oldest first.
    pub fn is_restless(&self, rates: impl DoubleEndedIterator<Item = f64>) -> bool {
        let mut rates = rates.rev();
        let (last, shift) = (rates.next().unwrap_or(0.0), self.params.shift);
        rates.any(|rate| last > rate * shift || last * shift < rate)
    }

    /// Takes in how the service does.
    pub fn see(&mut self, glimpse: &Glimpse) -> Next {
        if self.adopted == Some(glimpse.app_setting) {
            return self.give_back(); // they ask for it themselves
        }
        let changed = self.is_changed(glimpse);
        // where a test has shown that it helps, the next one need not see why
        let tested = self.adopted.is_some() && !changed;
        if glimpse.overlap < OVERLAP && !tested {
            return self.give_back();
        }
        let reason = match &self.pause {
            None => Reason::New,
            // a shift may borrow what the longest rest pays for
            Some(pause)
                if changed && pause.paid < glimpse.now.saturating_add(self.params.longest_rest) =>
            {
                Reason::Shift
            }
            Some(pause) if glimpse.now >= pause.end() => Reason::Due,
            Some(_) if changed => return self.give_back(),
            Some(_) => return Next::Stay,
        };
        Next::Test {
            slice: self.slice(glimpse),
            reason,
        }
    }

    /// The applications have their own setting again: what was adopted is for another load, and this one
    /// cannot be tested; or they ask for it themselves.
    fn give_back(&mut self) -> Next {
        match self.adopted.take() {
            Some(_) => Next::GiveBack,
            None => Next::Stay,
        }
    }

    /// Takes in a test that began for `reason` and ended `now`; [`Self::adopted`] says what follows.
    pub fn tested(&mut self, reason: Reason, outcome: Outcome, now: u64) {
        let better = outcome.better == Some(true);
        let in_force = self.adopted.unwrap_or(outcome.own);
        let cost = outcome.cost(in_force, self.params.counting) / self.params.budget.max(1e-6);
        self.last = Some((outcome, now));
        let adopted = better.then_some(outcome.own.other());
        self.rest(reason, adopted, now, cost as u64);
    }

    /// A test that was to be made for `reason` was not, or did not come to its end.
    pub fn passed_over(&mut self, reason: Reason, now: u64) {
        self.rest(reason, None, now, 0);
    }

    /// From now on this is in force. As long as the answer stays the same, it is asked for less often.
    fn rest(&mut self, reason: Reason, adopted: Option<Arm>, now: u64, cost: u64) {
        let p = &self.params;
        let stays = adopted == self.adopted;
        let rest = match &self.pause {
            Some(pause) if reason == Reason::Due && stays => {
                pause.rest.saturating_mul(2).min(p.longest_rest)
            }
            _ => p.first_rest,
        };
        let paid = self.pause.map_or(0, |pause| pause.paid).max(now);
        self.adopted = adopted;
        self.pause = Some(Pause {
            since: now,
            paid: paid.saturating_add(cost),
            rest,
            load: stays.then_some(self.load),
        });
    }

    /// Whether the load is another one than the answer is for: in each of the last looks, so that a stall
    /// in one of them is no change.
    fn is_changed(&mut self, glimpse: &Glimpse) -> bool {
        self.load = glimpse.load;
        let Some(pause) = &mut self.pause else {
            return false;
        };
        let Some(then) = &pause.load else {
            let settled = pause.since.saturating_add(2 * glimpse.span);
            pause.load = (glimpse.now >= settled).then_some(glimpse.load);
            return false;
        };
        let ([least, most], shift) = (glimpse.bytes, self.params.shift);
        least > then.bytes * shift || most * shift < then.bytes
    }

    /// How long slices are for this load.
    fn slice(&self, glimpse: &Glimpse) -> u64 {
        let p = &self.params;
        let enough = p.segments * 1e9 / glimpse.load.segments.max(1e-3);
        enough.clamp(p.shortest as f64, p.longest as f64) as u64
    }
}

impl Pause {
    fn end(&self) -> u64 {
        self.paid.max(self.since.saturating_add(self.rest))
    }
}
