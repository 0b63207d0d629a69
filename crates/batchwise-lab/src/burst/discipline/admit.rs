//! The two that admit bursts whole: batchwise's, and the paper's Algorithm 1.

use batchwise_core::burst::algorithm1::{Algorithm1, Tagged};
use batchwise_core::burst::{self, Admission, Rules, Sender};

use super::fifo::Fifo;
use super::{Discipline, Limit, Spec};
use crate::burst::packet::Packet;

/// Sources that are known at a time.
const SOURCES: usize = 4096;

pub struct Batchwise {
    fifo: Fifo,
    limit: Limit,
    admission: Admission,
    dropped: u64,
}

impl Batchwise {
    pub fn new(spec: &Spec) -> Self {
        let rules = (spec.rules)(Rules::new(spec.limit.bytes, spec.rate));
        Self {
            fifo: Fifo::default(),
            limit: spec.limit,
            admission: Admission::new(rules, SOURCES),
            dropped: 0,
        }
    }
}

/// As a key that senders do not know would scatter it.
fn hash(of: u32) -> u64 {
    let mixed = u64::from(of)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

impl Discipline for Batchwise {
    fn enqueue(&mut self, now: u64, packet: Packet) {
        let sender = Sender {
            source: hash(packet.source),
            flow: hash(packet.flow),
        };
        let asks = burst::Packet {
            bytes: packet.bytes,
            segments: packet.burst.map(|b| b.segments),
        };
        // where packets are what is scarce, each counts as a full-sized one
        let share = self.limit.bytes / self.limit.packets;
        let queued = self.fifo.bytes().max(self.fifo.len() as u32 * share);
        let verdict = self.admission.admit(now, sender, asks, queued);
        match verdict.is_in() && self.fifo.has_room(self.limit, &packet) {
            true => self.fifo.push(packet),
            false => self.dropped += 1,
        }
    }

    fn dequeue(&mut self, _now: u64) -> Option<Packet> {
        self.fifo.pop()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

pub struct Paper {
    fifo: Fifo,
    algorithm: Algorithm1,
    limit: Limit,
    dropped: u64,
}

impl Paper {
    pub fn new(spec: &Spec) -> Self {
        Self {
            fifo: Fifo::default(),
            algorithm: Algorithm1::new(spec.limit.packets, spec.longest, spec.epoch),
            limit: spec.limit,
            dropped: 0,
        }
    }
}

impl Discipline for Paper {
    fn enqueue(&mut self, now: u64, packet: Packet) {
        let tagged = Tagged {
            key: u64::from(packet.flow) << 32 | u64::from(packet.burst.map_or(0, |b| b.id)),
            length: packet.burst.map_or(1, |b| b.length),
            first: packet.burst.is_some_and(|b| b.first),
            last: packet.burst.is_some_and(|b| b.last),
        };
        let admitted = self.algorithm.admit(now, tagged, self.fifo.len() as u32);
        match admitted && self.fifo.has_room(self.limit, &packet) {
            true => self.fifo.push(packet),
            false => self.dropped += 1,
        }
    }

    fn dequeue(&mut self, _now: u64) -> Option<Packet> {
        self.fifo.pop()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
