//! One policy in one scenario, and what that came to.

use batchwise_core::tune::Arm;

use super::policies::{Decider, Kind};
use super::scenarios::{Offers, Scenario};
use super::world::{Load, Passed, TICK, Weather, World};

/// Arms that differ by less than this are alike.
const ALIKE: f64 = 1.05;
/// The better arm is expected to be found where it is better by this.
const CLEAR: f64 = 1.25;
/// The windows over which a policy is held against the default, s.
pub const WINDOW_S: f64 = 10.0;
/// A new best arm counts as found when it was in force for this long, ticks...
const FOUND: u64 = 200_000_000 / TICK;
/// ...and as a change at all, when it stays the best for this long, ticks.
const LASTING: u64 = 2_000_000_000 / TICK;
/// Length of a window, ticks, and of a sample for a plot.
const PER_WINDOW: u64 = (WINDOW_S * 1e9) as u64 / TICK;
const PER_SAMPLE: u64 = 20_000_000 / TICK;

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Mean of all messages, ns.
    pub latency_ns: f64,
    pub throughput_per_s: f64,
    /// Time under an arm that was worse by more than 5 %, as a share of all.
    pub wrong: f64,
    pub switches_per_min: f64,
    pub probes_per_min: f64,
    /// How long the kernel counted, as a share of all.
    pub sensing: f64,
    /// From each lasting change of the better arm until it was in force to stay, s.
    pub settle_s: Vec<f64>,
    /// What messages waited in each window, ns.
    pub windows: Vec<f64>,
    /// Ticks in which both ends' agents tested.
    pub both_probing: u64,
    /// For a plot.
    pub trace: Vec<Sample>,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// s.
    pub at: f64,
    pub arm: Arm,
    /// Mean since the sample before, ns.
    pub latency_ns: f64,
}

/// How long lasting changes of the better arm wait until it is in force.
#[derive(Default)]
struct Settling {
    best_before: Option<Arm>,
    /// The tick of the first change that was not answered yet.
    changed: Option<u64>,
    /// Since when the arm that was better then has been in force.
    answered: Option<u64>,
    settle_s: Vec<f64>,
}

impl Settling {
    /// `arm` was in force, for more than a trial if `decided`; `best` was better by `factor`.
    fn tick(&mut self, tick: u64, (best, factor): (Arm, f64), arm: Arm, decided: bool) {
        if factor <= CLEAR {
            self.changed = None;
            return;
        }
        if self.best_before.is_some_and(|before| before != best) {
            (self.changed, self.answered) = (Some(tick), None);
        }
        self.best_before = Some(best);
        let Some(changed) = self.changed else {
            return;
        };
        if decided {
            self.answered = (arm == best).then(|| self.answered.unwrap_or(tick));
        }
        let found = self.answered.filter(|since| tick - since >= FOUND);
        if let Some(since) = found.filter(|_| tick - changed >= LASTING) {
            self.settle_s.push(seconds_of(since - changed));
            self.changed = None;
        }
    }

    /// A change that was not answered took the rest of the `ticks`.
    fn finish(mut self, ticks: u64) -> Vec<f64> {
        let unanswered = self.changed.filter(|_| self.answered.is_none());
        if let Some(changed) = unanswered.filter(|changed| ticks - changed > LASTING) {
            self.settle_s.push(seconds_of(ticks - changed));
        }
        self.settle_s
    }
}

/// Of so many ticks, s.
fn seconds_of(ticks: u64) -> f64 {
    ticks as f64 * TICK as f64 / 1e9
}

/// What a run comes to, while it runs.
#[derive(Default)]
struct Tally {
    done: f64,
    waited: f64,
    /// Since the last window ended.
    window: f64,
    windows: Vec<f64>,
    wrong: u64,
    settling: Settling,
    /// Since the last sample.
    sample: Passed,
    trace: Vec<Sample>,
    /// In the tick before, whether a test went on, and with which arm.
    before: Option<(Arm, bool)>,
    switches: u64,
    probes: u64,
    sensing: u64,
    both_probing: u64,
}

impl Tally {
    /// These decided; the first is the client's end.
    fn tick(&mut self, tick: u64, load: &Load, passed: &Passed, ends: &[Decider]) {
        let (arm, testing) = (ends[0].arm(), ends[0].is_testing());
        let before = self.before.replace((arm, testing)).unwrap_or((arm, false));
        self.switches += u64::from(arm != before.0);
        self.probes += u64::from(testing && !before.1);
        self.sensing += u64::from(ends[0].is_counting());
        self.both_probing += u64::from(ends.len() > 1 && ends.iter().all(Decider::is_testing));
        self.done += passed.done;
        self.waited += passed.waited;
        self.window += passed.waited;
        if (tick + 1).is_multiple_of(PER_WINDOW) {
            self.windows.push(std::mem::take(&mut self.window));
        }
        let (best, factor) = load.costs.better(load.rate);
        self.wrong += u64::from(factor > ALIKE && arm != best);
        self.settling.tick(tick, (best, factor), arm, !testing);
        self.sample.waited += passed.waited;
        self.sample.done += passed.done;
        if tick % PER_SAMPLE == PER_SAMPLE - 1 {
            let sample = std::mem::take(&mut self.sample);
            self.trace.push(Sample {
                at: seconds_of(tick),
                arm,
                latency_ns: sample.waited / sample.done.max(1.0),
            });
        }
    }

    fn finish(self, ticks: u64, seconds: f64) -> Outcome {
        let (share, minutes) = (1.0 / ticks as f64, seconds / 60.0);
        Outcome {
            latency_ns: self.waited / self.done,
            throughput_per_s: self.done / seconds,
            wrong: self.wrong as f64 * share,
            switches_per_min: self.switches as f64 / minutes,
            probes_per_min: self.probes as f64 / minutes,
            sensing: self.sensing as f64 * share,
            settle_s: self.settling.finish(ticks),
            windows: self.windows,
            both_probing: self.both_probing,
            trace: self.trace,
        }
    }
}

/// Runs a policy.
pub fn run(scenario: &Scenario, kind: Kind, seed: u64) -> Outcome {
    let app_setting = scenario.app_setting;
    let mut ends = vec![Decider::new(kind, app_setting, seed)];
    if scenario.two_ends {
        ends.push(Decider::new(kind, app_setting, seed ^ 1));
    }
    let mut weather = Weather::new(scenario.noise, seed ^ 0x5eed);
    let mut offers = Offers::new(&scenario.pattern, seed);
    let mut world = World::default();
    let mut tally = Tally::default();
    let ticks = (scenario.seconds * 1e9) as u64 / TICK;
    for tick in 0..ticks {
        let now = tick * TICK;
        let load = offers.next(now as f64 / 1e9, ends[0].is_testing());
        let here = ends[0].arm();
        let there = ends.get(1).map_or(app_setting, Decider::arm);
        let passed = world.tick(&load, [here, there], &weather.tick());
        tally.tick(tick, &load, &passed, &ends);
        for (index, end) in ends.iter_mut().enumerate() {
            if kind == Kind::Oracle {
                let costs = load.back.filter(|_| index > 0).unwrap_or(load.costs);
                *end = Decider::Fixed(match world.is_behind() {
                    true => costs.quicker(load.rate),
                    false => costs.better(load.rate).0,
                });
            }
            end.tick(now + TICK, &passed);
        }
    }
    tally.finish(ticks, scenario.seconds)
}
