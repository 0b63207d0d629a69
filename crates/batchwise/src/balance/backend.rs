//! A backend as the agent knows it: what was seen of it, and what follows for the maps.

use std::time::Instant;

use batchwise_bpf::balance as bpf;
use batchwise_core::balance::report::{BackendLine, Health, State};
use batchwise_core::balance::{UNIT, Why, maglev};
use batchwise_core::passive::report::LatencyQuantiles;
use batchwise_core::passive::server;

use super::config;
use super::health::Checks;
use super::nexthop::NextHop;
use crate::frame::clock::nanos;

/// A backend as the agent knows it.
pub struct Backend {
    pub spec: config::Backend,
    /// Its place in the maps.
    pub index: u16,
    /// What the maps say.
    pub written: bpf::Backend,
    pub drained: bool,
    /// What checks say.
    pub health: Checks,
    /// It served before anything was known of its health: another agent, or nobody, had looked.
    pub trusted: bool,
    /// Where its packets go next, or why they cannot.
    pub way: Result<NextHop, String>,
    /// In force.
    pub weight: u32,
    /// Why.
    pub why: Why,
    /// When the weight last changed, ns since the Unix epoch.
    pub changed_ts_ns: Option<u64>,
    /// A check of its answers passed since the last decision.
    pub confirmed: bool,
    /// Active connections.
    pub connections: Option<u64>,
    /// Connections that wait for an answer.
    pub busy: u64,
    /// In the interval.
    pub grown: bpf::Tally,
    /// Responses of the last interval over connections at its end.
    pub freshness: Option<f64>,
    /// Of the interval that goes on.
    pub sum: server::Server,
    /// Of the last one.
    pub interval: Option<server::Server>,
    /// The last estimate: when, what, and how far to trust it.
    pub known: Option<(Instant, LatencyQuantiles, Option<f64>)>,
}

impl Backend {
    /// One of which nothing was seen yet.
    pub fn new(
        spec: config::Backend,
        index: u16,
        written: bpf::Backend,
        health: Checks,
        way: Result<NextHop, String>,
    ) -> Self {
        Self {
            spec,
            index,
            drained: written.drained,
            weight: written.weight,
            written,
            health,
            trusted: written.state == bpf::State::Serving,
            way,
            why: Why::Steady,
            changed_ts_ns: None,
            confirmed: false,
            connections: None,
            busy: 0,
            grown: bpf::Tally::default(),
            freshness: None,
            sum: server::Server::default(),
            interval: None,
            known: None,
        }
    }

    /// Takes over what is known of it from before a reload.
    pub fn inherit(&mut self, before: Self) {
        let (spec, index, written) = (self.spec.clone(), self.index, self.written);
        let way = self.way.clone();
        let way = way.map(|way| way.remembering(before.way.as_ref().ok()));
        *self = Self {
            spec,
            index,
            written,
            way,
            ..before
        };
    }

    fn reached(&self) -> bool {
        self.way.as_ref().is_ok_and(|way| way.mac.is_some())
    }

    fn drains(&self) -> bool {
        self.drained || self.spec.weight == 0
    }

    /// A check has said that it can serve, and nothing else keeps it from that.
    pub fn proven(&self) -> bool {
        self.health.state() == Health::Up && self.reached() && !self.drains()
    }

    /// What it is to be told; `proven`: another backend of the service has been shown to be able to
    /// serve, so one of which nothing is known need not.
    pub fn state(&self, proven: bool) -> State {
        let healthy = match self.health.state() {
            Health::Up | Health::Unchecked => true,
            Health::Unknown => self.trusted || !proven,
            Health::Down => false,
        };
        if self.drains() {
            State::Draining
        } else if healthy && self.reached() {
            State::Serving
        } else {
            State::Down
        }
    }

    /// What the maps are to say in this state.
    pub fn wanted(&self, service: &config::Service, state: State) -> bpf::Backend {
        let mut wanted = bpf::Backend {
            state: match state {
                State::Serving => bpf::State::Serving,
                State::Draining => bpf::State::Draining,
                State::Down => bpf::State::Down,
            },
            // only the controller's reason, where it decides
            doubted: self.why == Why::Suspicious,
            drained: self.drained,
            identity: maglev::identity(&self.spec.name),
            ..self.written
        };
        // remembered while it does not serve
        if state == State::Serving {
            (wanted.weight, wanted.base_weight) = (self.weight, self.spec.weight);
        }
        if let Ok(way) = &self.way
            && let Some(mac) = way.mac
        {
            wanted.mac = mac;
            wanted.own_mac = way.own_mac;
            wanted.ifindex = way.ifindex;
            wanted.mtu = way.mtu;
            (wanted.source, wanted.source_bits) = match service.tunnel_source {
                Some((prefix, bits)) if way.source.is_ipv4() => (prefix.into(), 32 - bits),
                _ => (way.source, 0),
            };
            wanted.method = service.method;
        }
        wanted
    }

    /// Why it does not serve, in words; or what a check that failed said.
    pub fn health_why(&self, state: State) -> Option<String> {
        match &self.way {
            Err(why) => Some(why.clone()),
            Ok(way) if way.mac.is_none() => {
                Some(format!("{} does not say its MAC address", way.station))
            }
            Ok(_) if self.health.why().is_none() && state == State::Down => {
                Some("no health check has ended yet".to_owned())
            }
            Ok(_) => self.health.why().map(str::to_owned),
        }
    }

    /// What is shown of it; `share`: of the service's slots.
    pub fn line(
        &self,
        service: &str,
        state: State,
        share: f64,
        ts_ns: u64,
        now: Instant,
    ) -> BackendLine {
        let known = self.known.as_ref();
        BackendLine {
            ts_ns,
            service: service.to_owned(),
            backend: self.spec.name.clone(),
            address: self.spec.address.to_string(),
            state,
            health: self.health.state(),
            health_why: self.health_why(state),
            base_weight: self.spec.weight,
            weight: self.weight,
            share,
            connections: self.connections,
            leaves_ns: None,
            opened: self.grown.opened,
            closed: self.grown.closed,
            packets: self.grown.packets,
            bytes: self.grown.bytes,
            latency_ns: known.map(|(_, latency, _)| *latency).unwrap_or_default(),
            samples: self.interval.as_ref().map_or(0, server::Server::batches),
            freshness: self.freshness,
            confidence: known.and_then(|(_, _, confidence)| *confidence),
            age_ns: known.map(|(at, ..)| nanos(now - *at)),
            vantage: "path".to_owned(),
            estimator: "passive".to_owned(),
            why: self.why,
            changed_ts_ns: self.changed_ts_ns,
        }
    }
}

/// What the maps say of a backend of the service with this number before anything is known of it.
pub fn unknown(spec: &config::Backend, method: bpf::Method, service: u16) -> bpf::Backend {
    bpf::Backend {
        address: spec.address,
        source: spec.address,
        source_bits: 0,
        mac: [0; 6],
        own_mac: [0; 6],
        ifindex: 0,
        mtu: 0,
        method,
        state: bpf::State::Down,
        doubted: false,
        drained: false,
        weight: spec.weight.saturating_mul(UNIT),
        base_weight: spec.weight,
        service,
        generation: 0,
        identity: maglev::identity(&spec.name),
    }
}
