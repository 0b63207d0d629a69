//! A service that is tuned: from what the kernel keeps of its sockets to what its controller is told.

use std::time::{Duration, Instant};

use batchwise_bpf::Socket;
use batchwise_core::sense::tracker::{Stage, TrackedConnection};
use batchwise_core::tune::{Arm, Controller, Glimpse, Load, Params};

use super::decisions::Happened;

/// A controller is told every so many looks.
const GLIMPSE: u32 = 4;

/// What its sockets are set to, and what they do.
pub struct Service {
    pub controller: Controller,
    /// What is in force, if not each application's own setting.
    pub arm: Option<Arm>,
    /// What most of the applications asked for.
    pub app_setting: Arm,
    pub sockets: Vec<Member>,
    pub load: Load,
    /// Segments under way on a connection that sends.
    pub overlap: f64,
    pub counts: Counts,
    /// Was its start told?
    pub started: bool,
    seen: Seen,
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
    pub fn count(&mut self, event: Happened) {
        match event {
            Happened::Adopt => self.adopted += 1,
            Happened::Keep => self.kept += 1,
            Happened::Abort => self.aborted += 1,
            _ => {}
        }
    }
}

/// What was seen since the last glimpse.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    since: u64,
    looks: u32,
    bytes: u64,
    sent: [u64; 2],
    /// Bytes, summed over looks, …
    outstanding: u64,
    /// … and round trips of the connections that sent, ns.
    round_trips: u64,
    /// Connections that sent, summed over looks.
    sending: u64,
}

impl Service {
    pub fn new(params: Params, now: u64) -> Self {
        Self {
            controller: Controller::new(params),
            arm: None,
            app_setting: Arm::On,
            sockets: Vec::new(),
            load: Load::default(),
            overlap: 0.0,
            counts: Counts::default(),
            started: false,
            seen: Seen::begin(now),
            last_seen: Instant::now(),
        }
    }

    /// A new look at all connections begins.
    pub fn begin_look(&mut self) {
        self.sockets.clear();
        self.seen.looks += 1;
    }

    /// One of its connections, as of this look.
    pub fn see(&mut self, c: &TrackedConnection) {
        self.seen.bytes += c.bytes;
        for (sum, new) in self.seen.sent.iter_mut().zip(c.sent) {
            *sum += new;
        }
        if c.stage == Stage::Closed {
            return;
        }
        self.last_seen = Instant::now();
        if c.sent[1] > 0 {
            self.seen.sending += 1;
            self.seen.outstanding += u64::from(c.last.vitals.outstanding);
            self.seen.round_trips += c.last.vitals.rtt;
        }
        self.sockets.push(Member {
            cookie: c.last.cookie,
            netns: c.last.netns,
            nodelay: c.last.nagle_off,
            app_nodelay: c.last.app_nagle_off,
        });
    }

    /// All its connections were seen.
    pub fn end_look(&mut self) {
        let asked = self.sockets.iter().filter(|s| s.app_nodelay).count();
        if !self.sockets.is_empty() {
            self.app_setting = match 2 * asked > self.sockets.len() {
                true => Arm::Off,
                false => Arm::On,
            };
        }
    }

    /// What was seen since the last call.
    pub fn glimpse(&mut self, now: u64) -> Glimpse {
        let seen = std::mem::replace(&mut self.seen, Seen::begin(now));
        let seconds = now.saturating_sub(seen.since).max(1) as f64 / 1e9;
        let [bytes_sent, segments] = seen.sent.map(|n| n as f64);
        self.load = Load {
            bytes: seen.bytes as f64 / seconds,
            segments: segments / seconds,
        };
        let sending = seen.sending.max(1) as f64;
        let held = seen.outstanding as f64 / sending * segments / bytes_sent.max(1.0);
        // what leaves while the agent looks is only in this; a segment may have many messages in it
        let of_each =
            self.messages().0.max(self.load.segments) / (sending / f64::from(seen.looks.max(1)));
        self.overlap = held.max(of_each * seen.round_trips as f64 / sending / 1e9);
        Glimpse {
            now,
            app_setting: self.app_setting,
            load: self.load,
            overlap: self.overlap,
        }
    }

    /// What was seen of it during a test says nothing of what it does by itself.
    pub fn forget_glimpse(&mut self, now: u64) {
        self.seen = Seen::begin(now);
    }

    /// Whether enough was seen for a glimpse.
    pub fn is_seen(&self) -> bool {
        self.seen.looks >= GLIMPSE
    }

    /// The setting in force.
    pub fn in_force(&self) -> Arm {
        self.arm.unwrap_or(self.app_setting)
    }

    /// Its sockets, as they are to be with this arm (`None`: as their applications asked).
    pub fn with(&self, arm: Option<Arm>) -> impl Iterator<Item = Socket> + '_ {
        self.sockets.iter().map(move |s| s.with(arm))
    }

    /// Those that are not as they should be: opened, or changed by their applications, since.
    pub fn stragglers(&self) -> impl Iterator<Item = Socket> + '_ {
        let strays = |s: &&Member| s.with(self.arm).nodelay != s.nodelay;
        self.sockets.iter().filter(strays).map(|s| s.with(self.arm))
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

impl Member {
    fn with(&self, arm: Option<Arm>) -> Socket {
        Socket {
            cookie: self.cookie,
            netns: self.netns,
            nodelay: arm.map_or(self.app_nodelay, |arm| arm == Arm::Off),
        }
    }
}

impl Seen {
    fn begin(now: u64) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }
}
