//! One policy in one scenario, and what that came to.

use batchwise_core::sense::report::Side;
use batchwise_core::tune::{Arm, Command, Event, Peer, Policy as Aim, Vitals};
use serde::Serialize;

use super::costs::Batching;
use super::policies::{Decider, Kind};
use super::scenarios::Scenario;
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
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Mean latency of all messages, ns.
    pub latency_ns: f64,
    /// Messages answered a second.
    pub throughput_per_s: f64,
    /// Time under an arm that was worse by more than 5 %, as a share of all.
    pub wrong: f64,
    /// Switches a minute.
    pub switches_per_min: f64,
    /// Trials a minute.
    pub probes_per_min: f64,
    /// How long the kernel counted, as a share of all.
    pub sensing: f64,
    /// From each lasting change of the better arm until it was in force to stay, s.
    pub settle_s: Vec<f64>,
    /// What messages waited in each window, ns.
    #[serde(skip)]
    pub windows: Vec<f64>,
    /// Ticks in which both ends' agents tried an arm.
    pub both_probing: u64,
    /// For a plot.
    #[serde(skip)]
    pub trace: Vec<Sample>,
    /// What the controllers decided.
    #[serde(skip)]
    pub events: Vec<Event>,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// s.
    pub at: f64,
    /// In force.
    pub arm: Arm,
    /// Messages offered a second.
    pub rate: f64,
    /// Mean since the sample before, ns.
    pub latency_ns: f64,
}

struct End {
    decider: Decider,
    gauge: Gauge,
    command: Command,
    said: [Command; PEER_DELAY],
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

/// The first change that was not answered yet.
struct Change {
    at: u64,
    since: Option<u64>,
}

/// How long lasting changes of the better arm wait until it is in force.
#[derive(Default)]
struct Settling {
    best_before: Option<Arm>,
    change: Option<Change>,
    settle_s: Vec<f64>,
}

impl Settling {
    /// `arm` was in force, for more than a trial if `decided`; `best` was better by `factor`.
    fn tick(&mut self, tick: u64, (best, factor): (Arm, f64), arm: Arm, decided: bool) {
        let lasting = factor > CLEAR;
        if lasting {
            if self.best_before.is_some_and(|b| b != best) {
                self.change = Some(Change {
                    at: tick,
                    since: None,
                });
            }
            self.best_before = Some(best);
        }
        let Some(change) = &mut self.change else {
            return;
        };
        if decided {
            change.since = (arm == best).then(|| change.since.unwrap_or(tick));
        }
        let since = change.since.filter(|since| tick - since >= FOUND);
        if !lasting {
            self.change = None;
        } else if let Some(since) = since.filter(|_| tick - change.at >= LASTING) {
            self.settle_s.push(seconds_of(since - change.at));
            self.change = None;
        }
    }

    /// A change that was not answered took the rest of the `ticks`.
    fn finish(mut self, ticks: u64) -> Vec<f64> {
        let unanswered = self.change.filter(|change| change.since.is_none());
        if let Some(change) = unanswered.filter(|change| ticks - change.at > LASTING) {
            self.settle_s.push(seconds_of(ticks - change.at));
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
    sample_waited: f64,
    sample_done: f64,
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
    }

    /// The same, for a plot.
    fn sample(&mut self, tick: u64, load: &Load, passed: &Passed, arm: Arm) {
        self.sample_waited += passed.waited;
        self.sample_done += passed.done;
        if tick % PER_SAMPLE == PER_SAMPLE - 1 {
            self.trace.push(Sample {
                at: (tick * TICK) as f64 / 1e9,
                arm,
                rate: load.rate,
                latency_ns: self.sample_waited / self.sample_done.max(1.0),
            });
            (self.sample_waited, self.sample_done) = (0.0, 0.0);
        }
    }

    /// The client's end gets another command.
    fn command(&mut self, before: &Command, now: &Command, app_setting: Arm) {
        let arm = |command: &Command| command.arm.unwrap_or(app_setting);
        self.switches += u64::from(arm(now) != arm(before));
        self.probes += u64::from(now.probing && !before.probing);
        self.sensing += u64::from(now.sensing);
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
            trace: self.trace,
            ..Outcome::default()
        }
    }
}

/// Runs a policy. `traced`: with samples for a plot.
pub fn run(scenario: &Scenario, kind: Kind, aim: Aim, seed: u64, traced: bool) -> Outcome {
    let app_setting = scenario.app_setting;
    let idle = Command {
        arm: None,
        sensing: true,
        probing: false,
        pulse: false,
    };
    let end = |kind, side, seed| End {
        decider: Decider::new(kind, aim, side, app_setting, seed),
        gauge: Gauge::new(seed),
        command: idle,
        said: [idle; PEER_DELAY],
    };
    let mut ends = vec![end(kind, Side::Client, seed)];
    if scenario.two_ends {
        ends.push(end(kind, Side::Server, seed ^ 1));
    }
    let mut weather = Weather::new(scenario.noise, seed ^ 0x5eed);
    let mut offers = scenario.pattern.start(seed);
    let mut world = World::default();
    let mut tally = Tally::default();
    let mut events = Vec::new();
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
        if traced {
            tally.sample(tick, &load, &passed, arm);
        }
        let heard: Vec<_> = ends.iter().map(|e| e.said[0]).collect();
        let mut trying = 0;
        for (index, end) in ends.iter_mut().enumerate() {
            end.gauge.add(&passed);
            let peer = heard
                .get(1 - index.min(1))
                .filter(|_| scenario.two_ends)
                .map(|c| Peer {
                    arm: c.arm.unwrap_or(app_setting),
                    probing: c.probing,
                });
            let vitals = Vitals {
                now: now + TICK,
                connections: 10,
                wish: app_setting,
                bytes: passed.bytes as u64,
                outstanding: passed.outstanding as u64,
                retransmits: passed.retransmits,
                rtt: load.costs.rtt as u64,
                quick: end.command.sensing.then(|| passed.quick()),
                peer,
            };
            let oracle = (kind == Kind::Oracle).then(|| {
                let costs = if index == 0 {
                    load.costs
                } else {
                    load.back.unwrap_or(load.costs)
                };
                if world.is_behind() {
                    costs.quicker(load.rate)
                } else {
                    costs.better(load.rate).0
                }
            });
            let command = end.decider.tick(&vitals, &mut end.gauge, oracle);
            if index == 0 {
                tally.command(&end.command, &command, app_setting);
            }
            trying += u64::from(command.probing);
            end.command = command;
            end.said.rotate_left(1);
            end.said[PEER_DELAY - 1] = command;
            events.extend(end.decider.events());
        }
        both_probing += u64::from(trying > 1);
    }
    Outcome {
        both_probing,
        events,
        ..tally.finish(ticks, scenario.seconds)
    }
}
