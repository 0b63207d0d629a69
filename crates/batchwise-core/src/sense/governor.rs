//! The cost governor: counts all the time while that stays inside the budget, else in windows, one a
//! slot, as long as the budget allows and at a random place, so that no periodic load hides from them.
//!
//! It knows what counting costs from what is measured: the agent's own CPU time, and how often the
//! programs ran, at prices found when the agent began (`Prices`).

/// How often the programs ran, on all CPUs, since they were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// At events of watched sockets.
    pub member: u64,
    /// At events of others.
    pub foreign: u64,
    /// At beginnings of watched connections.
    pub started: u64,
    /// Of `member`, those that were timed, and how long they took, ns.
    pub timed: u64,
    /// See `timed`.
    pub took: u64,
}

/// What runs and switches take of other CPUs' time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// A run at an event of a watched socket, while caches are warm.
    pub member: f64,
    /// What of it a run's own clock does not see: getting there and back.
    pub entry: f64,
    /// A run at an event of another socket.
    pub foreign: f64,
    /// A connection's beginning and end.
    pub started: f64,
    /// Attaching and detaching the programs, beside the agent's own time.
    pub switch: f64,
}

/// The meters, read at one time; all but `at` only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// ns, monotonic.
    pub at: u64,
    /// CPU time of the agent, ns.
    pub cpu: u64,
    /// As the programs count them.
    pub runs: Runs,
}

/// What the agent is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whether events are to be counted from now on.
    pub count: bool,
    /// When to ask again, ns, as [`Meter::at`].
    pub again: u64,
}

/// Keeps what sensing costs inside a budget.
#[derive(Clone, Debug)]
pub struct Governor {
    /// Share of one CPU; `None`: no limit.
    budget: Option<f64>,
    prices: Prices,
    /// What a run at an event of a watched socket takes now, ns.
    member: f64,
    /// ns.
    slot: u64,
    seed: u64,
    last: Option<Meter>,
    counting: bool,
    spent: f64,
    slot_begin: u64,
    /// Since the slot began: ns that passed while counting, and what was paid, ns.
    counted: u64,
    hooks: f64,
    own: f64,
    switched: bool,
    /// What was left over, or is owed, ns.
    carry: f64,
    skipped: u32,
    forecast: Forecast,
    plan: Plan,
}

/// What the next slot is expected to cost.
#[derive(Clone, Copy, Debug)]
struct Forecast {
    /// ns of other CPUs' time for each ns of counting; `None`: not known yet.
    hooks: Option<f64>,
    /// The agent's own time in a slot without switches, …
    own_steady: Own,
    /// … and in one with a window.
    own_switching: Own,
}

/// The agent's own time in slots of a kind, ns.
#[derive(Clone, Copy, Debug)]
struct Own {
    last: f64,
    expected: f64,
}

impl Own {
    /// Before one was measured.
    fn guess(ns: f64) -> Self {
        Self {
            last: f64::INFINITY,
            expected: ns,
        }
    }

    /// The less of two is expected: a stall of the host counts as CPU time, and comes once.
    fn learn(&mut self, ns: f64) {
        self.expected = ns.min(self.last);
        self.last = ns;
    }
}

/// What was decided for the slot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    /// Count all of it.
    All,
    /// Count once, so long, from then on or as soon as the agent is there: on a busy CPU it is late, and what is left
    /// of a window by then may be too short to see a request whole.
    Window { begin: u64, length: u64 },
    /// Count no more.
    Nothing,
}

/// A slot is about so long, and an interval that is longer holds whole slots: every line of a second has
/// its window.
pub const SLOT: u64 = 1_000_000_000;
/// A shorter window has hardly more in it than its own beginning and end.
const SHORTEST: u64 = 5_000_000;
/// Between two looks at the meters, which cost some µs: load that begins is noticed so late.
const LOOK: u64 = 100_000_000;
/// The first look at a load of which nothing is known.
const FIRST_LOOK: u64 = 10_000_000;
/// Slots without a window, for want of budget, before one of the shortest length comes all the same.
const MOST_SKIPPED: u32 = 9;
/// What a slot with a window takes of the agent before one was measured, ns.
const OWN_SWITCHING: f64 = 2_000_000.0;
/// So many timed runs weigh as much as all before.
const TIMED: f64 = 256.0;
/// Programs displace what applications keep in caches, which no clock of the programs sees. Slices of throughput find so
/// many times what they take (`lab run overhead`: 1.40 with everything counted, 1.39 with the exchange).
const DISPLACED: f64 = 1.4;
/// Counting all the time begins again only when it takes so much of the budget, not more.
const ROOM: f64 = 0.8;

impl Governor {
    /// `budget` is a share of one CPU, `None` for no limit; `interval` that of the reports, ns.
    pub fn new(budget: Option<f64>, prices: Prices, interval: u64, seed: u64) -> Self {
        Self {
            budget,
            prices,
            member: prices.member,
            // short intervals wait for their windows: what a window costs beside its events is the same
            slot: interval.max(SLOT) / interval.div_ceil(SLOT).max(1),
            seed: seed | 1,
            last: None,
            counting: false,
            spent: 0.0,
            slot_begin: 0,
            counted: 0,
            hooks: 0.0,
            own: 0.0,
            switched: false,
            carry: 0.0,
            skipped: 0,
            forecast: Forecast {
                hooks: None,
                own_steady: Own::guess(0.0),
                own_switching: Own::guess(OWN_SWITCHING),
            },
            plan: Plan::All,
        }
    }

    /// What to do now. The order is taken to be obeyed at once.
    pub fn ask(&mut self, meter: Meter) -> Order {
        let Some(last) = self.last.replace(meter) else {
            self.slot_begin = meter.at;
            self.counting = true;
            return self.order(meter.at + FIRST_LOOK.min(self.slot));
        };
        self.account(&last, &meter);
        let Some(budget) = self.budget else {
            return self.order(meter.at + SLOT);
        };
        let now = meter.at;
        if let Plan::Window { begin, length } = &mut self.plan {
            if !self.counting && now >= *begin {
                *begin = now;
            } else if self.counting && now >= *begin + *length {
                self.plan = Plan::Nothing;
            }
        }
        if now >= self.slot_end() {
            self.close_slot(now, budget);
        } else if self.plan == Plan::All && self.hooks > self.left(budget) {
            self.plan = Plan::Nothing;
        }
        let slot_end = self.slot_end();
        let (count, again) = match self.plan {
            Plan::All => {
                let since = now - self.slot_begin;
                // twice as late as the last time
                let next = match self.forecast.hooks {
                    None => (2 * since).max(FIRST_LOOK),
                    Some(_) => LOOK,
                };
                (true, now + next.min(LOOK))
            }
            Plan::Window { begin, .. } if now < begin => (false, begin),
            Plan::Window { begin, length } => {
                if self.counting && self.hooks > self.left(budget) {
                    self.plan = Plan::Nothing;
                    (false, slot_end)
                } else {
                    // half-way, lest the load has grown
                    let half = begin + length / 2;
                    (true, if now < half { half } else { begin + length })
                }
            }
            Plan::Nothing => (false, slot_end),
        };
        if count != self.counting {
            self.counting = count;
            self.switched = true;
            if !count {
                self.pay(self.prices.switch);
            }
        }
        self.order(again.min(slot_end).max(now + 1))
    }

    /// A peer counts for so long from now, ns: the slot's window, if it is still to come, is moved here.
    /// Whether it was; then ask.
    pub fn follow(&mut self, now: u64, length: u64) -> bool {
        match self.plan {
            Plan::Window {
                begin,
                length: ours,
            } if now < begin => {
                let length = ours.min(length.max(SHORTEST));
                self.plan = Plan::Window { begin: now, length };
                true
            }
            _ => false,
        }
    }

    /// For how long counting goes on from `now`, as far as that is decided.
    pub fn remaining(&self, now: u64) -> u64 {
        match self.plan {
            Plan::All => 2 * SLOT, // it is asked again before
            Plan::Window { begin, length } => (begin + length).saturating_sub(now),
            Plan::Nothing => 0,
        }
    }

    /// Takes in what was spent, between two questions.
    pub fn meter(&mut self, meter: Meter) {
        if let Some(last) = self.last.replace(meter) {
            self.account(&last, &meter);
        }
    }

    /// After a pause, which is nothing to save in: begins anew with what is known of the load.
    pub fn restart(&mut self) {
        self.last = None;
        (self.counted, self.hooks, self.own) = (0, 0.0, 0.0);
        self.plan = Plan::All;
    }

    /// What sensing has cost since this was asked last, ns of CPU time.
    pub fn take_spent(&mut self) -> f64 {
        core::mem::take(&mut self.spent)
    }

    /// A window that began late goes on beyond the end of its slot.
    fn slot_end(&self) -> u64 {
        let end = self.slot_begin + self.slot;
        match self.plan {
            Plan::Window { begin, length } => end.max(begin + length),
            Plan::All | Plan::Nothing => end,
        }
    }

    fn order(&self, again: u64) -> Order {
        Order {
            count: self.counting,
            again,
        }
    }

    fn pay(&mut self, ns: f64) {
        self.hooks += ns;
        self.spent += ns;
    }

    fn account(&mut self, last: &Meter, now: &Meter) {
        let grown = |a: u64, b: u64| a.saturating_sub(b) as f64;
        let (a, b) = (&now.runs, &last.runs);
        let timed = grown(a.timed, b.timed);
        if timed > 0.0 {
            let found = self.prices.entry + grown(a.took, b.took) / timed;
            self.member += (found - self.member) * timed / (timed + TIMED);
        }
        self.pay(
            DISPLACED
                * (grown(a.member, b.member) * self.member
                    + grown(a.foreign, b.foreign) * self.prices.foreign
                    + grown(a.started, b.started) * self.prices.started),
        );
        let own = grown(now.cpu, last.cpu);
        self.own += own;
        self.spent += own;
        if self.counting {
            self.counted += now.at.saturating_sub(last.at);
        }
    }

    /// What the slot may still pay for hooks, ns.
    fn left(&self, budget: f64) -> f64 {
        let own = match self.switched {
            true => self.forecast.own_switching,
            false => self.forecast.own_steady,
        };
        budget * self.slot as f64 + self.carry - own.expected.max(self.own)
    }

    fn close_slot(&mut self, now: u64, budget: f64) {
        let f = &mut self.forecast;
        if self.counted >= SHORTEST / 2 {
            let switch = if self.switched {
                self.prices.switch
            } else {
                0.0
            };
            f.hooks = Some((self.hooks - switch).max(0.0) / self.counted as f64);
        }
        match self.plan {
            _ if self.switched => f.own_switching.learn(self.own),
            Plan::All => f.own_steady.learn(self.own),
            _ => {}
        }
        let length = now - self.slot_begin;
        let slot = budget * self.slot as f64;
        let left = budget * length as f64 - self.hooks - self.own;
        // what slots without a window save is for the next window: the agent's work for it may have piled up
        let most = slot * f64::from(1 + self.skipped);
        self.carry = (self.carry + left).clamp(-10.0 * slot, most);
        self.slot_begin = now;
        (self.counted, self.hooks, self.own, self.switched) = (0, 0.0, 0.0, false);
        self.plan = self.next_plan(now, slot);
        self.skipped = match self.plan {
            Plan::Nothing => self.skipped + 1,
            _ => 0,
        };
    }

    fn next_plan(&mut self, now: u64, budget: f64) -> Plan {
        let f = self.forecast;
        let Some(hooks) = f.hooks else {
            return Plan::All;
        };
        // counting all the time takes no more of the agent than a window, and is tried again when that is cheap
        let own = f.own_steady.expected.min(f.own_switching.expected);
        let all = hooks * self.slot as f64 + own;
        let room = if self.counting { 1.0 } else { ROOM };
        if all <= budget * room && self.carry > -budget {
            return Plan::All;
        }
        // a debt or a saving is worked off over a few slots: all at once, windows would swing
        let left = budget + self.carry / 4.0 - f.own_switching.expected - self.prices.switch;
        let mut length = (left / hooks).clamp(0.0, 0.9 * self.slot as f64) as u64;
        if length < SHORTEST {
            // the shortest may take all that was saved, not a quarter
            let with_savings = left + 0.75 * self.carry.max(0.0);
            if with_savings < hooks * SHORTEST as f64 && self.skipped < MOST_SKIPPED {
                return Plan::Nothing;
            }
            length = SHORTEST;
        }
        let begin = now + self.random() % (self.slot - length).max(1);
        Plan::Window { begin, length }
    }

    /// xorshift64.
    fn random(&mut self) -> u64 {
        let mut x = self.seed;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.seed = x;
        x
    }
}

#[cfg(test)]
mod tests;
