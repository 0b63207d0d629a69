//! Follows connections from one reading to the next: what has passed on each in between. No item is
//! counted twice, and none is missed while no event is lost, also when readings miss a connection.

use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};

use super::connection::{Connection, Quiet, Reading, Vitals};
use super::sample::{Flow, Sample};

/// Where a connection stands at a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It was read, or the reading had no news of it.
    Open,
    /// It was not read, nor has it been seen to close: its last reading stands.
    Missing,
    /// It has closed, and this is its last reading.
    Closed,
}

/// A connection's last reading, and what has passed since the one before.
#[derive(Clone, Debug)]
pub struct TrackedConnection {
    /// As it was last read.
    pub last: Connection,
    /// Where it stands.
    pub stage: Stage,
    /// What passed through its queues; `None` when they were not counted all the while.
    pub flow: Option<Flow>,
    /// Bytes that were acknowledged by the peer and received from it.
    pub bytes: u64,
    /// Bytes that the peer acknowledged, and segments with data that were sent.
    pub sent: [u64; 2],
    /// Segments without data that were sent: acknowledgments.
    pub acks: u16,
    /// Segments that were sent again.
    pub resent: u32,
    /// For how long the peer's window had no room for what waits, ns.
    pub window_full: u64,
    /// Since when bytes have been waiting here of which none was read, ns, CLOCK_MONOTONIC; 0: there are none.
    pub unread_since: u64,
    /// Segments with data since the reading before, and those of them that were sent or received
    /// while events were counted; `None` at its first reading.
    pub segments: Option<[u64; 2]>,
    /// Its last sample is of the counting that goes on now.
    counted: bool,
    /// Readings that it has been missing from.
    missed: u32,
}

/// All connections of a sensor.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// A connection that was born later and is not known is new: all it has counted is news.
    since: u64,
    /// Counting pauses between readings: see [`Self::of_windows`].
    windows: bool,
    /// By cookie and birth: a socket that is connected anew keeps its cookie.
    connections: BTreeMap<(u64, u64), Box<TrackedConnection>>,
    /// What had closed by the reading before: this one may still show it.
    closed: BTreeSet<(u64, u64)>,
}

/// A connection that is missing from more whole readings than this has closed, and its event was lost. A
/// record that was being written while it was read is not missing.
const MOST_MISSED: u32 = 2;

impl Tracker {
    /// Connections born at `since` or later count from their birth, others from when they are first
    /// read.
    pub fn new(since: u64) -> Self {
        Self {
            since,
            windows: false,
            connections: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }

    /// Every reading is made when an epoch has ended, before the next begins, or in the epoch that goes
    /// on: all that the counters have gained was counted in the epoch of the reading.
    pub fn of_windows() -> Self {
        Self {
            windows: true,
            ..Self::new(0)
        }
    }

    /// Takes in a reading. `epoch` is what a connection's epoch must be for its counters to be
    /// current; `None` while nothing is counted.
    pub fn read(&mut self, reading: &Reading, epoch: Option<u32>) {
        let closed = &mut self.closed;
        closed.clear();
        self.connections.retain(|key, c| {
            let is_over = c.stage == Stage::Closed;
            if is_over {
                closed.insert(*key);
            }
            !is_over
        });
        for c in self.connections.values_mut() {
            c.miss();
        }
        for c in &reading.closed {
            self.take(c, reading.at, Stage::Closed, epoch);
        }
        for c in &reading.open {
            self.take(c, reading.at, Stage::Open, epoch);
        }
        for quiet in &reading.quiet {
            if let Some(known) = self.connections.get_mut(&(quiet.cookie, quiet.born)) {
                known.stand_still(quiet, reading.at);
            }
        }
        for key in &reading.torn {
            if let Some(known) = self.connections.get_mut(key) {
                known.missed = 0;
            }
        }
        if reading.news_only {
            for c in self.connections.values_mut() {
                c.go_on();
            }
            return;
        }
        let since = &mut self.since;
        self.connections.retain(|&(_, born), c| {
            let gone = c.stage == Stage::Missing && c.missed > MOST_MISSED;
            if gone {
                // should it come back, what it has counted so far is no news
                *since = (*since).max(born + 1);
            }
            !gone
        });
    }

    fn take(&mut self, c: &Connection, at: u64, stage: Stage, epoch: Option<u32>) {
        let counted = epoch == Some(c.epoch);
        let is_new = c.born >= self.since;
        if self.closed.contains(&(c.cookie, c.born)) {
            return;
        }
        let tracked = match self.connections.entry((c.cookie, c.born)) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if known.stage == Stage::Closed {
                    return;
                }
                known.advance(c, at, counted, self.windows);
                known
            }
            Entry::Vacant(place) => place.insert(Box::new(TrackedConnection {
                last: c.clone(),
                stage,
                flow: (counted && is_new).then(|| c.sample.since(&Sample::birth(c.born))),
                bytes: if is_new { c.vitals.bytes } else { 0 },
                sent: [0; 2],
                acks: 0,
                resent: 0,
                window_full: 0,
                unread_since: if c.vitals.unread > 0 { at } else { 0 },
                segments: None,
                counted,
                missed: 0,
            })),
        };
        tracked.stage = stage;
        tracked.missed = 0;
    }

    /// How many connections the last reading has had us forget, as they had closed before it.
    pub fn forgotten(&self) -> usize {
        self.closed.len()
    }

    /// All connections as of the last reading.
    pub fn connections(&self) -> impl Iterator<Item = &TrackedConnection> {
        self.connections.values().map(Box::as_ref)
    }
}

impl TrackedConnection {
    /// Another reading begins.
    fn miss(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Missing;
        }
        self.missed = self.missed.saturating_add(1);
        (self.flow, self.bytes, self.sent, self.acks) = (None, 0, [0; 2], 0);
        (self.resent, self.window_full) = (0, 0);
        self.segments = None;
    }

    /// It is there unchanged, if its record was not being written.
    fn go_on(&mut self) {
        if self.stage == Stage::Missing && self.missed > 0 {
            (self.stage, self.missed) = (Stage::Open, self.missed - 1);
            self.segments = Some([0; 2]);
        }
    }

    /// It is there, and nothing was counted on it.
    fn stand_still(&mut self, quiet: &Quiet, at: u64) {
        if self.stage == Stage::Missing {
            (self.stage, self.missed) = (Stage::Open, 0);
            let passed = self.pass(&quiet.vitals, at);
            self.segments = Some([passed, 0]);
            (self.last.nagle_off, self.last.app_nagle_off) = (quiet.nagle_off, quiet.app_nagle_off);
        }
    }

    /// What the kernel counts by itself is now this; how many segments have passed.
    fn pass(&mut self, vitals: &Vitals, at: u64) -> u64 {
        let then = core::mem::replace(&mut self.last.vitals, *vitals);
        self.bytes = vitals.bytes.saturating_sub(then.bytes);
        self.sent = [
            vitals.bytes_sent.saturating_sub(then.bytes_sent),
            vitals.segments_sent.saturating_sub(then.segments_sent),
        ];
        let received = |v: &Vitals| v.bytes - v.bytes_sent;
        let arrived = received(vitals).saturating_sub(received(&then));
        let is_untouched = u64::from(then.unread) + arrived == u64::from(vitals.unread);
        if vitals.unread == 0 {
            self.unread_since = 0;
        } else if then.unread == 0 || !is_untouched {
            self.unread_since = at;
        }
        self.acks = vitals.acks.wrapping_sub(then.acks);
        self.resent = vitals.resent.wrapping_sub(then.resent);
        self.window_full =
            u64::from(vitals.window_full_us.wrapping_sub(then.window_full_us)) * 1_000;
        vitals.segments.saturating_sub(then.segments)
    }

    fn advance(&mut self, c: &Connection, at: u64, counted: bool, windows: bool) {
        let passed = self.pass(&c.vitals, at);
        let then = &self.last;
        let since = |before: u64| c.vitals.segments.saturating_sub(before);
        (self.flow, self.segments) = match counted {
            true if then.epoch == c.epoch && (self.counted || windows) => {
                (Some(c.sample.since(&then.sample)), Some([passed; 2]))
            }
            true if windows => {
                let counted = since(c.segments_before).min(passed);
                (
                    Some(c.sample.since_pause(&then.sample)),
                    Some([passed, counted]),
                )
            }
            _ => (None, Some([passed, 0])),
        };
        self.counted = counted;
        self.last = c.clone();
    }
}
