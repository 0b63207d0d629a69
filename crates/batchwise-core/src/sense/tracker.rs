//! Follows connections from one reading to the next: what has passed on each in between. No item is
//! counted twice, and none is missed while no event is lost, also when readings miss a connection.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

use super::connection::{Connection, Reading};
use super::sample::{Flow, Sample};

/// Where a connection stands at a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It was read.
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
    /// Segments that were sent again.
    pub retransmits: u64,
    /// Its last sample is of the counting that goes on now.
    counted: bool,
    /// Readings that it has been missing from.
    missed: u32,
    /// Events that were lost by the time of its last reading.
    lost_events: u64,
}

/// All connections of a sensor.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// A connection that was born later and is not known is new: all it has counted is news.
    since: u64,
    /// By cookie and birth: a socket that is connected anew keeps its cookie.
    connections: BTreeMap<(u64, u64), Box<TrackedConnection>>,
}

/// A connection that is missing from more readings than this, while events were lost, has closed …
const MOST_MISSED: u32 = 2;
/// … and one that is missing from more than this has closed without an event: the kernel skips a
/// program that would interrupt itself on its CPU, and does not tell.
const MOST_MISSED_SILENTLY: u32 = 200;

impl Tracker {
    /// Connections born at `since` or later count from their birth, others from when they are first
    /// read.
    pub fn new(since: u64) -> Self {
        Self {
            since,
            connections: BTreeMap::new(),
        }
    }

    /// Takes in a reading. `epoch` is what a connection's epoch must be for its counters to be
    /// current; `None` while nothing is counted.
    pub fn read(&mut self, reading: &Reading, epoch: Option<u32>) {
        // a connection that has closed is kept for one more reading, which may still show it
        self.connections
            .retain(|_, c| c.stage != Stage::Closed || c.missed == 0);
        for c in self.connections.values_mut() {
            c.miss();
        }
        for c in &reading.closed {
            self.take(c, Stage::Closed, reading.lost_events, epoch);
        }
        for c in &reading.open {
            self.take(c, Stage::Open, reading.lost_events, epoch);
        }
        let since = &mut self.since;
        self.connections.retain(|&(_, born), c| {
            let most = match c.lost_events < reading.lost_events {
                true => MOST_MISSED,
                false => MOST_MISSED_SILENTLY,
            };
            let gone = c.stage == Stage::Missing && c.missed > most;
            if gone {
                // should it come back, what it has counted so far is no news
                *since = (*since).max(born + 1);
            }
            !gone
        });
    }

    fn take(&mut self, c: &Connection, stage: Stage, lost_events: u64, epoch: Option<u32>) {
        let counted = epoch == Some(c.epoch);
        let is_new = c.born >= self.since;
        let tracked = match self.connections.entry((c.cookie, c.born)) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                if known.stage == Stage::Closed {
                    return;
                }
                known.advance(c, counted);
                known
            }
            Entry::Vacant(place) => place.insert(Box::new(TrackedConnection {
                last: c.clone(),
                stage,
                flow: (counted && is_new).then(|| c.sample.since(&Sample::birth(c.born))),
                bytes: if is_new { c.vitals.bytes } else { 0 },
                retransmits: if is_new {
                    c.vitals.retransmits.into()
                } else {
                    0
                },
                counted,
                missed: 0,
                lost_events,
            })),
        };
        tracked.stage = stage;
        tracked.missed = 0;
        tracked.lost_events = lost_events;
    }

    /// All connections as of the last reading.
    pub fn connections(&self) -> impl Iterator<Item = &TrackedConnection> {
        let all = self.connections.values().map(Box::as_ref);
        all.filter(|c| c.stage != Stage::Closed || c.missed == 0)
    }
}

impl TrackedConnection {
    /// Another reading begins.
    fn miss(&mut self) {
        if self.stage == Stage::Open {
            self.stage = Stage::Missing;
        }
        self.missed = self.missed.saturating_add(1);
        (self.flow, self.bytes, self.retransmits) = (None, 0, 0);
    }

    fn advance(&mut self, c: &Connection, counted: bool) {
        let then = &self.last;
        let same_counting = self.counted && counted && then.epoch == c.epoch;
        self.flow = same_counting.then(|| c.sample.since(&then.sample));
        self.bytes = c.vitals.bytes.saturating_sub(then.vitals.bytes);
        let again = c.vitals.retransmits.saturating_sub(then.vitals.retransmits);
        self.retransmits = again.into();
        self.counted = counted;
        self.last = c.clone();
    }
}
