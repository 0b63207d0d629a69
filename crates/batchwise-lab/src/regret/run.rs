//! One policy in one scenario, and what that came to.

use batchwise_core::report::Side;
use batchwise_core::tune::{Arm, Command, Event, Peer, Policy as Aim, Vitals};
use serde::Serialize;

use super::costs::Batching;
use super::policies::{Decider, Kind};
use super::scenarios::Scenario;
use super::world::{Gauge, TICK, Weather, World};

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
    /// What the controllers told.
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
    fn arm(&self, wish: Arm) -> Arm {
        self.command.arm.unwrap_or(wish)
    }

    fn batching(&self, wish: Arm) -> Batching {
        let limited = self.decider.limited();
        limited.unwrap_or_else(|| Batching::Arm(self.arm(wish)))
    }
}

/// The first change that was not answered yet.
struct Change {
    at: u64,
    since: Option<u64>,
}

/// Runs a policy. `traced`: with samples for a plot.
pub fn run(scenario: &Scenario, kind: Kind, aim: Aim, seed: u64, traced: bool) -> Outcome {
    let wish = scenario.wish;
    let idle = Command {
        arm: None,
        sensing: true,
        probing: false,
        pulse: false,
    };
    let end = |kind, side, seed| End {
        decider: Decider::new(kind, aim, side, wish, seed),
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
    let mut out = Outcome::default();
    let (mut done, mut waited, mut window) = (0.0, 0.0, 0.0);
    let (mut wrong, mut switches, mut probes, mut sensing) = (0u64, 0u64, 0u64, 0u64);
    let mut best_before = None;
    let mut change: Option<Change> = None;
    let ticks = (scenario.seconds * 1e9) as u64 / TICK;
    let per_window = (WINDOW_S * 1e9) as u64 / TICK;
    let (mut sample_waited, mut sample_done) = (0.0, 0.0);
    for tick in 0..ticks {
        let now = tick * TICK;
        let load = offers.next(now as f64 / 1e9, ends[0].command.probing);
        let arms = [ends[0].arm(wish), ends.get(1).map_or(wish, |e| e.arm(wish))];
        let here = ends[0].batching(wish);
        let there = ends
            .get(1)
            .map_or(Batching::Arm(wish), |e| e.batching(wish));
        let passed = world.tick(&load, [here, there], &weather.tick());
        (done, waited, window) = (
            done + passed.done,
            waited + passed.waited,
            window + passed.waited,
        );
        if (tick + 1) % per_window == 0 {
            out.windows.push(std::mem::take(&mut window));
        }
        let (best, factor) = load.costs.better(load.rate);
        if factor > ALIKE {
            wrong += u64::from(arms[0] != best);
        }
        let lasting = factor > CLEAR;
        if lasting {
            if best_before.is_some_and(|b| b != best) {
                change = Some(Change {
                    at: tick,
                    since: None,
                });
            }
            best_before = Some(best);
        }
        if let Some(c) = &mut change {
            let decided = !ends[0].command.probing && !ends[0].command.pulse;
            if arms[0] == best && decided {
                c.since = c.since.or(Some(tick));
            } else if arms[0] != best && decided {
                c.since = None;
            }
            if !lasting {
                change = None;
            } else if let Some(since) = c
                .since
                .filter(|s| tick - s >= FOUND && tick - c.at >= LASTING)
            {
                out.settle_s.push((since - c.at) as f64 * TICK as f64 / 1e9);
                change = None;
            }
        }
        if traced {
            (sample_waited, sample_done) =
                (sample_waited + passed.waited, sample_done + passed.done);
            if tick % 5 == 4 {
                out.trace.push(Sample {
                    at: now as f64 / 1e9,
                    arm: arms[0],
                    rate: load.rate,
                    latency_ns: sample_waited / sample_done.max(1.0),
                });
                (sample_waited, sample_done) = (0.0, 0.0);
            }
        }
        let heard: Vec<_> = ends.iter().map(|e| e.said[0]).collect();
        let mut trying = 0;
        for (index, end) in ends.iter_mut().enumerate() {
            end.gauge.add(&passed);
            let peer = heard
                .get(1 - index.min(1))
                .filter(|_| scenario.two_ends)
                .map(|c| Peer {
                    arm: c.arm.unwrap_or(wish),
                    probing: c.probing,
                });
            let vitals = Vitals {
                now: now + TICK,
                connections: 10,
                wish,
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
                switches += u64::from(command.arm.unwrap_or(wish) != end.arm(wish));
                probes += u64::from(command.probing && !end.command.probing);
                sensing += u64::from(command.sensing);
            }
            trying += u64::from(command.probing);
            end.command = command;
            end.said.rotate_left(1);
            end.said[PEER_DELAY - 1] = command;
            out.events.extend(end.decider.events());
        }
        out.both_probing += u64::from(trying > 1);
    }
    if let Some(c) = change.filter(|c| c.since.is_none() && ticks - c.at > LASTING) {
        out.settle_s.push((ticks - c.at) as f64 * TICK as f64 / 1e9);
    }
    let (share, minutes) = (1.0 / ticks as f64, scenario.seconds / 60.0);
    out.latency_ns = waited / done;
    out.throughput_per_s = done / scenario.seconds;
    out.wrong = wrong as f64 * share;
    out.switches_per_min = switches as f64 / minutes;
    out.probes_per_min = probes as f64 / minutes;
    out.sensing = sensing as f64 * share;
    out
}
