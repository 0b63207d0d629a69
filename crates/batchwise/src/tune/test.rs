//! A test: both settings in turn on a live service, and what it did with each.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use batchwise_bpf::{Clocks, Owners, monotonic_ns};
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Side;
use batchwise_core::sense::tracker::{Stage, TrackedConnection};
use batchwise_core::sense::wire::{Item, Queue};
use batchwise_core::tune::{Arm, Knob, Outcome, Reason, Slice, Switchback, Usual};

use super::Agent;
use super::service::Service;

/// Counting has begun: until every connection that is used has had an event.
const WARM_UP: Duration = Duration::from_millis(5);
/// After a switch, before a slice begins: what was under way has left. What is held stays longer, half a slice.
const SETTLE: Duration = Duration::from_millis(2);
/// Looking and switching may take this part of a slice.
const SHARE: u32 = 10;
/// So many switches tell how long one takes: the machine may stand still for a moment.
const TRIED: u32 = 2;
/// Connections that are being written to while they are read are read again so often.
const TRIES: u32 = 10;

/// What a test is to be like.
#[derive(Clone, Copy)]
pub struct Plan {
    /// How long a slice is.
    pub slice: Duration,
    /// How long all may take, ns.
    pub limit: u64,
    pub reason: Reason,
}

/// How a test ended.
pub enum Ended {
    Decided(Outcome),
    /// The agent is to stop, or its guard is gone.
    Stopped,
    /// With the reason, in words.
    Aborted(String),
}

/// Of a service: its connections when the test began. Those that are opened meanwhile are not switched.
struct Tested {
    key: ServiceKey,
    knob: Knob,
    cookies: HashSet<u64>,
    clocks: Clocks,
}

impl Agent {
    /// Tests the other setting on the service, as planned. Its sockets are left as the last slice had them.
    pub(super) fn test(
        &mut self,
        key: ServiceKey,
        plan: Plan,
        owners: &Owners,
    ) -> anyhow::Result<Ended> {
        let is_shared = |(other, s): (&ServiceKey, &Service)| {
            *other != key && s.acks_soon() && self.levers.are_shared(other, &key)
        };
        if self.services[&key].knob == Knob::Delack && self.services.iter().any(is_shared) {
            let why = "another service has acknowledgments cut short for this one, too";
            return Ok(Ended::Aborted(why.to_owned()));
        }
        self.sensor.begin()?;
        let ended = self.slices(key, plan, owners);
        self.sensor.detach();
        ended
    }

    fn slices(&mut self, key: ServiceKey, plan: Plan, owners: &Owners) -> anyhow::Result<Ended> {
        let begin = Instant::now();
        if !self.pause(WARM_UP)? {
            return Ok(Ended::Stopped);
        }
        let service = &self.services[&key];
        let (own, in_force) = (service.own(), service.in_force());
        let cookies = || service.sockets.iter().map(|s| s.cookie);
        let tested = Tested {
            key,
            knob: service.knob,
            cookies: cookies().collect(),
            clocks: owners.clocks(cookies()),
        };
        // the machine may stand still for a moment: the shortest time of several counts
        let (mut effort, mut switching, mut switches) = (Duration::MAX, Duration::MAX, 0);
        for _ in 0..TRIES {
            let begin = Instant::now();
            self.count(&tested)?;
            effort = effort.min(begin.elapsed());
        }

        let (policy, seed) = (self.args.policy, monotonic_ns());
        let limit = plan.limit.saturating_sub(begin.elapsed().as_nanos() as u64);
        let mut test = Switchback::new(policy, self.params(), own, in_force, seed).within(limit);
        let mut usual = Usual::default();
        while let Some(arm) = test.next() {
            let begin = Instant::now();
            if !self.switch(key, Some(arm), owners)? {
                let why = "what the applications asked for cannot be written down";
                return Ok(Ended::Aborted(why.to_owned()));
            }
            switching = switching.min(begin.elapsed());
            switches += 1;
            let length = match switches > TRIED {
                true => plan.slice.max(SHARE * (switching + effort * 2)),
                false => plan.slice,
            };
            if length.as_nanos() > u128::from(self.params().longest) {
                let connections = self.services[&key].sockets.len();
                return Ok(Ended::Aborted(format!(
                    "to switch and read {connections} connections takes {:.0?}: too long for a test",
                    switching + effort
                )));
            }
            let settle = match plan.reason {
                Reason::Held => length / 2,
                _ => SETTLE,
            };
            if !self.pause(settle)? {
                return Ok(Ended::Stopped);
            }
            self.count(&tested)?;
            let parts = length.as_nanos() / (effort * SHARE).as_nanos().max(1);
            let parts = (parts as u32).clamp(1, Usual::PARTS);
            let parts = (length / parts, parts);
            let Some(slice) = self.slice(&tested, parts, &mut usual)? else {
                return Ok(Ended::Stopped);
            };
            test.add(slice, begin.elapsed().as_nanos() as f64);
        }
        Ok(Ended::Decided(test.outcome()))
    }

    /// Counts for so many parts, or until too much is under way. `None`: stopped.
    fn slice(
        &mut self,
        tested: &Tested,
        (part, parts): (Duration, u32),
        usual: &mut Usual,
    ) -> anyhow::Result<Option<Slice>> {
        let (begin, mut sum) = (Instant::now(), Counted::default());
        let before = tested.clocks.cpu_time();
        for _ in 0..parts {
            if !self.pause(part)? {
                return Ok(None);
            }
            sum.add(&self.count(tested)?);
            if usual.is_exceeded_by(sum.outstanding as f64) {
                break;
            }
        }
        Ok(Some(Slice {
            time: begin.elapsed().as_nanos() as f64,
            bytes: sum.bytes as f64,
            waited: sum.waited as f64,
            done: sum.done as f64,
            sent: sum.sent as f64,
            segments: sum.segments as f64,
            mss: f64::from(sum.mss),
            acks: sum.acks as f64,
            cpu: tested.clocks.cpu_time().saturating_sub(before).as_nanos() as f64,
        }))
    }

    /// Has the service's sockets at this setting (`None`: each application's own). False: they are left as
    /// they are, as what their applications asked for cannot be written down.
    pub(super) fn switch(
        &mut self,
        key: ServiceKey,
        arm: Option<Arm>,
        owners: &Owners,
    ) -> anyhow::Result<bool> {
        let Some(service) = self.services.get_mut(&key) else {
            return Ok(true);
        };
        let (before, in_force) = (service.arm, service.in_force());
        service.arm = arm;
        let (knob, control) = (service.knob, service.control(arm));
        if arm.is_some() && knob == Knob::Nagle && !self.remember() {
            self.services.entry(key).and_modify(|s| s.arm = before);
            return Ok(false);
        }
        self.actuator.control(&key, control)?;
        let Some(service) = self.services.get_mut(&key) else {
            return Ok(true);
        };
        service.counts.switches += u64::from(service.in_force() != in_force);
        if knob == Knob::Delack {
            self.actuator.set_all(&service.namespaces())?;
            self.pull_levers();
            return Ok(true);
        }
        let sockets: Vec<_> = service.with(arm).collect();
        self.set(owners, &sockets)?;
        if arm.is_none() {
            self.remember();
        }
        Ok(true)
    }

    /// What the tested connections did since the last call.
    fn count(&mut self, tested: &Tested) -> anyhow::Result<Counted> {
        let side = tested.key.side;
        let mut sum = Counted::default();
        for _ in 0..TRIES {
            let reading = self.read()?;
            self.tracker.read(&reading, Some(self.sensor.epoch()));
            self.guard.beat();
            let mut torn = false;
            sum.outstanding = 0;
            let is_tested = |c: &&TrackedConnection| tested.cookies.contains(&c.last.cookie);
            for c in self.tracker.connections().filter(is_tested) {
                torn |= c.stage == Stage::Missing;
                sum.see(c, tested.knob, side);
            }
            if !torn {
                break;
            }
        }
        if let Some(hints) = &mut self.hints {
            // an application that counts its own requests knows best
            let heard = hints.read(&[])?;
            if let (Side::Client, Some(window)) = (side, heard.of_service(&tested.key.server)) {
                (sum.waited, sum.done) = (window.integral, window.total);
            }
        }
        Ok(sum)
    }
}

/// What the connections of a service did.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    bytes: u64,
    waited: u64,
    done: u64,
    /// Of the bytes, those that the peer has acknowledged.
    sent: u64,
    /// Segments with data, sent.
    segments: u64,
    /// Bytes of a full segment.
    mss: u32,
    /// Acknowledgments without data, sent.
    acks: u64,
    /// Bytes handed over and not acknowledged, now.
    outstanding: u64,
}

impl Counted {
    fn see(&mut self, c: &TrackedConnection, knob: Knob, side: Side) {
        self.bytes += c.bytes;
        self.sent += c.sent[0];
        self.segments += c.sent[1];
        self.mss = self.mss.max(c.last.vitals.mss);
        self.acks += u64::from(c.acks);
        self.outstanding += u64::from(c.last.vitals.outstanding);
        let Some(flow) = &c.flow else {
            return;
        };
        if knob == Knob::Delack {
            // what the other end holds is in no queue here, but in the turn
            self.waited += flow.turns.took;
            self.done += u64::from(flow.turns.over);
            return;
        }
        // of a request here: a client's until its response is read; a server's from its arrival until its response has
        // left, as a client may acknowledge that late whatever the setting
        let of = |queue| flow.here(Item::Calls, queue);
        let (waited, done) = match side {
            Side::Client => {
                let sent = of(Queue::Unacked);
                (sent.integral + of(Queue::Unread).integral, sent.total)
            }
            Side::Server => {
                let answered = of(Queue::Turnaround);
                let here = of(Queue::Unread).integral + answered.integral;
                (here + flow.unsent.time, answered.total)
            }
        };
        self.waited += waited;
        self.done += done;
    }

    fn add(&mut self, next: &Self) {
        self.bytes += next.bytes;
        self.sent += next.sent;
        self.segments += next.segments;
        self.mss = self.mss.max(next.mss);
        self.acks += next.acks;
        self.waited += next.waited;
        self.done += next.done;
        self.outstanding = next.outstanding;
    }
}
