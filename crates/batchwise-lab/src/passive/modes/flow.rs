//! A client's requests in virtual time: what a vantage point before the server sees of them, and how
//! long each response really took.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use batchwise_core::passive::stream::Segment;
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};

/// How requests depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// One in flight.
    Single,
    /// One to four at once; the next ones follow the last response.
    Burst,
    /// Pages: one request, its response triggers six more, at most four in flight.
    Tree,
    /// One in flight, ten full packets and a rest each.
    Upload,
    /// Bursts of requests of one to three packets.
    Multi,
    /// Four in flight, each response triggers a request: nobody pauses.
    Window,
}

impl Shape {
    pub fn packets_a_batch(self) -> usize {
        match self {
            Self::Single | Self::Window => 1,
            Self::Tree => 2,
            Self::Burst => 3,
            Self::Multi => 5,
            Self::Upload => 11,
        }
    }
}

/// How long responses take, relative to their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    Constant,
    /// With this sigma.
    LogNormal(f64),
    /// One in five takes ten times as long.
    Bimodal,
    /// One in twenty takes twenty times as long.
    Tail,
    /// Half to double and back, slowly.
    Drift,
    /// Three times as long from half-time on.
    Step,
}

/// How long the client thinks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    None,
    /// 5 us on average before each batch.
    Micros,
    /// Before one batch in ten, this many mean latencies.
    Times(f64),
    /// Before one batch in ten, 0.2 to 2 s.
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Clean,
    /// Loses one request in a hundred: half of them before the vantage point. RTO 200 ms.
    Loss,
    /// Delays one packet in four so that the next overtakes it.
    Reorder,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    pub shape: Shape,
    pub spread: Spread,
    /// Mean latency, ns.
    pub scale: f64,
    pub think: Think,
    pub path: Path,
    /// Gaps inside bursts vary by this share.
    pub jitter: f64,
    /// Gaps in an epoch.
    pub gaps: u32,
}

/// A packet that the client sent.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// ns, at the vantage point.
    pub at: f64,
    /// Its header; a pure ACK has no payload.
    pub header: Segment,
    /// Whether it came as far as the vantage point.
    seen: bool,
}

/// A request whose packets were not lost.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// ns.
    pub sent: f64,
    /// ns.
    pub latency: f64,
}

#[derive(Debug, Default)]
pub struct Flow {
    /// In the order they pass the vantage point.
    pub packets: Vec<Packet>,
    /// In the order they were sent.
    pub requests: Vec<Request>,
}

const FULL: u32 = 1500;
const SMALL: u32 = 300;
/// What a client needs for a packet, ns.
const SEND_NS: f64 = 4_000.0;
const DELACK_NS: f64 = 40_000_000.0;
const RTO_NS: f64 = 200_000_000.0;

struct World<'a> {
    scenario: &'a Scenario,
    rng: StdRng,
    now: f64,
    length: f64,
    seq: u32,
    responses: u32,
    /// Responses that have come, but wait for the client.
    waiting: u32,
    flow: Flow,
}

/// Simulates a flow of about that many packets.
pub fn simulate(scenario: &Scenario, packets: usize, seed: u64) -> Flow {
    let mut world = World {
        scenario,
        rng: StdRng::seed_from_u64(seed),
        now: 1e9,
        length: packets as f64,
        seq: 0,
        responses: 0,
        waiting: 0,
        flow: Flow::default(),
    };
    while world.flow.packets.len() < packets {
        match scenario.shape {
            Shape::Window => world.in_flight(packets, 4),
            Shape::Tree => {
                world.batch(1);
                world.think();
                world.in_flight(6, 4);
                world.think();
            }
            Shape::Single | Shape::Upload => {
                world.batch(1);
                world.think();
            }
            Shape::Burst | Shape::Multi => {
                let n = world.rng.random_range(1..=4);
                world.batch(n);
                world.think();
            }
        }
    }
    world.observe()
}

impl World<'_> {
    fn factor(&mut self) -> f64 {
        let done = self.flow.packets.len() as f64 / self.length;
        match self.scenario.spread {
            Spread::Constant => 1.0,
            Spread::LogNormal(sigma) => {
                let z: f64 = StandardNormal.sample(&mut self.rng);
                (sigma * z - sigma * sigma / 2.0).exp()
            }
            Spread::Bimodal if self.rng.random_bool(0.2) => 10.0 / 2.8,
            Spread::Bimodal => 1.0 / 2.8,
            Spread::Tail if self.rng.random_bool(0.05) => 20.0 / 1.95,
            Spread::Tail => 1.0 / 1.95,
            Spread::Drift => 2f64.powf((done * 12.0).sin()),
            Spread::Step => 1.0 + 2.0 * f64::from(done > 0.5),
        }
    }

    fn latency(&mut self) -> f64 {
        let jitter = 1.0 + 0.02 * self.rng.random_range(-1.0..1.0);
        self.scenario.scale * self.factor() * jitter
    }

    fn think(&mut self) {
        let seldom = self.rng.random_bool(0.1);
        let e: f64 = Exp1.sample(&mut self.rng);
        let thought = match self.scenario.think {
            Think::None => 0.0,
            Think::Micros => 5_000.0 * e,
            Think::Times(n) if seldom => n * self.scenario.scale * (0.5 + e / 2.0),
            Think::Idle if seldom => 2e8 + 18e8 * self.rng.random::<f64>(),
            Think::Times(_) | Think::Idle => 0.0,
        };
        // every second segment is acknowledged at once, an odd last one after a while
        let delay = if self.rng.random_bool(0.5) {
            0.0
        } else {
            DELACK_NS
        };
        if thought > delay {
            self.send(self.now + delay, 0, 40, true);
        }
        self.now += thought;
    }

    fn send(&mut self, at: f64, len: u32, ip_len: u32, seen: bool) {
        let header = Segment {
            seq: self.seq,
            len,
            ack: (self.responses + self.waiting) * 1_000,
            ip_len,
        };
        self.flow.packets.push(Packet { at, header, seen });
    }

    fn send_gap(&mut self) -> f64 {
        let j = self.scenario.jitter;
        let hiccup = if self.rng.random_bool(j / 20.0) {
            5.0
        } else {
            1.0
        };
        SEND_NS * hiccup * (1.0 + j * self.rng.random_range(-1.0..1.0))
    }

    /// Writes a request's packets from `now` on.
    fn write(&mut self, lost: bool) {
        let full = match self.scenario.shape {
            Shape::Upload => 10,
            Shape::Multi => self.rng.random_range(0..=2),
            _ => 0,
        };
        for i in 0..=full {
            let last = i == full;
            let ip_len = match (last, full) {
                (false, _) => FULL,
                (true, 0) => SMALL + self.rng.random_range(0..200),
                (true, _) => self.rng.random_range(100..1400),
            };
            // lost before the vantage point or after it
            let seen = !(lost && last) || self.rng.random_bool(0.5);
            let len = ip_len - 40;
            self.send(self.now, len, ip_len, seen);
            if lost && last {
                self.send(self.now + RTO_NS, len, ip_len, true);
            }
            self.seq += len;
            self.now += self.send_gap();
        }
    }

    fn lost(&mut self) -> bool {
        self.scenario.path == Path::Loss && self.rng.random_bool(0.01)
    }

    /// `n` requests at once; ends with the last response.
    fn batch(&mut self, n: u32) {
        let shared = self.latency();
        let mut end: f64 = 0.0;
        let mut last = self.now;
        let first = self.flow.requests.len();
        let mut any_lost = false;
        for i in 0..n {
            // only the last can be lost: what follows a hole is told by duplicate acknowledgments
            let lost = i + 1 == n && self.lost();
            any_lost |= lost;
            let sent = self.now;
            self.write(lost);
            last = self.now;
            let answer = last - SEND_NS + shared * (1.0 + 0.05 * self.rng.random::<f64>());
            let answer = if lost { answer + RTO_NS } else { answer };
            let latency = answer - sent;
            self.flow.requests.push(Request { sent, latency });
            end = end.max(answer);
        }
        if any_lost {
            self.flow.requests.truncate(first);
        }
        self.responses += n;
        self.now = end.max(last);
    }

    /// `n` requests, at most `most` in flight, each response triggers the next.
    fn in_flight(&mut self, n: usize, most: usize) {
        let mut open: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        for i in 0..n {
            if i >= most
                && let Some(Reverse(answer)) = open.pop()
            {
                self.responses += 1;
                self.now = self.now.max(answer as f64);
                if self.scenario.shape == Shape::Window {
                    self.think();
                }
            }
            let sent = self.now;
            let come = open.iter().filter(|Reverse(a)| *a as f64 <= sent).count();
            self.waiting = come as u32;
            self.write(false);
            let answer = sent + self.latency();
            open.push(Reverse(answer as u64));
            let latency = answer - sent;
            self.flow.requests.push(Request { sent, latency });
        }
        self.waiting = 0;
        while let Some(Reverse(answer)) = open.pop() {
            self.responses += 1;
            self.now = self.now.max(answer as f64);
        }
    }

    /// Lets the packets pass the vantage point.
    fn observe(mut self) -> Flow {
        if self.scenario.path == Path::Reorder {
            for packet in &mut self.flow.packets {
                if self.rng.random_bool(0.25) {
                    packet.at += 1.5 * SEND_NS;
                }
            }
        }
        self.flow.packets.retain(|p| p.seen);
        self.flow.packets.sort_by(|a, b| a.at.total_cmp(&b.at));
        self.flow
    }
}
