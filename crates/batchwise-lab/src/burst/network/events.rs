//! What is to happen, in order of time; what is due at the same time, in the order it was planned.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::burst::packet::{Ack, Packet};

#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A flow begins.
    Begin(usize),
    /// A source sends.
    Emit(usize),
    /// A packet reaches a hop's queue.
    Arrive(usize, Packet),
    /// A hop's link is free again.
    Free(usize),
    /// A packet reaches its receiver.
    Deliver(Packet),
    /// An acknowledgment has waited long enough.
    Late(usize),
    /// An answer reaches the sender; none: of the handshake.
    Answer(usize, Option<Ack>),
    /// A sender's timer.
    Wake(usize),
}

struct Planned {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Default)]
pub struct Events {
    planned: BinaryHeap<Reverse<Planned>>,
    count: u64,
}

impl Events {
    pub fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        let number = self.count;
        self.planned.push(Reverse(Planned { at, number, event }));
    }

    pub fn next(&mut self) -> Option<(u64, Event)> {
        self.planned.pop().map(|Reverse(p)| (p.at, p.event))
    }
}
