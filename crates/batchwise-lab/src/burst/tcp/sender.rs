//! The sending end: window, recovery, timers, and what is sent at once.

use std::collections::VecDeque;

use super::Recovery;
use super::loss::{self, Arrived, Segment};
use super::rtt::Rtt;
use crate::burst::packet::Ack;

const INITIAL_WINDOW: f64 = 10.0;
/// What the receiver has room for, segments: 0.75 MB.
const RECEIVE_WINDOW: usize = 512;

/// What a connection is to do.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Segments; `None`: without an end.
    pub total: Option<u32>,
    pub recovery: Recovery,
    /// New data waits until so many segments may be sent together.
    pub unit: u32,
}

/// What is sent in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub syn: bool,
    /// Segments that are sent again.
    pub again: Vec<u32>,
    /// New ones: the first, and how many.
    pub first: u32,
    pub new: u32,
}

pub struct Sender {
    config: Config,
    rtt: Rtt,
    syn_at: Option<u64>,
    is_open: bool,
    /// Number of the first segment that is not acknowledged, and all from there on.
    base: u32,
    segments: VecDeque<Segment>,
    window: f64,
    threshold: f64,
    /// Until this one is acknowledged, the window has been reduced already...
    recovering: Option<u32>,
    /// ...and this is after a timeout.
    timed_out: bool,
    arrived: Arrived,
    transmissions: u64,
    timeout_at: Option<u64>,
    probe_at: Option<u64>,
    look_at: Option<u64>,
    probed: bool,
    /// A probe is to be sent.
    probes: bool,
}

impl Sender {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            rtt: Rtt::default(),
            syn_at: None,
            is_open: false,
            base: 0,
            segments: VecDeque::new(),
            window: INITIAL_WINDOW.max(f64::from(config.unit)),
            threshold: f64::INFINITY,
            recovering: None,
            timed_out: false,
            arrived: Arrived::default(),
            transmissions: 0,
            timeout_at: None,
            probe_at: None,
            look_at: None,
            probed: false,
            probes: false,
        }
    }

    /// When something is to be done even if nothing arrives.
    pub fn deadline(&self) -> Option<u64> {
        [self.timeout_at, self.probe_at, self.look_at]
            .into_iter()
            .flatten()
            .min()
    }

    pub fn is_done(&self) -> bool {
        self.config.total.is_some_and(|total| self.base >= total)
    }

    /// The handshake is answered.
    pub fn open(&mut self, now: u64) {
        if self.is_open {
            return;
        }
        self.is_open = true;
        self.rtt.sample(now - self.syn_at.unwrap_or(now));
        self.timeout_at = None;
    }

    pub fn acknowledge(&mut self, now: u64, ack: Ack) {
        let next = self.next();
        if ack.seq >= self.base && ack.seq < next {
            let segment = self.segments[(ack.seq - self.base) as usize];
            self.arrived_one(now, segment);
            self.segments[(ack.seq - self.base) as usize].sacked = true;
        }
        let mut acked = 0;
        while self.base < ack.upto {
            let Some(segment) = self.segments.pop_front() else {
                break;
            };
            self.base += 1;
            acked += 1;
            if segment.lost {
                // it was slow, not lost
                continue;
            }
            if !segment.sacked {
                self.arrived_one(now, segment);
            }
        }
        if acked > 0 {
            self.advance(acked);
            self.rtt.progress();
            self.timeout_at = None;
            self.probed = false;
        }
        self.look(now);
        self.arm(now);
    }

    fn arrived_one(&mut self, now: u64, segment: Segment) {
        let rtt = now - segment.sent_at;
        if !segment.resent {
            self.rtt.sample(rtt);
        }
        // what comes sooner than a round trip after it was sent again is the first transmission
        if segment.order > self.arrived.order && (!segment.resent || rtt >= self.rtt.least()) {
            let order = segment.order;
            self.arrived = Arrived { order, rtt };
        }
    }

    fn advance(&mut self, acked: u32) {
        let acked = f64::from(acked);
        if self.recovering.is_some_and(|upto| self.base >= upto) {
            (self.recovering, self.timed_out) = (None, false);
        }
        if self.recovering.is_none() || self.timed_out {
            self.window += match self.window < self.threshold {
                true => acked,
                false => acked / self.window,
            };
        }
    }

    /// Looks for losses.
    fn look(&mut self, now: u64) {
        let recovering = self.recovering.is_some();
        let (recovery, least) = (self.config.recovery, self.rtt.least());
        let segments = &mut self.segments;
        let (found, again) = loss::mark(segments, recovery, self.arrived, recovering, least, now);
        self.look_at = again;
        if found && !recovering {
            self.reduce();
            self.window = self.threshold;
        }
    }

    fn reduce(&mut self) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.recovering = Some(self.next());
    }

    /// The deadline has come.
    pub fn wake(&mut self, now: u64) {
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if is_due(self.timeout_at) {
            self.timeout_at = None;
            self.rtt.timed_out();
            if self.is_open {
                self.time_out();
            }
        } else if is_due(self.probe_at) {
            self.probes = true;
            self.probed = true;
        }
        if is_due(self.look_at) {
            self.look(now);
        }
        self.arm(now);
    }

    fn time_out(&mut self) {
        if !self.timed_out {
            self.reduce();
        }
        self.timed_out = true;
        self.probed = false;
        self.window = 1.0;
        for segment in &mut self.segments {
            segment.lost = !segment.sacked;
        }
    }

    /// Sets the timers anew.
    fn arm(&mut self, now: u64) {
        let outstanding = self.segments.len();
        if outstanding == 0 {
            (self.timeout_at, self.probe_at, self.look_at) = (None, None, None);
            return;
        }
        self.timeout_at.get_or_insert(now + self.rtt.timeout());
        let may_probe =
            self.config.recovery == Recovery::Rack && self.recovering.is_none() && !self.probed;
        self.probe_at = may_probe.then(|| now + self.rtt.probe(outstanding));
    }

    /// What may be sent now.
    pub fn send(&mut self, now: u64) -> Sent {
        let mut sent = Sent::default();
        if !self.is_open {
            if self.timeout_at.is_none() {
                sent.syn = true;
                self.syn_at = Some(now);
                self.timeout_at = Some(now + self.rtt.timeout());
            }
            return sent;
        }
        let under_way = self.segments.iter().filter(|s| s.is_under_way()).count();
        let mut room = (self.window as usize).saturating_sub(under_way);
        for index in 0..self.segments.len() {
            if room > 0 && self.segments[index].lost {
                self.send_again(now, index);
                sent.again.push(self.base + index as u32);
                room -= 1;
            }
        }
        (sent.first, sent.new) = (self.next(), self.allowed(room, under_way));
        if std::mem::take(&mut self.probes) && sent.new == 0 && sent.again.is_empty() {
            let unsent = self.unsent();
            if unsent > 0 && self.segments.len() < RECEIVE_WINDOW {
                sent.new = 1;
            } else if let Some(last) = self.segments.iter().rposition(|s| !s.sacked) {
                self.send_again(now, last);
                sent.again.push(self.base + last as u32);
            }
        }
        for _ in 0..sent.new {
            let order = self.count();
            self.segments.push_back(Segment {
                sent_at: now,
                order,
                sacked: false,
                lost: false,
                resent: false,
            });
        }
        if sent.new > 0 || !sent.again.is_empty() {
            self.arm(now);
        }
        sent
    }

    /// New segments that are sent into this room.
    fn allowed(&self, room: usize, under_way: usize) -> u32 {
        let room = room.min(RECEIVE_WINDOW.saturating_sub(self.segments.len()));
        let allowed = self.unsent().min(room as u32);
        let whole = allowed - allowed % self.config.unit.max(1);
        // what is the last, or waits for nothing that is under way, goes as it is
        match allowed == self.unsent() || whole == 0 && under_way == 0 {
            true => allowed,
            false => whole,
        }
    }

    fn send_again(&mut self, now: u64, index: usize) {
        let order = self.count();
        let segment = &mut self.segments[index];
        (segment.sent_at, segment.order) = (now, order);
        (segment.lost, segment.resent) = (false, true);
    }

    fn count(&mut self) -> u64 {
        self.transmissions += 1;
        self.transmissions
    }

    fn next(&self) -> u32 {
        self.base + self.segments.len() as u32
    }

    fn unsent(&self) -> u32 {
        let total = self.config.total.unwrap_or(u32::MAX);
        total.saturating_sub(self.next())
    }
}
