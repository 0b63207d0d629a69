//! The network: senders with links of their own, routers in series, receivers; answers come back
//! after a constant time and are not lost. Discrete events, in ns; the same seed gives the same run.

mod events;
mod host;
mod source;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::discipline::{self, Discipline};
use super::packet::{Ack, Kind, Packet};
use super::tcp::DELAYED_ACK;
use events::{Event, Events};
use host::{Host, Link};

pub use host::{FlowSpec, Marks, Start};
use source::Source;
pub use source::SourceSpec;

/// A router's way out.
#[derive(Clone, Copy, Debug)]
pub struct HopSpec {
    pub queue: discipline::Spec,
    /// Of the link, bits a second and ns.
    pub rate: u64,
    pub delay: u64,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// In series; each flow enters at one and goes through all the rest.
    pub hops: Vec<HopSpec>,
    /// Of each sender's own link, bits a second and ns.
    pub access_rate: u64,
    pub access_delay: u64,
    pub flows: Vec<FlowSpec>,
    pub sources: Vec<SourceSpec>,
    /// Segments that arrive from then on are counted, ns.
    pub count_from: u64,
    /// The end, ns, at the latest.
    pub until: u64,
}

/// What became of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// From the SYN to the arrival of the last segment, ns; of one that is not complete, to the end.
    /// `None`: it did not begin, or has no end.
    pub took: Option<u64>,
    pub is_complete: bool,
    /// Payload that arrived for the first time while it was counted, segments.
    pub arrived: u64,
}

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub flows: Vec<Outcome>,
    /// Packets, at all hops.
    pub dropped: u64,
}

struct Hop {
    queue: Box<dyn Discipline>,
    spec: HopSpec,
    is_sending: bool,
}

struct Network<'a> {
    spec: &'a Spec,
    events: Events,
    hops: Vec<Hop>,
    hosts: Vec<Host>,
    sources: Vec<Source>,
    open: usize,
}

/// Simulates.
pub fn run(spec: &Spec, seed: u64) -> Outcomes {
    let mut rng = StdRng::seed_from_u64(seed);
    let hop = |spec: &HopSpec| Hop {
        queue: spec.queue.build(seed ^ 0xa9),
        spec: *spec,
        is_sending: false,
    };
    let hops = spec.hops.iter().map(hop).collect();
    let hosts = spec
        .flows
        .iter()
        .map(|f| Host::new(f, rng.random()))
        .collect();
    let sources = spec.sources.iter().map(|_| Source::new(rng.random()));
    let network = Network {
        spec,
        events: Events::default(),
        hops,
        hosts,
        sources: sources.collect(),
        open: spec.flows.iter().filter(|f| f.total.is_some()).count(),
    };
    network.run()
}

impl Network<'_> {
    fn run(mut self) -> Outcomes {
        for (flow, spec) in self.spec.flows.iter().enumerate() {
            if let Start::At(at) = spec.start {
                self.events.at(at, Event::Begin(flow));
            }
        }
        for (index, source) in self.spec.sources.iter().enumerate() {
            self.events.at(source.start, Event::Emit(index));
        }
        let only_finite = self.spec.flows.iter().all(|f| f.total.is_some());
        while let Some((now, event)) = self.events.next() {
            if now > self.spec.until || only_finite && self.open == 0 {
                break;
            }
            self.happen(now, event);
        }
        Outcomes {
            flows: self.hosts.iter().map(|h| h.outcome).collect(),
            dropped: self.hops.iter().map(|h| h.queue.dropped()).sum(),
        }
    }

    fn happen(&mut self, now: u64, event: Event) {
        match event {
            Event::Begin(flow) => {
                self.hosts[flow].began = now;
                let has_end = self.spec.flows[flow].total.is_some();
                self.hosts[flow].outcome.took =
                    has_end.then(|| self.spec.until.saturating_sub(now));
                self.act(now, flow);
            }
            Event::Emit(index) => self.emit(now, index),
            Event::Arrive(hop, packet) => {
                self.hops[hop].queue.enqueue(now, packet);
                self.send_next(now, hop);
            }
            Event::Free(hop) => {
                self.hops[hop].is_sending = false;
                self.send_next(now, hop);
            }
            Event::Deliver(packet) => self.deliver(now, packet),
            Event::Late(flow) => {
                if let Some(ack) = self.hosts[flow].late(now) {
                    self.answer(now, flow, Some(ack));
                }
            }
            Event::Answer(flow, ack) => {
                let sender = &mut self.hosts[flow].sender;
                match ack {
                    None => sender.open(now),
                    Some(ack) => sender.acknowledge(now, ack),
                }
                self.act(now, flow);
            }
            Event::Wake(flow) => {
                let host = &mut self.hosts[flow];
                host.wakes_at = host.wakes_at.filter(|&at| at != now);
                if host.sender.deadline().is_some_and(|at| at <= now) {
                    host.sender.wake(now);
                }
                self.act(now, flow);
            }
        }
    }

    /// Lets a flow send what it may, and wakes it in time.
    fn act(&mut self, now: u64, flow: usize) {
        let (spec, host) = (&self.spec.flows[flow], &mut self.hosts[flow]);
        if !host.sender.is_done() {
            for packet in host.send(now, spec, flow as u32) {
                let at = host.link.pass(now, packet.bytes, self.spec.access_rate);
                let event = Event::Arrive(spec.enters, packet);
                self.events.at(at + self.spec.access_delay, event);
            }
        }
        let Some(deadline) = host.sender.deadline() else {
            return;
        };
        let deadline = deadline.max(now + 1);
        if host.wakes_at.is_none_or(|at| deadline < at) {
            host.wakes_at = Some(deadline);
            self.events.at(deadline, Event::Wake(flow));
        }
    }

    fn emit(&mut self, now: u64, index: usize) {
        let (spec, source) = (&self.spec.sources[index], &mut self.sources[index]);
        for packet in source.emit(spec, self.spec.flows.len() + index) {
            let at = source.link.pass(now, packet.bytes, self.spec.access_rate);
            self.events
                .at(at + self.spec.access_delay, Event::Arrive(0, packet));
        }
        self.events.at(now + spec.gap, Event::Emit(index));
    }

    fn send_next(&mut self, now: u64, index: usize) {
        let hop = &mut self.hops[index];
        if hop.is_sending {
            return;
        }
        let Some(packet) = hop.queue.dequeue(now) else {
            return;
        };
        hop.is_sending = true;
        let (mut link, HopSpec { rate, delay, .. }) = (Link::default(), hop.spec);
        let sent = link.pass(now, packet.bytes, rate);
        self.events.at(sent, Event::Free(index));
        let next = match index + 1 < self.hops.len() {
            true => Event::Arrive(index + 1, packet),
            false => Event::Deliver(packet),
        };
        self.events.at(sent + delay, next);
    }

    fn deliver(&mut self, now: u64, packet: Packet) {
        let flow = packet.flow as usize;
        let ack = match packet.kind {
            Kind::Noise => return,
            Kind::Syn => None,
            Kind::Data(seq) => {
                let spec = &self.spec.flows[flow];
                let host = &mut self.hosts[flow];
                let (is_new, ack) = host.receiver.arrives(seq);
                if is_new && now >= self.spec.count_from {
                    host.outcome.arrived += 1;
                }
                if is_new && spec.total == Some(host.receiver.upto()) {
                    host.outcome.took = Some(now - host.began);
                    host.outcome.is_complete = true;
                    self.completed(now, flow);
                }
                if ack.is_none() {
                    let at = now + DELAYED_ACK;
                    self.hosts[flow].late_at = at;
                    self.events.at(at, Event::Late(flow));
                    return;
                }
                ack
            }
        };
        self.answer(now, flow, ack);
    }

    fn answer(&mut self, now: u64, flow: usize, ack: Option<Ack>) {
        let enters = self.spec.flows[flow].enters;
        let delays = self.spec.hops[enters..].iter().map(|h| h.delay);
        let back = delays.sum::<u64>() + self.spec.access_delay;
        self.events.at(now + back, Event::Answer(flow, ack));
    }

    /// Starts the flows that waited for this one and its like.
    fn completed(&mut self, now: u64, flow: usize) {
        self.open -= 1;
        let group = self.spec.flows[flow].group;
        let is_open = |(spec, host): (&FlowSpec, &Host)| {
            spec.group == group && spec.total.is_some() && !host.outcome.is_complete
        };
        if self.spec.flows.iter().zip(&self.hosts).any(is_open) {
            return;
        }
        for (next, spec) in self.spec.flows.iter().enumerate() {
            if spec.start == Start::After(group) {
                self.events.at(now, Event::Begin(next));
            }
        }
    }
}
