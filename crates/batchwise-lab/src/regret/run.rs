//! One policy in one scenario, and what that came to.

use batchwise_core::sense::report::Side;
use batchwise_core::tune::{Arm, Command, Peer, Vitals};

use super::costs::Batching;
use super::policies::{Decider, Kind, UNDECIDED};
use super::scenarios::{Offers, Scenario};
use super::world::{Gauge, Load, Passed, TICK, Weather, World};

/// Arms that differ by less than this are alike.
const ALIKE: f64 = 1.05;
/// The better arm is expected to be found where it is better by this.
const CLEAR: f64 = 1.25;
/// The windows over which a policy is held against the default, s.
pub const WINDOW_S: f64 = 10.0;
/// A new best arm counts as found when it was in force for this long, ticks...
const FOUND: u64 = 50;
/// ...and as a change at all, when it stays the best for this long, ticks.
const LASTING: u64 = 500;
/// Length of a window, ticks, and of a sample for a plot.
const PER_WINDOW: u64 = (WINDOW_S * 1e9) as u64 / TICK;
const PER_SAMPLE: u64 = 5;
/// What the peer's agent says is this old, ticks.
const PEER_DELAY: usize = 2;

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
    /// Ticks in which both ends' agents tried an arm.
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

struct End {
    decider: Decider,
    gauge: Gauge,
    command: Command,
    announced: [Command; PEER_DELAY],
}

impl End {
    fn arm(&self, app_setting: Arm) -> Arm {
        self.command.arm.unwrap_or(app_setting)
    }

    fn batching(&self, app_setting: Arm) -> Batching {
        let limited = self.decider.limited();
        limited.unwrap_or_else(|| Batching::Arm(self.arm(app_setting)))
    }
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
    switches: u64,
    probes: u64,
    sensing: u64,
}

impl Tally {
    /// The client's end had this arm in force, and this command.
    fn tick(&mut self, tick: u64, load: &Load, passed: &Passed, arm: Arm, command: &Command) {
        self.done += passed.done;
        self.waited += passed.waited;
        self.window += passed.waited;
        if (tick + 1).is_multiple_of(PER_WINDOW) {
            self.windows.push(std::mem::take(&mut self.window));
        }
        let (best, factor) = load.costs.better(load.rate);
        self.wrong += u64::from(factor > ALIKE && arm != best);
        let decided = !command.probing && !command.pulse;
        self.settling.tick(tick, (best, factor), arm, decided);
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

    /// The client's end gets another command.
    fn command(&mut self, before: &Command, now: &Command, app_setting: Arm) {
        let arm = |command: &Command| command.arm.unwrap_or(app_setting);
        self.switches += u64::from(arm(now) != arm(before));
        self.probes += u64::from(now.probing && !before.probing);
        self.sensing += u64::from(now.sensing);
    }

    fn finish(self, ticks: u64, seconds: f64, both_probing: u64) -> Outcome {
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
            both_probing,
            trace: self.trace,
        }
    }
}

/// Runs a policy.
pub fn run(scenario: &Scenario, kind: Kind, seed: u64) -> Outcome {
    let app_setting = scenario.app_setting;
    let end = |side, seed| End {
        decider: Decider::new(kind, side, app_setting, seed),
        gauge: Gauge::new(seed),
        command: UNDECIDED,
        announced: [UNDECIDED; PEER_DELAY],
    };
    let mut ends = vec![end(Side::Client, seed)];
    if scenario.two_ends {
        ends.push(end(Side::Server, seed ^ 1));
    }
    let mut weather = Weather::new(scenario.noise, seed ^ 0x5eed);
    let mut offers = Offers::new(&scenario.pattern, seed);
    let mut world = World::default();
    let mut tally = Tally::default();
    let mut both_probing = 0;
    let ticks = (scenario.seconds * 1e9) as u64 / TICK;
    for tick in 0..ticks {
        let now = tick * TICK;
        let load = offers.next(now as f64 / 1e9, ends[0].command.probing);
        let arm = ends[0].arm(app_setting);
        let here = ends[0].batching(app_setting);
        let there = ends
            .get(1)
            .map_or(Batching::Arm(app_setting), |e| e.batching(app_setting));
        let passed = world.tick(&load, [here, there], &weather.tick());
        tally.tick(tick, &load, &passed, arm, &ends[0].command);
        let heard: Vec<_> = ends.iter().map(|e| e.announced[0]).collect();
        let mut trying = 0;
        for (index, end) in ends.iter_mut().enumerate() {
            end.gauge.add(&passed);
            let other = scenario.two_ends.then(|| heard[1 - index]);
            let vitals = Vitals {
                now: now + TICK,
                connections: 10,
                wish: app_setting,
                bytes: passed.bytes as u64,
                outstanding: passed.outstanding as u64,
                retransmits: passed.retransmits,
                rtt: load.costs.rtt as u64,
                quick: end.command.sensing.then(|| passed.quick()),
                peer: other.map(|command| Peer {
                    arm: command.arm.unwrap_or(app_setting),
                    probing: command.probing,
                }),
            };
            if kind == Kind::Oracle {
                let costs = load.back.filter(|_| index > 0).unwrap_or(load.costs);
                end.decider = Decider::Fixed(match world.is_behind() {
                    true => costs.quicker(load.rate),
                    false => costs.better(load.rate).0,
                });
            }
            let command = end.decider.tick(&vitals, &mut end.gauge);
            if index == 0 {
                tally.command(&end.command, &command, app_setting);
            }
            trying += u64::from(command.probing);
            end.command = command;
            end.announced.rotate_left(1);
            end.announced[PEER_DELAY - 1] = command;
        }
        both_probing += u64::from(trying > 1);
    }
    tally.finish(ticks, scenario.seconds, both_probing)
}
