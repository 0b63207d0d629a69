//! A service that is tuned: from what the kernel keeps of its sockets to what its controller is told.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use batchwise_bpf::{Control, Socket};
use batchwise_core::sense::tracker::{Stage, TrackedConnection};
use batchwise_core::tune::report::Advice;
use batchwise_core::tune::report::DecisionEvent;
use batchwise_core::tune::{Arm, Controller, Glimpse, Knob, Lever, Load, OVERLAP, Params};

/// A controller is told of so many looks at a time, …
const LOOKS: usize = 3;
/// … and what is held is counted over so many, as a look sees it or not.
const HELD_LOOKS: usize = 12;

/// After acknowledgments for which the other end waits, connections are quiet for less than this part of the time that those took.
const MOST_QUIET: u64 = 4;

/// For a service without connections for so long nothing is set beyond sockets.
const IDLE: Duration = Duration::from_secs(60);

/// What its sockets are set to, and what they do.
pub struct Service {
    /// What is switched now, …
    pub knob: Knob,
    pub controller: Controller,
    /// … and the controller of what is not.
    other: Controller,
    /// Whether that may change.
    is_free: bool,
    /// What is held for so long is a reason, ns.
    hold: f64,
    /// What is in force, if not each application's own setting.
    pub arm: Option<Arm>,
    /// How its acknowledgments are cut short, if they are.
    pub lever: Option<Lever>,
    /// What most of the applications asked for.
    pub app_setting: Arm,
    pub sockets: Vec<Member>,
    pub load: Load,
    /// Segments under way on a connection that sends.
    pub overlap: f64,
    pub counts: Counts,
    /// Was its start told?
    pub started: bool,
    /// The last looks, the oldest first, and when the last of them ended.
    seen: VecDeque<Seen>,
    seen_until: u64,
    last_seen: Instant,
}

/// A socket of the service.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub cookie: u64,
    pub netns: u32,
    /// TCP_NODELAY is set, …
    pub nodelay: bool,
    /// … and the application asked for it.
    pub app_nodelay: bool,
    /// It is not to be switched now: the application holds back itself.
    pub corked: bool,
    /// How long acknowledgments wait is cut short.
    pub ack_soon: bool,
}

/// What has happened so far, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub switches: u64,
    pub adopted: u64,
    pub kept: u64,
    pub aborted: u64,
}

impl Counts {
    pub fn count(&mut self, event: DecisionEvent) {
        match event {
            DecisionEvent::Adopt => self.adopted += 1,
            DecisionEvent::Keep => self.kept += 1,
            DecisionEvent::Abort => self.aborted += 1,
            _ => {}
        }
    }
}

/// What a look saw that was done since the one before, and how things stood.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// ns
    time: u64,
    /// In both directions.
    bytes: u64,
    bytes_sent: u64,
    segments_sent: u64,
    /// Connections on which Nagle's algorithm holds something, …
    held: u64,
    /// … on which an acknowledgment waits, and on which nobody waits for anything, …
    ack_due: u64,
    quiet: u64,
    /// … and acknowledgments that left without data.
    acks: u64,
    /// Connections that sent, …
    sending: u64,
    /// … bytes that they had outstanding …
    outstanding: u64,
    /// … and their round trips, ns: sums.
    round_trips: u64,
}

impl Service {
    /// `knob`: the one that it is always about; `None`: what is held says which.
    pub fn new(params: Params, knob: Option<Knob>, now: u64) -> Self {
        Self {
            knob: knob.unwrap_or(Knob::Nagle),
            controller: Controller::new(params),
            other: Controller::new(params),
            is_free: knob.is_none(),
            hold: params.held,
            arm: None,
            lever: None,
            app_setting: Arm::On,
            sockets: Vec::new(),
            load: Load::default(),
            overlap: 0.0,
            counts: Counts::default(),
            started: false,
            seen: VecDeque::new(),
            seen_until: now,
            last_seen: Instant::now(),
        }
    }

    /// A new look at all connections begins.
    pub fn begin_look(&mut self, now: u64) {
        self.sockets.clear();
        if self.seen.len() == HELD_LOOKS {
            self.seen.pop_front();
        }
        self.seen.push_back(Seen {
            time: now.saturating_sub(self.seen_until).max(1),
            ..Seen::default()
        });
        self.seen_until = now;
    }

    /// One of its connections, as of this look.
    pub fn see(&mut self, c: &TrackedConnection) {
        let Some(seen) = self.seen.back_mut() else {
            return;
        };
        seen.bytes += c.bytes;
        seen.bytes_sent += c.sent[0];
        seen.segments_sent += c.sent[1];
        if c.stage == Stage::Closed {
            return;
        }
        self.last_seen = Instant::now();
        let vitals = &c.last.vitals;
        seen.held += u64::from(vitals.held);
        seen.ack_due += u64::from(vitals.ack_due);
        seen.quiet += u64::from(!vitals.ack_due && vitals.outstanding == 0);
        seen.acks += u64::from(c.acks);
        if c.sent[1] > 0 {
            seen.sending += 1;
            seen.outstanding += u64::from(vitals.outstanding);
            seen.round_trips += vitals.rtt;
        }
        self.sockets.push(Member {
            cookie: c.last.cookie,
            netns: c.last.netns,
            nodelay: c.last.nagle_off,
            app_nodelay: c.last.app_nagle_off,
            corked: vitals.corked,
            ack_soon: vitals.ack_soon,
        });
    }

    /// All its connections were seen.
    pub fn end_look(&mut self) {
        self.choose();
        let asked = self.sockets.iter().filter(|s| s.app_nodelay).count();
        if !self.sockets.is_empty() {
            self.app_setting = match 2 * asked > self.sockets.len() {
                true => Arm::Off,
                false => Arm::On,
            };
        }
    }

    /// What the last looks saw, once there are enough of them.
    pub fn glimpse(&mut self) -> Option<Glimpse> {
        if self.seen.len() < LOOKS {
            return None;
        }
        let sum = |of: fn(&Seen) -> u64| last(&self.seen).map(of).sum::<u64>();
        let span = sum(|seen| seen.time);
        let per_second = |n: u64| n as f64 * 1e9 / span as f64;
        self.load = Load {
            bytes: per_second(sum(|seen| seen.bytes)),
            segments: per_second(sum(|seen| seen.segments_sent)),
        };
        let bytes = [
            self.rates().fold(f64::INFINITY, f64::min),
            self.rates().fold(0.0, f64::max),
        ];
        let sending = sum(|seen| seen.sending).max(1) as f64;
        let segment =
            sum(|seen| seen.bytes_sent) as f64 / sum(|seen| seen.segments_sent).max(1) as f64;
        let held = sum(|seen| seen.outstanding) as f64 / sending / segment.max(1.0);
        // what leaves while the agent looks is only in this; a segment may have many messages in it
        let of_each = self.messages().0.max(self.load.segments) / (sending / LOOKS as f64);
        let round_trip = sum(|seen| seen.round_trips) as f64 / sending;
        self.overlap = held.max(of_each * round_trip / 1e9);
        let (overlap, held) = match self.knob {
            Knob::Nagle => (self.overlap, self.held()),
            Knob::Delack => (0.0, self.acks_held()),
        };
        Some(Glimpse {
            now: self.seen_until,
            app_setting: self.own(),
            load: self.load,
            bytes,
            span,
            overlap,
            held,
        })
    }

    /// What has a reason is switched, and stays so while something is adopted.
    fn choose(&mut self) {
        let nagle = self.held() >= self.hold || self.overlap >= OVERLAP;
        let delack = self.acks_held() >= self.hold;
        let wanted = match self.knob {
            Knob::Nagle if delack && !nagle => Knob::Delack,
            Knob::Delack if nagle && !delack => Knob::Nagle,
            _ => return,
        };
        if self.controller.adopted().is_none() {
            self.take(wanted);
        }
    }

    /// This is switched from now on.
    pub fn take(&mut self, knob: Knob) {
        if self.is_free && knob != self.knob {
            self.knob = knob;
            std::mem::swap(&mut self.controller, &mut self.other);
            self.controller.share_budget(&self.other);
        }
    }

    /// How long Nagle's algorithm holds a segment back, in the mean, ns.
    fn held(&self) -> f64 {
        self.waited(|seen| seen.held, |seen| seen.segments_sent)
    }

    /// How long an acknowledgment waits for which the other end waits, ns, whether it leaves with data or without. After one
    /// for which nobody waits the connection is quiet: the next request comes when it likes.
    fn acks_held(&self) -> f64 {
        let time = |of: fn(&Seen) -> u64| self.seen.iter().map(|s| of(s) * s.time).sum::<u64>();
        let acks: u64 = self.seen.iter().map(|seen| seen.acks).sum();
        let is_quiet = MOST_QUIET * time(|seen| seen.quiet) > time(|seen| seen.ack_due);
        match acks < 2 || is_quiet {
            true => 0.0,
            false => self.waited(|seen| seen.ack_due, |seen| seen.acks + seen.segments_sent),
        }
    }

    /// By Little's law: connections on which something waits, over how many a second leave. One look alone says nothing.
    fn waited(&self, waits: fn(&Seen) -> u64, leave: fn(&Seen) -> u64) -> f64 {
        let looks = self.seen.iter().filter(|seen| waits(seen) > 0).count();
        let time: u64 = self.seen.iter().map(|seen| waits(seen) * seen.time).sum();
        let left: u64 = self.seen.iter().map(leave).sum();
        match looks {
            0 | 1 => 0.0,
            _ => time as f64 / left.max(1) as f64,
        }
    }

    /// Whether it is to be looked at again soon.
    pub fn is_restless(&self) -> bool {
        self.seen.len() < LOOKS || self.controller.is_restless(self.rates())
    }

    /// Bytes a second in each of the last looks.
    fn rates(&self) -> impl DoubleEndedIterator<Item = f64> {
        let rate = |seen: &Seen| seen.bytes as f64 * 1e9 / seen.time as f64;
        last(&self.seen).map(rate)
    }

    /// What was seen of it during a test says nothing of what it does by itself.
    pub fn forget_looks(&mut self, now: u64) {
        self.seen.clear();
        self.seen_until = now;
    }

    /// The setting in force.
    pub fn in_force(&self) -> Arm {
        self.arm.unwrap_or(self.own())
    }

    /// That of the applications. None asks for how long acknowledgments wait.
    pub fn own(&self) -> Arm {
        match self.knob {
            Knob::Nagle => self.app_setting,
            Knob::Delack => Arm::On,
        }
    }

    /// Nagle's algorithm at most of its sockets.
    pub fn nagle(&self) -> Arm {
        match self.knob {
            Knob::Nagle => self.in_force(),
            Knob::Delack => self.app_setting,
        }
    }

    /// What its sockets are to have with this arm.
    pub fn control(&self, arm: Option<Arm>) -> Option<Control> {
        match self.knob {
            Knob::Nagle => arm.map(Control::Nagle),
            Knob::Delack => (arm == Some(Arm::Off)).then_some(Control::AckSoon),
        }
    }

    /// What is wrong with the applications' own setting, as far as that is known.
    pub fn advice(&self) -> Option<Advice> {
        let better = self.controller.better()?;
        Some(self.knob.advice(better))
    }

    /// Whether its acknowledgments are cut short, and it has had connections lately.
    pub fn acks_soon(&self) -> bool {
        self.control(self.arm) == Some(Control::AckSoon) && self.idle_for() < IDLE
    }

    /// The network namespaces that its sockets are in, …
    pub fn namespaces(&self) -> BTreeSet<u32> {
        self.sockets.iter().map(|s| s.netns).collect()
    }

    /// … of those whose acknowledgments do not wait as long as they should.
    pub fn out_of_line(&self) -> BTreeSet<u32> {
        let soon = self.control(self.arm) == Some(Control::AckSoon);
        let astray = self.sockets.iter().filter(|s| s.ack_soon != soon);
        astray.map(|s| s.netns).collect()
    }

    /// Its sockets, as they are to be with this arm (`None`: as their applications asked).
    pub fn with(&self, arm: Option<Arm>) -> impl Iterator<Item = Socket> + '_ {
        self.sockets.iter().map(move |s| s.with(arm))
    }

    /// Those that are not as they should be: opened, or changed by their applications, since.
    pub fn stragglers(&self) -> impl Iterator<Item = Socket> + '_ {
        let arm = self.arm.filter(|_| self.knob == Knob::Nagle);
        let strays = move |s: &&Member| s.with(arm).nodelay != s.nodelay && !s.corked;
        self.sockets.iter().filter(strays).map(move |s| s.with(arm))
    }

    /// How long ago it had a connection.
    pub fn idle_for(&self) -> Duration {
        self.last_seen.elapsed()
    }

    /// Messages a second now, and bytes of a request and its response: a message is what the last test
    /// found one to be, and before it a segment.
    pub fn messages(&self) -> (f64, f64) {
        let served = self.controller.last().map(|(outcome, _)| outcome);
        let each = match served.map(|outcome| outcome.of(self.in_force())) {
            Some(s) if s.messages > 0.0 && s.bytes > 0.0 => s.bytes / s.messages,
            _ if self.load.segments > 0.0 => self.load.bytes / self.load.segments,
            _ => return (0.0, 0.0),
        };
        (self.load.bytes / each, each)
    }
}

/// The looks that a controller is told of.
fn last(seen: &VecDeque<Seen>) -> impl DoubleEndedIterator<Item = &Seen> {
    seen.range(seen.len().saturating_sub(LOOKS)..)
}

impl Member {
    fn with(&self, arm: Option<Arm>) -> Socket {
        Socket {
            cookie: self.cookie,
            netns: self.netns,
            nodelay: arm.map_or(self.app_nodelay, |arm| arm == Arm::Off),
        }
    }
}
