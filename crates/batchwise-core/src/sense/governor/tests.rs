//! The governor on a simulated machine.

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

/// What runs really take: what they displace, too.
const MEMBER: f64 = DISPLACED * PRICES.member;
const STARTED: f64 = DISPLACED * PRICES.started;

/// A machine on which the agent works as the kernel's real programs let it.
struct Machine {
    governor: Governor,
    meter: Meter,
    order: Order,
    /// Cost of the agent for each switch, and each second, ns.
    switch: u64,
    idle: u64,
    /// What a window costs the agent for each second since the one before, ns.
    since: u64,
    /// Connections that begin in a second.
    starts: u64,
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
            since: 0,
            starts: 0,
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
            let starts = self.starts * self.meter.at / SECOND;
            self.spent += (starts - self.meter.runs.started) as f64 * STARTED;
            self.meter.runs.started = starts;
            if self.order.count {
                let stall = core::mem::take(&mut self.stall);
                self.meter.cpu += stall;
                self.spent += stall as f64;
                let runs = runs as u128 * u128::from(step) / u128::from(SECOND);
                self.meter.runs.member += runs as u64;
                self.spent += runs as f64 * MEMBER;
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
                        let before = self.windows.iter().rev().nth(1).map_or(0, |w| w.1);
                        let piled_up = (self.meter.at - before) * self.since / SECOND;
                        self.meter.cpu += piled_up;
                        self.spent += piled_up as f64 + PRICES.switch;
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
    let price = (0..10).map(|_| runs(340)).last().unwrap_or_default() / DISPLACED;
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
fn connections_that_come_and_go_do_not_keep_windows_rare() {
    let mut machine = Machine::new(Some(0.01));
    (machine.starts, machine.since) = (1_000, 3_000_000);
    machine.run(60 * SECOND, 300_000);
    machine.stall = 40 * MS;
    let before = machine.windows.len();
    let (cost, _) = machine.cost(60 * SECOND, 300_000);
    let windows = machine.windows.len() - before;
    assert!(windows > 30 && cost < 0.0105, "{windows} {cost}");
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
    while !matches!(machine.governor.plan, Plan::Window { begin, .. } if begin > machine.meter.at) {
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

#[test]
fn a_window_to_which_the_agent_comes_late_is_no_shorter() {
    let mut machine = Machine::new(Some(0.01));
    machine.run(20 * SECOND, 600_000);
    for late in [0, MS, 5 * MS, 50 * MS, SECOND, 3 * SECOND] {
        let (begin, length) = loop {
            match machine.governor.plan {
                Plan::Window { begin, length } if begin > machine.meter.at => {
                    break (begin, length);
                }
                _ => machine.run(MS, 600_000),
            };
        };
        machine.meter.at = begin + late;
        machine.order = machine.governor.ask(machine.meter);
        assert!(machine.order.count, "{late}");
        machine.windows.push((begin + late, 0));
        machine.run(2 * length, 600_000);
        let counted = machine.windows.iter().find(|w| w.0 == begin + late);
        let counted = counted.map_or(0, |w| w.1 - w.0);
        // the look half-way may find that it costs too much
        assert!(
            [length / 2, length].contains(&counted),
            "{late}: {counted} of {length}"
        );
    }
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
