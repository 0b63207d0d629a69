//! A service that is tuned: from the readings of its connections to what its controller is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use batchwise_bpf::{Connection, Control, PeerState};
use batchwise_core::sense::report::{Side, Unit};
use batchwise_core::sense::sample::{Flow, Sample};
use batchwise_core::sense::service::ServiceSum;
use batchwise_core::sense::wire::{Item, Queue};
use batchwise_core::sense::{hint, queue};
use batchwise_core::tune::{
    Arm, Command, Event, Happened, Measurement, Meter, Peer, Quick, Vitals,
};

use super::decider::Decider;

/// An agent that said that it is probing, and then nothing for this long, no longer is.
const PEER_PROBES: u64 = 500_000_000;

/// One connection, as it was at the last tick.
struct Seen {
    bytes: u64,
    outstanding: u32,
    retransmits: u32,
    rtt: u64,
    netns: u32,
    nagle_off: bool,
    wish_off: bool,
    exchanges: bool,
    peer: Option<PeerState>,
    /// Its counters, when they are current.
    sample: Option<Sample>,
    /// As they were when the window began.
    anchor: Option<Sample>,
    here: bool,
}

/// The window that is being measured: what connections moved since it began.
struct Window {
    side: Side,
    since: u64,
    now: u64,
    connections: HashMap<u64, Seen>,
    /// Of connections that closed since.
    closed: Vec<Flow>,
    /// What the applications said of their own requests since.
    hint: queue::Window,
}

/// Who decides for a service, and what feeds it.
pub struct Service {
    decider: Decider,
    window: Window,
    /// The epoch that counts, while queues are being counted.
    epoch: Option<u32>,
    vitals: Vitals,
    control: Option<Control>,
    /// How often the arm in force was changed.
    switches: u64,
    trials: Trials,
    last_seen: Instant,
}

/// How trials have ended so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trials {
    pub adopted: u64,
    pub kept: u64,
    pub aborted: u64,
    pub yielded: u64,
}

fn arm(nagle_off: bool) -> Arm {
    if nagle_off { Arm::Off } else { Arm::On }
}

impl Service {
    pub fn new(decider: Decider, side: Side, now: u64, epoch: Option<u32>) -> Self {
        let mut service = Self {
            decider,
            window: Window {
                side,
                since: now,
                now,
                connections: HashMap::new(),
                closed: Vec::new(),
                hint: queue::Window::default(),
            },
            epoch,
            vitals: nothing(now),
            control: None,
            switches: 0,
            trials: Trials::default(),
            last_seen: Instant::now(),
        };
        service.begin_tick(now, epoch);
        service
    }

    /// A new look at all connections begins.
    pub fn begin_tick(&mut self, now: u64, epoch: Option<u32>) {
        self.epoch = epoch;
        self.window.now = now;
        self.vitals = nothing(now);
        for seen in self.window.connections.values_mut() {
            seen.here = false;
        }
    }

    /// A connection of the service.
    pub fn see(&mut self, c: &Connection) {
        let current = self.epoch == Some(c.epoch);
        let sample = current.then_some(c.sample);
        let since = self.window.since;
        let seen = self.window.connections.entry(c.cookie).or_insert(Seen {
            // what it did before we knew it is nobody's tick
            bytes: c.vitals.bytes,
            outstanding: 0,
            retransmits: c.vitals.retransmits,
            rtt: 0,
            netns: c.netns,
            nagle_off: c.nagle_off,
            wish_off: c.app_setting_off,
            exchanges: c.exchanges,
            peer: None,
            sample: None,
            anchor: (c.born >= since).then(|| Sample::birth(c.born)),
            here: true,
        });
        self.vitals.bytes += c.vitals.bytes.saturating_sub(seen.bytes);
        let again = c.vitals.retransmits.saturating_sub(seen.retransmits);
        self.vitals.retransmits += u64::from(again);
        if let (Some(now), Some(then)) = (&sample, &seen.sample) {
            let flow = now.since(then);
            let (out, unread) = (
                flow.here(Item::Calls, Queue::Unacked),
                flow.here(Item::Calls, Queue::Unread),
            );
            self.vitals.quick.get_or_insert_default().add(&Quick {
                waited: out.integral as f64 + unread.integral as f64,
                done: out.total,
            });
        }
        if sample.is_none() {
            seen.anchor = None;
        } else if seen.anchor.is_none() {
            seen.anchor = sample;
        }
        seen.sample = sample;
        seen.bytes = c.vitals.bytes;
        seen.outstanding = c.vitals.outstanding;
        seen.retransmits = c.vitals.retransmits;
        seen.rtt = c.vitals.rtt;
        (seen.nagle_off, seen.wish_off) = (c.nagle_off, c.app_setting_off);
        seen.exchanges = c.exchanges;
        seen.peer = c.peer;
        seen.here = true;
    }

    /// A connection has ended; [`Self::see`] saw it for the last time before.
    pub fn close(&mut self, cookie: u64) {
        let seen = self.window.connections.remove(&cookie);
        if let Some((now, then)) = seen.and_then(|s| s.sample.zip(s.anchor)) {
            self.window.closed.push(now.since(&then));
        }
    }

    /// What the applications said of their own requests in this tick: all there is to know.
    pub fn hear(&mut self, hint: &queue::Window) {
        self.window.hint.add(hint);
        self.vitals.quick = Some(Quick {
            waited: hint.integral as f64,
            done: hint.total,
        });
    }

    /// All connections were seen: decides.
    pub fn end_tick(&mut self) -> Command {
        self.window.connections.retain(|_, seen| seen.here);
        let all = &self.window.connections;
        let n = all.len() as u64;
        if n > 0 {
            self.last_seen = Instant::now();
        }
        self.vitals.connections = n;
        self.vitals.outstanding = all.values().map(|s| u64::from(s.outstanding)).sum();
        self.vitals.rtt = all.values().map(|s| s.rtt).sum::<u64>() / n.max(1);
        let wishes_off = all.values().filter(|s| s.wish_off).count() as u64;
        self.vitals.wish = match n {
            0 => self.decider.wish(),
            _ => arm(2 * wishes_off > n),
        };
        self.vitals.peer = peer(all.values(), self.vitals.now);
        self.decider.tick(&self.vitals, &mut self.window)
    }

    /// What was decided since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        let events = self.decider.events();
        for event in &events {
            match event.happened {
                Happened::Adopt => self.trials.adopted += 1,
                Happened::Keep => self.trials.kept += 1,
                Happened::Abort => self.trials.aborted += 1,
                Happened::Yield => self.trials.yielded += 1,
                _ => {}
            }
        }
        events
    }

    /// How trials have ended so far.
    pub fn trials(&self) -> Trials {
        self.trials
    }

    /// How often the agent has changed the arm in force.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// What the sockets are set to: what was decided or is held, or else what most of the
    /// applications asked for.
    pub fn in_force(&self) -> Arm {
        let decided = self.control.and_then(|c| c.arm);
        decided.unwrap_or(self.decider.wish())
    }

    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    /// What was last written for the kernel.
    pub fn control(&self) -> Option<Control> {
        self.control
    }

    pub fn set_control(&mut self, control: Control) {
        let before = self.in_force();
        self.control = Some(control);
        self.switches += u64::from(self.in_force() != before);
    }

    /// Whether a socket is not as it should be: opened, or changed by its application, since.
    pub fn has_stragglers(&self) -> bool {
        let decided = self.control.and_then(|c| c.arm);
        let off = |s: &Seen| decided.map_or(s.wish_off, |a| a == Arm::Off);
        self.window
            .connections
            .values()
            .any(|s| s.nagle_off != off(s))
    }

    /// Where its sockets are.
    pub fn namespaces(&self) -> impl Iterator<Item = u32> + '_ {
        self.window.connections.values().map(|s| s.netns)
    }

    pub fn connections(&self) -> usize {
        self.window.connections.len()
    }

    pub fn idle_for(&self) -> Duration {
        self.last_seen.elapsed()
    }
}

fn nothing(now: u64) -> Vitals {
    Vitals {
        now,
        connections: 0,
        wish: Arm::On,
        bytes: 0,
        outstanding: 0,
        retransmits: 0,
        rtt: 0,
        quick: None,
        peer: None,
    }
}

/// The peers' agents as one: the last that spoke has the arm, any may be probing.
fn peer<'a>(all: impl Iterator<Item = &'a Seen>, now: u64) -> Option<Peer> {
    let states: Vec<PeerState> = all.filter_map(|s| s.peer).collect();
    let last = states.iter().max_by_key(|p| p.at)?;
    Some(Peer {
        arm: arm(last.state.nagle_off),
        probing: states
            .iter()
            .any(|p| p.state.probing && now.saturating_sub(p.at) < PEER_PROBES),
    })
}

impl Meter for Window {
    fn restart(&mut self) {
        self.since = self.now;
        self.closed.clear();
        self.hint = queue::Window::default();
        for seen in self.connections.values_mut() {
            seen.anchor = seen.sample;
        }
    }

    fn measure(&mut self) -> Option<Measurement> {
        let interval = self.now.saturating_sub(self.since).max(1);
        let mut sum = ServiceSum::new(Unit::Sends, self.side, interval);
        let open = self
            .connections
            .values()
            .filter_map(|s| Some(s.sample?.since(&s.anchor?)));
        let mut bytes = 0;
        for flow in open.chain(self.closed.iter().copied()) {
            sum.add(&flow);
            let passed = |queue| flow.here(Item::Bytes, queue).total;
            bytes += passed(Queue::Unacked) + passed(Queue::Unread);
        }
        let hint = hint::estimate(&self.hint, interval);
        let e = hint.unwrap_or_else(|| sum.estimate());
        let messages = e.throughput * interval as f64 / 1e9;
        (messages > 0.0).then_some(())?;
        Some(Measurement {
            latency: e.latency.total? as f64,
            throughput: e.throughput,
            message_bytes: bytes as f64 / messages,
            confidence: e.confidence,
        })
    }
}

/// How a service is named in logs.
pub fn name(server: SocketAddr, side: Side) -> String {
    match side {
        Side::Server => format!("{server} (server)"),
        Side::Client => format!("{server} (client)"),
    }
}
