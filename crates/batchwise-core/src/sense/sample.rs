//! One reading of a connection's counters, and the difference of two.

use crate::sense::queue::{QueueState, Window};
use crate::sense::turns::Turns;
use crate::sense::wire::{ITEMS, Item, PeerQueue, QUEUES, Queue};

/// A value per kind of item and queue, indexed by [`Item`] and [`Queue`].
pub type Grid<T> = [[T; 4]; 3];

/// A connection's counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was read, ns of the clock that the queue states use.
    pub at: u64,
    /// This end's queues.
    pub local: Grid<QueueState>,
    /// The other end's, as the exchange told.
    pub peer: Grid<PeerQueue>,
    /// The peer's application's own queue of requests, as the exchange told (§3.3).
    pub peer_hint: PeerQueue,
    /// Requests that were read while an earlier one had no response yet.
    pub overlaps: u32,
    /// Requests that could not be matched with a response, or only by the response's length.
    pub unsure: u32,
    /// Turns of this end.
    pub turns: Turns,
    /// What this end handed over and could not send at once.
    pub unsent: Unsent,
    /// Smallest round trip that TCP has measured lately, ns; 0 when it has none.
    pub rtt_min: u64,
    /// Send times are taken after the call, not at its beginning.
    pub late_send: bool,
}

/// Time in which something was handed over and had not left, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsent {
    /// All of it.
    pub time: u64,
    /// Of it, time in which Nagle's algorithm held less than a segment.
    pub held: u64,
    /// Time in which the peer waited for an acknowledgment that this end delayed.
    pub acks: u64,
}

impl Unsent {
    /// What was added since `earlier`, which may have taken something for unsent that a timer had sent.
    fn since(&self, earlier: &Self) -> Self {
        Self {
            time: self.time.saturating_sub(earlier.time),
            held: self.held.saturating_sub(earlier.held),
            acks: self.acks.saturating_sub(earlier.acks),
        }
    }
}

impl Sample {
    /// A connection before its first event: all counters begin at zero when counting begins.
    pub fn birth(at: u64) -> Self {
        Self {
            at,
            local: [[QueueState::new(at); 4]; 3],
            ..Self::default()
        }
    }

    /// What happened since `earlier`, in the same epoch.
    pub fn since(&self, earlier: &Self) -> Flow {
        let mut then = *earlier;
        for queues in &mut then.local {
            for queue in QUEUES {
                // An ACK that left is noticed at the next event, at its own time: until then
                // nobody knows how long the items at the end of `ackdelay` have really stayed.
                if queue != Queue::AckDelay {
                    queues[queue as usize].touch(earlier.at);
                }
            }
        }
        self.since_pause(&then)
    }

    /// What happened in this epoch; `earlier` was read when the one before had ended.
    pub fn since_pause(&self, earlier: &Self) -> Flow {
        let mut flow = Flow {
            turns: self.turns.since(&earlier.turns),
            unsent: self.unsent.since(&earlier.unsent),
            rtt_min: self.rtt_min,
            late_send: self.late_send,
            ..Flow::default()
        };
        for item in ITEMS {
            for queue in QUEUES {
                let (i, q) = (item as usize, queue as usize);
                let mut now = self.local[i][q];
                if queue != Queue::AckDelay {
                    // a reading with arrivals pending stands where they were last worked off
                    now.touch(self.at.max(earlier.at));
                }
                flow.local[i][q] = now.since(&earlier.local[i][q]);
                flow.peer[i][q] = self.peer[i][q].since(&earlier.peer[i][q], item);
                flow.heard[i][q] = self.peer[i][q].heard.wrapping_sub(earlier.peer[i][q].heard);
            }
        }
        flow.hint = self.peer_hint.since(&earlier.peer_hint, Item::Calls);
        flow.hints_heard = self.peer_hint.heard.wrapping_sub(earlier.peer_hint.heard);
        flow.overlaps = u64::from(self.overlaps.wrapping_sub(earlier.overlaps));
        flow.unsure = u64::from(self.unsure.wrapping_sub(earlier.unsure));
        flow.under_way = self.under_way() - earlier.under_way();
        flow
    }

    fn under_way(&self) -> i64 {
        let queues = [Queue::Turnaround, Queue::Unacked].iter();
        let sizes = queues.map(|&q| self.local[Item::Calls as usize][q as usize].size);
        sizes.map(i64::from).sum()
    }
}

/// What happened on a connection in an interval, or on several of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// This end's queues.
    pub local: Grid<Window>,
    /// The other end's.
    pub peer: Grid<Window>,
    /// The requests of the other end's application, by its own count.
    pub hint: Window,
    /// Options heard about it.
    pub hints_heard: u32,
    /// Options heard about each of the other end's queues.
    pub heard: Grid<u32>,
    /// As in [`Sample`].
    pub overlaps: u64,
    /// As in [`Sample`].
    pub unsure: u64,
    /// Turns of this end.
    pub turns: Turns,
    /// As in [`Sample`].
    pub unsent: Unsent,
    /// By how many more messages were read here and not yet answered, or answered and not yet
    /// acknowledged, at the end than at the beginning.
    pub under_way: i64,
    /// As in [`Sample`].
    pub rtt_min: u64,
    /// As in [`Sample`].
    pub late_send: bool,
}

impl Flow {
    /// This end's window of a queue.
    pub fn here(&self, item: Item, queue: Queue) -> &Window {
        &self.local[item as usize][queue as usize]
    }

    /// The other end's window of a queue.
    pub fn there(&self, item: Item, queue: Queue) -> &Window {
        &self.peer[item as usize][queue as usize]
    }

    /// Adds another connection's flow: every item weighs alike, wherever it passed.
    pub fn add(&mut self, other: &Self) {
        self.rtt_min = smaller_known(self.rtt_min, other.rtt_min);
        self.merge(other, Window::add);
    }

    /// Adds what happened next on the same connection.
    pub fn append(&mut self, next: &Self) {
        self.rtt_min = next.rtt_min;
        self.merge(next, Window::append);
    }

    fn merge(&mut self, other: &Self, window: impl Fn(&mut Window, &Window)) {
        for i in 0..ITEMS.len() {
            for q in 0..QUEUES.len() {
                window(&mut self.local[i][q], &other.local[i][q]);
                window(&mut self.peer[i][q], &other.peer[i][q]);
                self.heard[i][q] = self.heard[i][q].saturating_add(other.heard[i][q]);
            }
        }
        window(&mut self.hint, &other.hint);
        self.hints_heard = self.hints_heard.saturating_add(other.hints_heard);
        self.overlaps += other.overlaps;
        self.unsure += other.unsure;
        self.turns.add(&other.turns);
        self.unsent.time += other.unsent.time;
        self.unsent.held += other.unsent.held;
        self.unsent.acks += other.unsent.acks;
        self.under_way += other.under_way;
        self.late_send |= other.late_send;
    }
}

fn smaller_known(a: u64, b: u64) -> u64 {
    match (a, b) {
        (0, x) | (x, 0) => x,
        (a, b) => a.min(b),
    }
}
