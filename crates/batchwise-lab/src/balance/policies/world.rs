//! Clients, servers and a balancer in virtual time. Servers share their CPU among the requests that
//! they have; connections carry pages of requests and then close; only new connections are steered.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use batchwise_core::balance::maglev::{self, BackendId, Member};
use batchwise_core::balance::{Observation, Observed, UNIT, standardise};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1, Geometric, LogNormal};

use super::deciders::{Decider, Kind};
use super::scenarios::{CAPACITY, IN_FLIGHT, PAGE, Scenario};
use crate::stats::quantile;

/// Slots of the simulated tables: fewer than real ones, so that hours take minutes.
const SLOTS: usize = 2003;
/// Spread of the estimator's error.
const ERROR: f64 = 0.1;
/// Odd: makes a second hash of a connection's.
const OTHER: u64 = 0x9e37_79b1;
const BASE: u32 = 100;
/// An error is answered in this share of a request's work.
const QUICK: f64 = 0.02;

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Latency of each good response after the first tenth of the time, s.
    pub latencies: Vec<f32>,
    pub failed: u64,
    /// Shares of the table at each decision: time and by server.
    pub shares: Vec<(f64, Vec<f64>)>,
}

impl Outcome {
    /// A quantile of the latencies, ms.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        let all: Vec<f64> = self.latencies.iter().map(|l| f64::from(*l) * 1e3).collect();
        quantile(&all, q).unwrap_or(f64::NAN)
    }
}

enum Event {
    Open,
    /// A connection sends so many requests.
    Send(usize, u32),
    /// A server has this share of a CPU.
    Share(usize, f64),
    Decide,
}

struct Connection {
    server: usize,
    group: usize,
    pages: u64,
    unsent: u32,
    in_flight: u32,
}

#[derive(Default)]
struct Queue {
    share: f64,
    /// Work that each request would have had since the begin.
    served: f64,
    /// When it will have had enough (bits of a positive float), whose it is, when it came.
    requests: BinaryHeap<Reverse<(u64, usize, u64)>>,
    connections: u64,
}

impl Queue {
    fn next(&self, now: f64) -> f64 {
        let Some(Reverse((due, ..))) = self.requests.peek() else {
            return f64::INFINITY;
        };
        now + (f64::from_bits(*due) - self.served).max(0.0) * self.requests.len() as f64
            / self.speed()
    }

    fn speed(&self) -> f64 {
        self.share * CAPACITY
    }

    /// Connections that wait for an answer.
    fn busy(&self) -> u64 {
        let waiting = self.requests.iter().map(|Reverse((_, c, _))| *c);
        waiting.collect::<BTreeSet<_>>().len() as u64
    }

    fn advance(&mut self, by: f64) {
        if !self.requests.is_empty() {
            self.served += by * self.speed() / self.requests.len() as f64;
        }
    }
}

struct World<'a> {
    scenario: &'a Scenario,
    kind: Kind,
    /// Time between decisions, s.
    interval: f64,
    decider: Decider,
    rng: StdRng,
    now: f64,
    /// By when they happen (bits of a positive float), then in the order in which they were scheduled.
    events: BTreeMap<(u64, usize), Event>,
    scheduled: usize,
    queues: Vec<Queue>,
    connections: Vec<Connection>,
    table: Vec<BackendId>,
    weights: Vec<u32>,
    /// Servers whose latencies are not believed: their few connections are no reason to choose them.
    doubted: Vec<bool>,
    /// By clients' group and server: responses, and the sum of their latencies.
    measured: BTreeMap<(usize, usize), (u64, f64)>,
    /// Server and connection of what was measured.
    flows: BTreeSet<(usize, usize)>,
    outcome: Outcome,
}

/// Simulates a scenario with a decision each `interval` (s). `seed`: of clients' draws, which no
/// policy changes.
pub fn simulate(scenario: &Scenario, kind: Kind, interval: f64, seed: u64) -> Outcome {
    let mut world = World::new(scenario, kind, interval, seed);
    while world.step() {}
    world.outcome
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, kind: Kind, interval: f64, seed: u64) -> Self {
        let mut world = Self {
            scenario,
            kind,
            interval,
            decider: Decider::new(kind),
            rng: StdRng::seed_from_u64(seed),
            now: 0.0,
            events: BTreeMap::new(),
            scheduled: 0,
            queues: scenario.servers.iter().map(|_| Queue::default()).collect(),
            connections: Vec::new(),
            table: Vec::new(),
            weights: vec![BASE * UNIT; scenario.servers.len()],
            doubted: vec![false; scenario.servers.len()],
            measured: BTreeMap::new(),
            flows: BTreeSet::new(),
            outcome: Outcome::default(),
        };
        for (server, s) in scenario.servers.iter().enumerate() {
            for &(at, share) in &s.shares {
                world.at(at, Event::Share(server, share));
            }
        }
        world.refill();
        world.at(0.0, Event::Open);
        world.at(interval, Event::Decide);
        world
    }

    fn at(&mut self, time: f64, event: Event) {
        self.events.insert((time.to_bits(), self.scheduled), event);
        self.scheduled += 1;
    }

    fn step(&mut self) -> bool {
        let next = self.events.first_key_value();
        let event = next.map_or(f64::INFINITY, |((at, _), _)| f64::from_bits(*at));
        let due = self.queues.iter().map(|q| q.next(self.now)).enumerate();
        let first = due.min_by(|a, b| a.1.total_cmp(&b.1));
        let (server, done) = first.unwrap_or((0, f64::INFINITY));
        let until = event.min(done);
        if until >= self.scenario.length {
            return false;
        }
        for queue in &mut self.queues {
            queue.advance(until - self.now);
        }
        self.now = until;
        if done < event {
            self.respond(server);
        } else if let Some((_, event)) = self.events.pop_first() {
            match event {
                Event::Open => self.open(),
                Event::Send(connection, requests) => self.send(connection, requests),
                Event::Share(server, share) => self.queues[server].share = share,
                Event::Decide => self.decide(),
            }
        }
        true
    }

    fn exp(&mut self) -> f64 {
        self.rng.sample(Exp1)
    }

    fn open(&mut self) {
        let s = self.scenario;
        let each = s.pages * f64::from(PAGE);
        let wait = self.exp() * each / s.rate();
        self.at(self.now + wait, Event::Open);
        let group = self.rng.random_range(0..s.groups.len());
        let draw: u32 = self.rng.random();
        let client = s.clients.map(|n| group as u32 * n + draw % n);
        let hash = client.map_or(u64::from(draw), |c| maglev::identity(&c.to_string()) >> 32);
        let Some(server) = self.pick(hash) else {
            return;
        };
        let pages = Geometric::new(1.0 / s.pages).map_or(1, |g| g.sample(&mut self.rng) + 1);
        self.queues[server].connections += 1;
        self.connections.push(Connection {
            server,
            group,
            pages,
            unsent: 0,
            in_flight: 0,
        });
        self.page(self.connections.len() - 1, 0.0);
    }

    fn pick(&mut self, hash: u64) -> Option<usize> {
        let up = |i: &usize| !within(self.scenario.servers[*i].down, self.now);
        if self.kind == Kind::Oracle {
            let load =
                |i: &usize| (self.queues[*i].requests.len() + 1) as f64 / self.queues[*i].share;
            return (0..self.queues.len())
                .filter(up)
                .min_by(|a, b| load(a).total_cmp(&load(b)));
        }
        if self.kind == Kind::Random {
            let up: Vec<usize> = (0..self.queues.len()).filter(up).collect();
            return (!up.is_empty()).then(|| up[self.rng.random_range(0..up.len())]);
        }
        let slot = |hash: u64| self.table[((hash * SLOTS as u64) >> 32) as usize];
        let first = usize::from(slot(hash)).checked_sub(1)?;
        if !self.kind.chooses() {
            return Some(first);
        }
        let other = hash.wrapping_mul(OTHER) & u64::from(u32::MAX);
        let second = usize::from(slot(other)).checked_sub(1)?;
        let busy = |i: usize| (self.queues[i].connections + 1) as f64 / f64::from(self.weights[i]);
        Some(if busy(second) < busy(first) && !self.doubted[second] {
            second
        } else {
            first
        })
    }

    fn page(&mut self, connection: usize, after: f64) {
        let c = &mut self.connections[connection];
        c.pages -= 1;
        c.unsent = PAGE - IN_FLIGHT;
        c.in_flight = IN_FLIGHT;
        let trip = self.scenario.groups[c.group];
        self.at(self.now + after + trip, Event::Send(connection, IN_FLIGHT));
    }

    fn send(&mut self, connection: usize, requests: u32) {
        let server = self.connections[connection].server;
        let fails = within(self.scenario.servers[server].fails, self.now);
        for _ in 0..requests {
            let work = self.exp() * if fails { QUICK } else { 1.0 };
            let queue = &mut self.queues[server];
            let due = (queue.served + work).to_bits();
            queue
                .requests
                .push(Reverse((due, connection, self.now.to_bits())));
        }
    }

    fn respond(&mut self, server: usize) {
        let Some(Reverse((_, connection, came))) = self.queues[server].requests.pop() else {
            return;
        };
        let s = self.scenario;
        let c = &mut self.connections[connection];
        let trip = s.groups[c.group];
        let latency = self.now - f64::from_bits(came) + trip;
        let sum = self.measured.entry((c.group, server)).or_default();
        sum.0 += 1;
        sum.1 += latency;
        self.flows.insert((server, connection));
        if within(s.servers[server].fails, self.now) {
            self.outcome.failed += 1;
        } else if self.now > s.length / 10.0 {
            self.outcome.latencies.push(latency as f32);
        }
        c.in_flight -= 1;
        if c.unsent > 0 {
            c.unsent -= 1;
            c.in_flight += 1;
            self.at(self.now + trip, Event::Send(connection, 1));
        } else if c.in_flight == 0 && c.pages > 0 {
            let think = self.exp() * s.think;
            self.page(connection, think);
        } else if c.in_flight == 0 {
            self.queues[server].connections -= 1;
        }
    }

    fn decide(&mut self) {
        self.at(self.now + self.interval, Event::Decide);
        let error = LogNormal::new(0.0, ERROR).ok();
        let mut observations = Vec::new();
        for ((group, server), (samples, sum)) in std::mem::take(&mut self.measured) {
            let error = error.map_or(1.0, |e| e.sample(&mut self.rng));
            observations.push(Observation {
                group: group as u64,
                backend: server as BackendId + 1,
                samples,
                latency_ns: sum / samples as f64 * 1e9 * error,
            });
        }
        // The paper does not say how to compare clients of different distance.
        let mut latency: BTreeMap<BackendId, (u64, f64)> = BTreeMap::new();
        if self.kind.is_aware() {
            let all = standardise(&observations);
            latency.extend(all.iter().map(|s| (s.backend, (s.samples, s.latency_ns))));
        } else {
            for o in &observations {
                let sum = latency.entry(o.backend).or_default();
                sum.1 = (sum.1 * sum.0 as f64 + o.latency_ns * o.samples as f64)
                    / (sum.0 + o.samples) as f64;
                sum.0 += o.samples;
            }
        }
        let flows = std::mem::take(&mut self.flows);
        let flows = |server| flows.range((server, 0)..(server + 1, 0)).count() as u64;
        let observed = (1..).zip(&self.queues).map(|(id, queue)| Observed {
            id,
            base: BASE,
            serving: !within(self.scenario.servers[usize::from(id) - 1].down, self.now),
            latency_ns: latency.get(&id).map(|l| l.1),
            samples: latency.get(&id).map_or(0, |l| l.0),
            connections: queue.connections,
            busy: queue.busy(),
            confirmed: false,
            flows: flows(usize::from(id) - 1),
        });
        let observed: Vec<Observed> = observed.collect();
        let weights: Vec<u32>;
        (weights, self.doubted) = self.decider.step(&observed).into_iter().unzip();
        if weights != self.weights {
            self.weights = weights;
            self.refill();
        }
        let weights = self.weights.iter().map(|w| f64::from(*w));
        let all = weights.clone().sum::<f64>().max(1.0);
        let shares = weights.map(|w| w / all).collect();
        self.outcome.shares.push((self.now, shares));
    }

    fn refill(&mut self) {
        let member = |(id, &weight)| Member {
            id,
            identity: identity(id),
            weight,
        };
        let members: Vec<Member> = (1..).zip(&self.weights).map(member).collect();
        self.table = maglev::fill(&members, SLOTS);
    }
}

fn identity(id: BackendId) -> u64 {
    maglev::identity(&format!("server {id}"))
}

fn within(span: Option<(f64, f64)>, now: f64) -> bool {
    span.is_some_and(|(from, to)| (from..to).contains(&now))
}
