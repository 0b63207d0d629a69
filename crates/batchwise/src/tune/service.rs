//! A service that is tuned: from what its connections did to what its controller is told.

use std::time::{Duration, Instant};

use batchwise_bpf::{Control, PeerState};
use batchwise_core::sense::period::Period;
use batchwise_core::sense::queue;
use batchwise_core::sense::report::{Side, Unit};
use batchwise_core::sense::tracker::{Stage, TrackedConnection};
use batchwise_core::sense::wire::{Item, Queue};
use batchwise_core::tune::{
    Arm, Command, Event, Happened, Measurement, Meter, Peer, Quick, Vitals,
};

use super::decider::Decider;

/// An agent that said that it is probing, and then nothing for this long, no longer is.
const PEER_PROBES: u64 = 500_000_000;

/// The window that is being measured.
struct Window {
    side: Side,
    now: u64,
    period: Period,
}

/// The sockets as of this tick.
#[derive(Default)]
struct Sockets {
    /// One entry a socket.
    namespaces: Vec<u32>,
    /// How many have TCP_NODELAY set, …
    off: u64,
    /// … of how many the application asked for it, …
    app_off: u64,
    /// … and how many are not as their application asked.
    changed: u64,
    rtt: u64,
    peers: Vec<PeerState>,
}

/// Who decides for a service, and what feeds it.
pub struct Service {
    pub decider: Decider,
    window: Window,
    sockets: Sockets,
    vitals: Vitals,
    control: Option<Control>,
    /// How often the arm in force was changed.
    pub switches: u64,
    pub trials: Trials,
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
    pub fn new(decider: Decider, side: Side, now: u64) -> Self {
        Self {
            decider,
            window: Window {
                side,
                now,
                period: Period::new(side, now),
            },
            sockets: Sockets::default(),
            vitals: nothing(now),
            control: None,
            switches: 0,
            trials: Trials::default(),
            last_seen: Instant::now(),
        }
    }

    /// A new look at all connections begins.
    pub fn begin_tick(&mut self, now: u64) {
        self.window.now = now;
        self.vitals = nothing(now);
        self.sockets = Sockets::default();
    }

    /// One of its connections, as of this tick.
    pub fn add(&mut self, c: &TrackedConnection) {
        self.vitals.bytes += c.bytes;
        self.vitals.retransmits += c.retransmits;
        if let Some(flow) = &c.flow {
            let waited = |queue| flow.here(Item::Calls, queue).integral as f64;
            self.vitals.quick.get_or_insert_default().add(&Quick {
                waited: waited(Queue::Unacked) + waited(Queue::Unread),
                done: flow.here(Item::Calls, Queue::Unacked).total,
            });
        }
        self.window.period.add(c);
        if c.stage == Stage::Closed {
            return;
        }
        let (last, sockets) = (&c.last, &mut self.sockets);
        self.vitals.connections += 1;
        self.vitals.outstanding += u64::from(last.vitals.outstanding);
        sockets.namespaces.push(last.netns);
        sockets.off += u64::from(last.nagle_off);
        sockets.app_off += u64::from(last.app_nagle_off);
        sockets.changed += u64::from(last.nagle_off != last.app_nagle_off);
        sockets.rtt += last.vitals.rtt;
        sockets.peers.extend(last.peer);
    }

    /// What the applications said of their own requests in this tick: all there is to know.
    pub fn hear(&mut self, hint: &queue::Window) {
        self.window.period.hear(hint);
        self.vitals.quick = Some(Quick {
            waited: hint.integral as f64,
            done: hint.total,
        });
    }

    /// All connections were seen: decides.
    pub fn end_tick(&mut self) -> Command {
        let n = self.vitals.connections;
        if n > 0 {
            self.last_seen = Instant::now();
        }
        self.vitals.rtt = self.sockets.rtt / n.max(1);
        self.vitals.wish = match n {
            0 => self.decider.app_setting(),
            _ => arm(2 * self.sockets.app_off > n),
        };
        self.vitals.peer = peer(&self.sockets.peers, self.vitals.now);
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

    /// What the sockets are set to: what was decided or is held, or else what most of the
    /// applications asked for.
    pub fn in_force(&self) -> Arm {
        let decided = self.control.and_then(|c| c.arm);
        decided.unwrap_or(self.decider.app_setting())
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
        let strays = match self.control.and_then(|c| c.arm) {
            Some(Arm::On) => self.sockets.off,
            Some(Arm::Off) => self.vitals.connections - self.sockets.off,
            None => self.sockets.changed,
        };
        strays > 0
    }

    /// Where its sockets are.
    pub fn namespaces(&self) -> impl Iterator<Item = u32> + '_ {
        self.sockets.namespaces.iter().copied()
    }

    pub fn connections(&self) -> usize {
        self.sockets.namespaces.len()
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
fn peer(states: &[PeerState], now: u64) -> Option<Peer> {
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
        self.period = Period::new(self.side, self.now);
    }

    fn measure(&mut self) -> Option<Measurement> {
        let (e, message_bytes) = self.period.estimate(Unit::Sends, self.now)?;
        Some(Measurement {
            latency: e.latency.total? as f64,
            throughput: e.throughput,
            message_bytes,
            confidence: e.confidence,
        })
    }
}

#[cfg(test)]
mod tests {
    use batchwise_bpf::{Connection, Reading};
    use batchwise_core::sense::sample::Sample;
    use batchwise_core::sense::tracker::Tracker;
    use batchwise_core::tune::{Policy, Tuning};

    use super::*;

    const TICK: u64 = 4_000_000;

    fn connection(now: u64, answered: u64) -> Connection {
        let mut sample = Sample::birth(0);
        sample.at = now;
        for (item, each) in [(Item::Calls, 1), (Item::Bytes, 64)] {
            for queue in [Queue::Unacked, Queue::Unread, Queue::Turnaround] {
                let q = &mut sample.local[item as usize][queue as usize];
                (q.time, q.total, q.integral) = (now, answered * each, answered * each * 1_000);
            }
        }
        Connection {
            cookie: 1,
            local: ([10, 0, 0, 1], 6379).into(),
            remote: ([10, 0, 0, 2], 50_000).into(),
            netns: 0,
            side: Side::Server,
            born: 0,
            nagle_off: true,
            app_nagle_off: true,
            epoch: 0,
            segments_before: 0,
            vitals: batchwise_bpf::Vitals {
                bytes: answered * 128,
                ..Default::default()
            },
            peer: None,
            exchanges: false,
            options: [0; 3],
            sample,
        }
    }

    #[test]
    fn a_connection_that_a_reading_misses_loses_no_byte() {
        let tuning = Tuning::new(Policy::Latency, Side::Server);
        let mut service = Service::new(Decider::new(tuning, false, 0), Side::Server, 0);
        let mut tracker = Tracker::new(0);
        let mut bytes = 0;
        for (tick, answered) in [(1, Some(1_000)), (2, None), (3, Some(1_010))] {
            let open = answered.map(|answered| connection(tick * TICK, answered));
            let reading = Reading {
                open: open.into_iter().collect(),
                ..Reading::default()
            };
            tracker.read(&reading, Some(0));
            service.begin_tick(tick * TICK);
            tracker.connections().for_each(|c| service.add(c));
            assert_eq!(service.connections(), 1);
            bytes = service.vitals.bytes;
            service.end_tick();
            if tick == 1 {
                service.window.restart();
            }
        }
        assert_eq!(bytes, 10 * 128);
        let measured = service.window.measure().unwrap();
        assert_eq!(measured.throughput * 2.0 * TICK as f64 / 1e9, 10.0);
    }
}
