//! The world by short ticks: what the closed form gives, plus a backlog (as a fluid) beyond
//! capacity, noise that multiplies, and a machine that is taken away now and then.

use batchwise_core::tune::Arm;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1, StandardNormal};

use super::costs::{Costs, Outcome};

/// Short against a slice of a test, ns.
pub const TICK: u64 = 1_000_000;

/// Bytes that TCP takes from an application beyond what is under way; the rest waits inside it.
const SEND_BUFFER: f64 = 2.5e6;
/// Fewer messages a tick than this come one by one.
const FEW: f64 = 12.5;

/// How quiet the machine is.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// Of ln(latency) and ln(capacity).
    pub spread: f64,
    /// How much of it is left 4 ms later.
    pub persistence: f64,
    /// Times a second that nothing runs for 5 to 20 ms.
    pub stalls: f64,
}

impl Noise {
    /// A shared virtual machine.
    pub const SHARED: Self = Self {
        spread: 0.15,
        persistence: 0.8,
        stalls: 0.1,
    };
    /// Bursts of noise and a stall every other second.
    pub const BURSTS: Self = Self {
        spread: 0.5,
        persistence: 0.98,
        stalls: 0.5,
    };
}

/// What is offered during a tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub costs: Costs,
    /// What the server's end adds to it: the way of the responses, where its own sockets' arm
    /// counts. `None`: nothing.
    pub back: Option<Costs>,
    /// Messages a second.
    pub rate: f64,
}

impl Load {
    /// Requests of these costs; nobody tunes the server's end.
    pub fn new(costs: Costs, rate: f64) -> Self {
        Self {
            costs,
            back: None,
            rate,
        }
    }

    /// With these arms at the client's and the server's end.
    fn outcome(&self, arms: [Arm; 2]) -> Outcome {
        let there = self.costs.outcome(arms[0], self.rate);
        let Some(back) = self.back.map(|c| c.outcome(arms[1], self.rate)) else {
            return there;
        };
        Outcome {
            latency: there.latency + back.latency,
            capacity: there.capacity.min(back.capacity),
            at_sender: there.at_sender && there.capacity <= back.capacity,
        }
    }
}

/// What passed in a tick, or summed over ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Time that messages waited, the application's own queue included, summed over messages, ns.
    pub waited: f64,
    /// The same within TCP.
    pub seen: f64,
    /// Messages that were answered.
    pub done: f64,
    /// Messages in TCP that are not acknowledged, at the end.
    pub outstanding: f64,
    /// Bytes of the messages that were answered.
    pub bytes: f64,
}

impl Passed {
    /// And what passed in another tick.
    pub fn add(&mut self, next: &Self) {
        self.waited += next.waited;
        self.seen += next.seen;
        self.done += next.done;
        self.outstanding += next.outstanding;
        self.bytes += next.bytes;
    }
}

/// What surrounds the policies: the same for each of them, whatever they do.
pub struct Weather {
    noise: Noise,
    rng: StdRng,
    level: f64,
    stall_left: f64,
    next_stall: f64,
}

/// The weather of one tick.
#[derive(Clone, Copy, Debug)]
pub struct Sky {
    /// Multiplies latency and service times.
    factor: f64,
    /// The part of the tick in which nothing runs.
    stalled: f64,
    /// Standard normal, for arrivals.
    arrivals: f64,
    /// Uniform, for rounding.
    rounding: f64,
}

impl Weather {
    pub fn new(noise: Noise, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let first: f64 = Exp1.sample(&mut rng);
        Self {
            noise,
            rng,
            level: 0.0,
            stall_left: 0.0,
            next_stall: first / noise.stalls * 1e9,
        }
    }

    /// The next tick.
    pub fn tick(&mut self) -> Sky {
        let n = self.noise;
        let shock: f64 = StandardNormal.sample(&mut self.rng);
        let left = n.persistence.powf(TICK as f64 / 4e6);
        let fresh = (1.0 - left * left).sqrt();
        self.level = left * self.level + fresh * shock;
        self.next_stall -= TICK as f64;
        if self.next_stall <= 0.0 {
            let gap: f64 = Exp1.sample(&mut self.rng);
            self.next_stall = gap / n.stalls * 1e9;
            self.stall_left = self.rng.random_range(5e6..20e6);
        }
        let stalled = self.stall_left.min(TICK as f64);
        self.stall_left -= stalled;
        Sky {
            factor: (n.spread * self.level).exp(),
            stalled: stalled / TICK as f64,
            arrivals: StandardNormal.sample(&mut self.rng),
            rounding: self.rng.random(),
        }
    }
}

/// Client, link and server under one policy.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Messages that were offered and not served.
    backlog: f64,
}

impl World {
    /// Whether messages wait for service.
    pub fn is_behind(&self) -> bool {
        self.backlog > 1.0
    }

    /// A tick with these arms at the client's and the server's end.
    pub fn tick(&mut self, load: &Load, arms: [Arm; 2], sky: &Sky) -> Passed {
        let seconds = TICK as f64 / 1e9;
        let outcome = load.outcome(arms);
        let latency = outcome.latency * sky.factor;
        let mean = load.rate * seconds;
        let offered = if mean < FEW {
            // few: whole messages
            (mean + sky.rounding).floor()
        } else {
            (mean + mean.sqrt() * sky.arrivals).max(0.0)
        };
        // capacity suffers less from noise than latency does
        let able = outcome.capacity * sky.factor.powf(-0.2) * seconds * (1.0 - sky.stalled);
        let before = self.backlog;
        let done = (before + offered).min(able);
        self.backlog = before + offered - done;
        let queued = (before + self.backlog) / 2.0;
        let bytes = load.costs.bytes;
        let buffer = match outcome.at_sender {
            true => 0.0,
            false => SEND_BUFFER / bytes,
        };
        Passed {
            waited: latency * done + queued * TICK as f64,
            seen: latency * done + queued.min(buffer) * TICK as f64,
            done,
            outstanding: self.backlog.min(buffer) + (latency * load.rate / 1e9).floor(),
            bytes: done * (bytes + 5.0),
        }
    }
}
