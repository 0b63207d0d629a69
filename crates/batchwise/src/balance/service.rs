//! A service as the agent knows it: its backends, what was seen of them, their weights and the
//! table of slots that follows from these.

use std::collections::BTreeMap;
use std::time::Instant;

use batchwise_bpf::balance as bpf;
use batchwise_core::balance::report::{BackendLine, DecisionBackend, DecisionLine, Policy, State};
use batchwise_core::balance::{
    Controller, Member, Observation, Params, SLOTS, Seen, UNIT, Verdict, Why, maglev, standardise,
};
use batchwise_core::passive::report::LatencyQuantiles;
use batchwise_core::passive::{Epoch, server};

use super::config;
use super::health::Health;
use super::nexthop::NextHop;

/// A backend as the agent knows it.
pub struct Backend {
    /// As configured.
    pub spec: config::Backend,
    /// Its place in the maps.
    pub index: u16,
    /// What the maps say.
    pub written: bpf::Backend,
    /// Drained by the operator.
    pub drained: bool,
    /// What checks say.
    pub health: Health,
    /// Where its packets go next, or why they cannot.
    pub way: Result<NextHop, String>,
    /// In force.
    pub weight: u32,
    /// Why.
    pub why: Why,
    /// When the weight last changed, ns since the Unix epoch.
    pub changed_ts_ns: Option<u64>,
    /// A check of its answers passed since the last decision.
    pub vouched: bool,
    /// Active connections.
    pub connections: Option<u64>,
    /// In the interval.
    pub grown: bpf::Tally,
    freshness: Option<f64>,
    sum: server::Server,
    interval: Option<server::Server>,
    known: Option<(Instant, LatencyQuantiles, Option<f64>)>,
}

impl Backend {
    /// One of which nothing was seen yet.
    pub fn new(
        spec: config::Backend,
        index: u16,
        written: bpf::Backend,
        health: Health,
        way: Result<NextHop, String>,
    ) -> Self {
        Self {
            spec,
            index,
            drained: written.drained,
            weight: written.weight,
            written,
            health,
            way,
            why: Why::Steady,
            changed_ts_ns: None,
            vouched: false,
            connections: None,
            grown: bpf::Tally::default(),
            freshness: None,
            sum: server::Server::default(),
            interval: None,
            known: None,
        }
    }

    /// Takes over what is known of it from before a reload.
    pub fn inherit(&mut self, before: Self) {
        let (spec, index, written, way) = (
            self.spec.clone(),
            self.index,
            self.written,
            self.way.clone(),
        );
        *self = Self {
            spec,
            index,
            written,
            way,
            ..before
        };
    }

    /// Whether it may get connections.
    pub fn serving(&self) -> bool {
        self.state() == State::Serving
    }

    /// What it is to be told.
    pub fn state(&self) -> State {
        let reached = self.way.as_ref().is_ok_and(|way| way.mac.is_some());
        if self.drained || self.spec.weight == 0 {
            State::Draining
        } else if self.health.serves() && reached {
            State::Serving
        } else {
            State::Down
        }
    }

    /// What the maps are to say.
    pub fn wanted(&self, method: config::Method) -> bpf::Backend {
        let mut wanted = bpf::Backend {
            state: match self.state() {
                State::Serving => bpf::State::Serving,
                State::Draining => bpf::State::Draining,
                State::Down => bpf::State::Down,
            },
            drained: self.drained,
            identity: maglev::identity(&self.spec.name),
            // remembered while it does not serve
            weight: if self.serving() {
                self.weight
            } else {
                self.written.weight
            },
            ..self.written
        };
        if let Ok(way) = &self.way
            && let Some(mac) = way.mac
        {
            wanted.mac = mac;
            wanted.own_mac = way.own_mac;
            wanted.ifindex = way.ifindex;
            wanted.mtu = way.mtu;
            wanted.source = way.source;
            wanted.method = match method {
                config::Method::L2 => bpf::Method::L2,
                config::Method::Ipip => bpf::Method::Ipip,
            };
        }
        wanted
    }

    /// Why it does not serve, in words; or what a check that failed said.
    fn health_why(&self) -> Option<String> {
        match &self.way {
            Err(why) => Some(why.clone()),
            Ok(way) if way.mac.is_none() => {
                Some(format!("{} does not say its MAC address", way.station))
            }
            Ok(_) => self.health.why().map(str::to_owned),
        }
    }
}

/// A service as the agent knows it.
pub struct Service {
    /// As configured.
    pub spec: config::Service,
    /// Its number in the maps.
    pub number: u16,
    /// What the maps' table says.
    pub ring: Vec<u16>,
    /// In the configuration's order.
    pub backends: Vec<Backend>,
    controller: Controller,
    observed: BTreeMap<(u64, u16), (u64, f64)>,
    standard: BTreeMap<u16, f64>,
    /// What the ring was made from.
    filled: Option<Vec<Member>>,
}

/// What a change of weights comes to.
pub struct Change {
    /// The line of the log.
    pub line: DecisionLine,
    /// Slots to write.
    pub delta: Vec<(u32, u16)>,
}

impl Service {
    /// One whose controller remembers the weights that `backends` had.
    pub fn new(spec: config::Service, number: u16, ring: Vec<u16>, backends: Vec<Backend>) -> Self {
        let mut controller = Controller::new(Params::default());
        for backend in &backends {
            if backend.weight > 0 {
                controller.resume(backend.index, backend.weight);
            }
        }
        Self {
            spec,
            number,
            ring,
            backends,
            controller,
            observed: BTreeMap::new(),
            standard: BTreeMap::new(),
            filled: None,
        }
    }

    /// Keeps the controller's memory over a reload.
    pub fn inherit(&mut self, before: Self) {
        self.controller = before.controller;
        self.observed = before.observed;
        self.standard = before.standard;
        let mut known: BTreeMap<u16, Backend> =
            before.backends.into_iter().map(|b| (b.index, b)).collect();
        for backend in &mut self.backends {
            let rebased = |b: &Backend| b.spec.weight != backend.spec.weight;
            if let Some(before) = known.remove(&backend.index) {
                if rebased(&before) {
                    self.controller
                        .resume(backend.index, backend.spec.weight.saturating_mul(UNIT));
                }
                backend.inherit(before);
            }
        }
    }

    /// An epoch of a connection to the backend at this place closed.
    pub fn epoch(&mut self, at: usize, epoch: &Epoch) {
        let Some(backend) = self.backends.get_mut(at) else {
            return;
        };
        backend.sum.add(epoch);
        let estimate = &epoch.estimate;
        if let (Some(tuple), Some(latency)) = (epoch.tuple, estimate.latency) {
            let group = standardise::group(tuple.client.ip());
            let sum = self.observed.entry((group, backend.index)).or_default();
            let samples = u64::from(estimate.batches);
            sum.0 += samples;
            sum.1 += samples as f64 * latency as f64;
        }
    }

    /// The interval is over: what was seen in it becomes what is known.
    pub fn close_interval(&mut self, now: Instant) {
        let observations: Vec<Observation> = std::mem::take(&mut self.observed)
            .into_iter()
            .filter(|(_, (samples, _))| *samples > 0)
            .map(|((group, backend), (samples, sum))| Observation {
                group,
                backend,
                samples,
                latency_ns: sum / samples as f64,
            })
            .collect();
        let standard = standardise::standardise(&observations);
        self.standard = standard
            .into_iter()
            .map(|s| (s.backend, s.latency_ns))
            .collect();
        for backend in &mut self.backends {
            let sum = std::mem::take(&mut backend.sum);
            if sum.batches() > 0 {
                backend.known = Some((now, sum.latency(), sum.confidence()));
            }
            backend.interval = Some(sum);
        }
    }

    /// Decides at the end of an interval.
    pub fn decide(&mut self, policy: Policy, ts_ns: u64) -> Change {
        let seen: Vec<Seen> = self.backends.iter().map(|b| self.seen(b)).collect();
        for backend in &mut self.backends {
            backend.vouched = false;
        }
        let verdicts = match policy {
            Policy::Static => seen.iter().map(|s| self.configured(s)).collect(),
            Policy::Observe | Policy::Latency => self.controller.step(&seen),
        };
        let line = self.line(policy, ts_ns, &seen, &verdicts);
        match policy {
            Policy::Observe => {
                let members = members(&self.backends, verdicts.iter().map(|v| v.weight));
                let shadow = maglev::fill(&members, SLOTS);
                let moved = maglev::delta(&self.ring, &shadow).len() as u64;
                for (backend, verdict) in self.backends.iter_mut().zip(&verdicts) {
                    backend.freshness = verdict.freshness;
                }
                let applied: Vec<Verdict> = seen.iter().map(|s| self.configured(s)).collect();
                let delta = self.apply(&applied, ts_ns);
                Change {
                    line: DecisionLine {
                        applied: false,
                        moved_slots: moved,
                        ..line
                    },
                    delta,
                }
            }
            Policy::Static | Policy::Latency => {
                let delta = self.apply(&verdicts, ts_ns);
                Change {
                    line: DecisionLine {
                        moved_slots: delta.len() as u64,
                        ..line
                    },
                    delta,
                }
            }
        }
    }

    /// What cannot wait for the interval's end: backends that must not get connections any more,
    /// and, where weights are configured, ones that may again.
    pub fn react(&mut self, policy: Policy, ts_ns: u64) -> Vec<(u32, u16)> {
        let verdicts: Vec<Verdict> = self
            .backends
            .iter()
            .map(|b| {
                let configured = self.configured(&self.seen(b));
                match (policy, b.serving()) {
                    (Policy::Latency, true) => Verdict {
                        weight: b.weight,
                        why: b.why,
                        ..configured
                    },
                    _ => configured,
                }
            })
            .collect();
        self.apply(&verdicts, ts_ns)
    }

    fn seen(&self, backend: &Backend) -> Seen {
        let interval = backend.interval.as_ref();
        Seen {
            id: backend.index,
            identity: maglev::identity(&backend.spec.name),
            base: backend.spec.weight,
            serving: backend.serving(),
            latency_ns: self.standard.get(&backend.index).copied(),
            samples: interval.map_or(0, server::Server::batches),
            connections: backend.connections.unwrap_or(0),
            opened: backend.grown.opened,
            vouched: backend.vouched,
        }
    }

    fn configured(&self, seen: &Seen) -> Verdict {
        let backend = self.backends.iter().find(|b| b.index == seen.id);
        let state = backend.map_or(State::Down, Backend::state);
        let (weight, why) = match state {
            State::Serving => (seen.base.saturating_mul(UNIT), Why::Static),
            State::Draining => (0, Why::Drained),
            State::Down => (0, Why::Down),
        };
        Verdict {
            id: seen.id,
            weight,
            before: backend.map_or(0, |b| b.weight),
            why,
            freshness: None,
        }
    }

    /// Brings weights into force; gives the slots that change.
    fn apply(&mut self, verdicts: &[Verdict], ts_ns: u64) -> Vec<(u32, u16)> {
        for (backend, verdict) in self.backends.iter_mut().zip(verdicts) {
            if backend.weight != verdict.weight {
                backend.weight = verdict.weight;
                backend.changed_ts_ns = Some(ts_ns);
            }
            backend.why = verdict.why;
            backend.freshness = verdict.freshness.or(backend.freshness);
        }
        let weights = verdicts.iter().map(|v| v.weight);
        let members = members(&self.backends, weights);
        if self.filled.as_ref() == Some(&members) {
            return Vec::new();
        }
        let ring = maglev::fill(&members, SLOTS);
        let delta = maglev::delta(&self.ring, &ring);
        self.ring = ring;
        self.filled = Some(members);
        delta
    }

    fn line(
        &self,
        policy: Policy,
        ts_ns: u64,
        seen: &[Seen],
        verdicts: &[Verdict],
    ) -> DecisionLine {
        let of = |((backend, seen), verdict): ((&Backend, &Seen), &Verdict)| DecisionBackend {
            backend: backend.spec.name.clone(),
            latency_ns: seen.latency_ns.map(|ns| ns as u64),
            samples: seen.samples,
            connections: seen.connections,
            freshness: verdict.freshness,
            before: verdict.before,
            after: verdict.weight,
            why: verdict.why,
        };
        DecisionLine {
            ts_ns,
            service: self.spec.name.clone(),
            policy,
            applied: true,
            moved_slots: 0,
            backends: self
                .backends
                .iter()
                .zip(seen)
                .zip(verdicts)
                .map(of)
                .collect(),
        }
    }

    /// What is shown of each backend.
    pub fn lines(&self, ts_ns: u64, now: Instant) -> Vec<BackendLine> {
        let mut slots: BTreeMap<u16, usize> = BTreeMap::new();
        for backend in &self.ring {
            *slots.entry(*backend).or_default() += 1;
        }
        let line = |b: &Backend| {
            let known = b.known.as_ref();
            let owned = slots.get(&b.index).copied().unwrap_or(0);
            BackendLine {
                ts_ns,
                service: self.spec.name.clone(),
                backend: b.spec.name.clone(),
                address: b.spec.address.to_string(),
                state: b.state(),
                health: b.health.state(),
                health_why: b.health_why(),
                base_weight: b.spec.weight,
                weight: b.weight,
                share: owned as f64 / SLOTS as f64,
                connections: b.connections,
                opened: b.grown.opened,
                closed: b.grown.closed,
                packets: b.grown.packets,
                bytes: b.grown.bytes,
                latency_ns: known.map(|(_, latency, _)| *latency).unwrap_or_default(),
                samples: b.interval.as_ref().map_or(0, server::Server::batches),
                freshness: b.freshness,
                confidence: known.and_then(|(_, _, confidence)| *confidence),
                age_ns: known.map(|(at, ..)| crate::passive::nanos(now - *at)),
                vantage: "path".to_owned(),
                estimator: "passive".to_owned(),
                why: b.why,
                changed_ts_ns: b.changed_ts_ns,
            }
        };
        self.backends.iter().map(line).collect()
    }
}

fn members(backends: &[Backend], weights: impl Iterator<Item = u32>) -> Vec<Member> {
    backends
        .iter()
        .zip(weights)
        .map(|(b, weight)| Member {
            id: b.index,
            identity: maglev::identity(&b.spec.name),
            weight,
        })
        .collect()
}
