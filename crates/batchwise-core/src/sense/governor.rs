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
    /// Count once, so long.
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
        if now >= self.slot_begin + self.slot {
            self.close_slot(now, budget);
        } else if self.plan == Plan::All && self.hooks > self.left(budget) {
            self.plan = Plan::Nothing;
        }
        let slot_end = self.slot_begin + self.slot;
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
            Plan::Window { begin, length } if now < begin + length => {
                if self.counting && self.hooks > self.left(budget) {
                    self.plan = Plan::Nothing;
                    (false, slot_end)
                } else {
                    // half-way, lest the load has grown
                    let half = begin + length / 2;
                    (true, if now < half { half } else { begin + length })
                }
            }
            Plan::Window { .. } | Plan::Nothing => (false, slot_end),
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
            grown(a.member, b.member) * self.member
                + grown(a.foreign, b.foreign) * self.prices.foreign
                + grown(a.started, b.started) * self.prices.started,
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
        self.carry = (self.carry + left).clamp(-10.0 * slot, slot);
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
            if self.skipped < MOST_SKIPPED {
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
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    const PRICES: Prices = Prices {
        member: 180.0,
        entry: 60.0,
        foreign: 70.0,
        started: 3_000.0,
        switch: 800_000.0,
    };

    /// A machine on which the agent works as the kernel's real programs let it.
    struct Machine {
        governor: Governor,
        meter: Meter,
        order: Order,
        /// Cost of the agent for each switch, and each second, ns.
        switch: u64,
        idle: u64,
        /// CPU time that the host makes the agent's, once, in a window, ns.
        stall: u64,
        /// ns of its real cost.
        spent: f64,
        windows: Vec<(u64, u64)>,
    }

    impl Machine {
        fn new(budget: Option<f64>) -> Self {
            Self::reporting(budget, SECOND)
        }

        fn reporting(budget: Option<f64>, interval: u64) -> Self {
            let mut governor = Governor::new(budget, PRICES, interval, 7);
            let meter = Meter::default();
            let order = governor.ask(meter);
            Self {
                governor,
                meter,
                order,
                switch: 600_000,
                idle: 100_000,
                stall: 0,
                spent: 0.0,
                windows: alloc::vec![(0, 0)],
            }
        }

        /// Runs for `time` with so many runs a second; the share of the time that was counted.
        fn run(&mut self, time: u64, runs: u64) -> f64 {
            let end = self.meter.at + time;
            let (mut counted, before) = (0, self.spent);
            while self.meter.at < end {
                let step = self.order.again.min(end) - self.meter.at;
                self.meter.at += step;
                self.meter.cpu += self.idle * step / SECOND + 5_000;
                self.spent += (self.idle * step / SECOND + 5_000) as f64;
                if self.order.count {
                    let stall = core::mem::take(&mut self.stall);
                    self.meter.cpu += stall;
                    self.spent += stall as f64;
                    let runs = runs as u128 * u128::from(step) / u128::from(SECOND);
                    self.meter.runs.member += runs as u64;
                    self.spent += runs as f64 * PRICES.member;
                    counted += step;
                }
                let then = self.order.count;
                self.order = self.governor.ask(self.meter);
                if self.order.count != then {
                    self.meter.cpu += self.switch;
                    self.spent += self.switch as f64;
                    match self.order.count {
                        true => self.windows.push((self.meter.at, 0)),
                        false => {
                            self.spent += PRICES.switch;
                            self.windows.last_mut().expect("it began").1 = self.meter.at;
                        }
                    }
                }
            }
            let reported = self.governor.take_spent();
            let real = self.spent - before;
            assert!(
                (reported - real).abs() < 0.05 * real + 1e6,
                "{reported} {real}"
            );
            counted as f64 / time as f64
        }

        fn cost(&mut self, time: u64, runs: u64) -> (f64, f64) {
            let before = self.spent;
            let share = self.run(time, runs);
            ((self.spent - before) / time as f64, share)
        }
    }

    #[test]
    fn short_intervals_of_reports_keep_the_budget_too() {
        let mut machine = Machine::reporting(Some(0.01), SECOND / 100);
        machine.run(5 * SECOND, 300_000);
        let before = machine.spent;
        machine.run(20 * SECOND, 300_000);
        let cost = (machine.spent - before) / (20 * SECOND) as f64;
        assert!(cost < 0.011, "{cost}");
    }

    #[test]
    fn what_is_inside_the_budget_is_counted_in_full() {
        let (cost, share) = Machine::new(Some(0.01)).cost(60 * SECOND, 20_000);
        assert_eq!(share, 1.0);
        assert!(cost < 0.01, "{cost}");
    }

    #[test]
    fn what_runs_really_take_replaces_what_they_took_at_the_start() {
        let mut machine = Machine::new(Some(0.01));
        let mut runs = |took: u64| {
            machine.meter.at += 10 * MS;
            machine.meter.runs.member += 64_000;
            machine.meter.runs.timed += 1_000;
            machine.meter.runs.took += 1_000 * took;
            machine.governor.meter(machine.meter);
            machine.governor.take_spent() / 64_000.0
        };
        let price = (0..10).map(|_| runs(340)).last().unwrap_or_default();
        assert!((399.0..401.0).contains(&price), "{price}");
    }

    #[test]
    fn with_no_limit_everything_is_counted() {
        assert_eq!(Machine::new(None).run(10 * SECOND, 10_000_000), 1.0);
    }

    #[test]
    fn the_budget_is_kept_and_used() {
        for (budget, runs) in [
            (0.01, 100_000),
            (0.01, 600_000),
            (0.02, 600_000),
            (0.05, 3_000_000),
            (0.005, 300_000),
        ] {
            let mut machine = Machine::new(Some(budget));
            machine.run(10 * SECOND, runs);
            let (cost, share) = machine.cost(120 * SECOND, runs);
            assert!(cost <= 1.05 * budget, "{budget} {runs}: {cost}");
            assert!(cost >= 0.85 * budget, "{budget} {runs}: {cost}");
            assert!(share > 0.003, "{share}");
        }
    }

    #[test]
    fn every_slot_has_a_window_where_the_budget_allows_one() {
        let mut machine = Machine::new(Some(0.01));
        machine.run(60 * SECOND, 600_000);
        let begun = |s: u64| machine.windows.iter().any(|w| w.0 / SECOND == s);
        let without = (2..58).filter(|&s| !begun(s)).count();
        assert!(without <= 2, "{without}: {:?}", machine.windows);
    }

    #[test]
    fn windows_come_at_any_time_of_a_period() {
        let mut machine = Machine::new(Some(0.01));
        machine.run(400 * SECOND, 600_000);
        // a load of one beat in 100 ms: how much of the counted time each tenth of the beat has
        let mut tenths = [0u64; 10];
        for &(begin, end) in &machine.windows[2..] {
            for at in (begin..end.max(begin)).step_by(MS as usize) {
                tenths[(at / (10 * MS) % 10) as usize] += 1;
            }
        }
        let all: u64 = tenths.iter().sum();
        for tenth in tenths {
            let share = tenth as f64 / all as f64;
            assert!((0.07..0.13).contains(&share), "{tenths:?}");
        }
    }

    #[test]
    fn load_that_begins_is_counted_from_its_first_event_and_soon_within_the_budget() {
        let mut machine = Machine::new(Some(0.01));
        assert_eq!(machine.run(30 * SECOND, 0), 1.0);
        let counts = machine.order.count;
        let burst = machine.cost(2 * SECOND, 3_000_000);
        assert!(counts && burst.0 < 0.06, "{burst:?}");
        let (cost, _) = machine.cost(60 * SECOND, 3_000_000);
        assert!(cost < 0.0105, "{cost}");
        // and when it ends, everything is counted again
        machine.run(5 * SECOND, 10);
        assert_eq!(machine.run(10 * SECOND, 10), 1.0);
    }

    #[test]
    fn an_agent_that_is_itself_too_dear_still_looks_now_and_then() {
        let mut machine = Machine::new(Some(0.001));
        machine.switch = 3_000_000;
        machine.run(100 * SECOND, 600_000);
        let windows = machine.windows.len();
        assert!((8..=40).contains(&windows), "{windows}");
    }

    #[test]
    fn a_stall_that_counts_as_the_agents_time_silences_it_only_until_it_is_paid() {
        let mut machine = Machine::new(Some(0.01));
        machine.idle = 1_000_000;
        machine.run(20 * SECOND, 600_000);
        for _ in 0..5 {
            let before = machine.windows.len();
            machine.stall = 40 * MS;
            machine.run(40 * SECOND, 600_000);
            assert_eq!(machine.stall, 0);
            let begun = machine.windows[before - 1..].iter().map(|w| w.0);
            let begun: Vec<_> = begun.chain([machine.meter.at]).collect();
            let gaps = begun.windows(2).map(|two| two[1] - two[0]);
            let longest = gaps.max().expect("windows");
            assert!(longest < 4 * SECOND, "{} ms", longest / MS);
        }
    }

    #[test]
    fn an_agent_whose_own_time_varies_keeps_the_budget_too() {
        let mut machine = Machine::new(Some(0.01));
        machine.run(20 * SECOND, 600_000);
        let before = machine.spent;
        for _ in 0..60 {
            for switch in [1_000_000, 4_000_000] {
                machine.switch = switch;
                machine.run(SECOND, 600_000);
            }
        }
        let cost = (machine.spent - before) / (120 * SECOND) as f64;
        assert!(cost <= 0.0105, "{cost}");
    }

    #[test]
    fn a_window_moves_to_a_peers_once_a_slot_and_grows_no_longer() {
        let mut machine = Machine::new(Some(0.01));
        machine.run(20 * SECOND, 600_000);
        // to the beginning of a slot
        while !matches!(machine.governor.plan, Plan::Window { begin, .. } if begin > machine.meter.at)
        {
            machine.run(MS, 600_000);
        }
        let now = machine.meter.at;
        let planned = match machine.governor.plan {
            Plan::Window { length, .. } => length,
            _ => 0,
        };
        assert!(machine.governor.follow(now, 10 * SECOND));
        assert_eq!(machine.governor.remaining(now), planned);
        assert!(!machine.governor.follow(now, SECOND));
    }

    proptest! {
        #[test]
        fn whatever_the_load_does_the_cost_stays_near_the_budget(
            loads in proptest::collection::vec((0u64..4_000_000, 1u64..20), 5..30),
        ) {
            let mut machine = Machine::new(Some(0.01));
            let mut time = 0;
            for (runs, seconds) in loads {
                machine.run(seconds * SECOND, runs);
                time += seconds * SECOND;
            }
            // a load that begins costs up to a look at it, and is paid back
            let cost = machine.spent / (time + 10 * SECOND) as f64;
            prop_assert!(cost < 0.02, "{}", cost);
        }

        #[test]
        fn it_is_asked_again_later_and_within_the_slot(
            steps in proptest::collection::vec((0u64..3_000_000_000, 0u64..1_000_000, 0u64..10_000_000), 1..50),
        ) {
            let mut governor = Governor::new(Some(0.01), PRICES, SECOND, 3);
            let mut meter = Meter::default();
            for (time, runs, cpu) in steps {
                let order = governor.ask(meter);
                prop_assert!(order.again > meter.at && order.again <= meter.at + SECOND);
                meter.at += time;
                meter.cpu += cpu;
                meter.runs.member += runs;
            }
        }
    }
}
