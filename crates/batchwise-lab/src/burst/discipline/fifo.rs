//! One queue, first in first out: drop-tail, and Random Early Detection (Floyd and Jacobson, 1993).

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::{Discipline, Limit};
use crate::burst::packet::Packet;

/// Packets in order.
#[derive(Default)]
pub struct Fifo {
    packets: VecDeque<Packet>,
    bytes: u32,
}

impl Fifo {
    pub fn push(&mut self, packet: Packet) {
        self.bytes += packet.bytes;
        self.packets.push_back(packet);
    }

    pub fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes;
        Some(packet)
    }

    pub fn len(&self) -> usize {
        self.packets.len()
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    pub fn has_room(&self, limit: Limit, packet: &Packet) -> bool {
        limit.has_room(self.len(), self.bytes, packet.bytes)
    }
}

pub struct DropTail {
    fifo: Fifo,
    limit: Limit,
    dropped: u64,
}

impl DropTail {
    pub fn new(limit: Limit) -> Self {
        Self {
            fifo: Fifo::default(),
            limit,
            dropped: 0,
        }
    }
}

impl Discipline for DropTail {
    fn enqueue(&mut self, _now: u64, packet: Packet) {
        match self.fifo.has_room(self.limit, &packet) {
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

/// RED as published, with the "gentle" ramp that its authors recommend since; in packets.
pub struct Red {
    fifo: Fifo,
    limit: Limit,
    dropped: u64,
    rng: StdRng,
    average: f64,
    /// Packets since the last drop.
    count: f64,
    idle_since: Option<u64>,
    /// To send a full-sized packet, ns.
    packet_time: f64,
}

/// Weight of the queue's length in its average, and the most that is dropped before the upper threshold.
const WEIGHT: f64 = 0.002;
const MOST: f64 = 0.1;

impl Red {
    pub fn new(limit: Limit, rate: u64, seed: u64) -> Self {
        Self {
            fifo: Fifo::default(),
            limit,
            dropped: 0,
            rng: StdRng::seed_from_u64(seed),
            average: 0.0,
            count: 0.0,
            idle_since: Some(0),
            packet_time: 12e12 / rate as f64,
        }
    }

    /// Whether a packet is dropped early.
    fn is_early(&mut self, now: u64) -> bool {
        if let Some(since) = self.idle_since.take() {
            let missed = (now - since) as f64 / self.packet_time;
            self.average *= (1.0 - WEIGHT).powf(missed);
        }
        self.average += WEIGHT * (self.fifo.len() as f64 - self.average);
        // the authors' rule: the upper threshold is three times the lower
        let low = f64::from(self.limit.packets) / 6.0;
        let high = 3.0 * low;
        let base = match self.average {
            a if a < low => {
                self.count = 0.0;
                return false;
            }
            a if a < high => MOST * (a - low) / (high - low),
            a => (MOST + (1.0 - MOST) * (a - high) / high).min(1.0),
        };
        self.count += 1.0;
        let chance = base / (1.0 - self.count * base).max(base);
        let early = self.rng.random_bool(chance.clamp(0.0, 1.0));
        if early {
            self.count = 0.0;
        }
        early
    }
}

impl Discipline for Red {
    fn enqueue(&mut self, now: u64, packet: Packet) {
        let early = self.is_early(now);
        match !early && self.fifo.has_room(self.limit, &packet) {
            true => self.fifo.push(packet),
            false => self.dropped += 1,
        }
    }

    fn dequeue(&mut self, now: u64) -> Option<Packet> {
        let packet = self.fifo.pop();
        if packet.is_none() && self.idle_since.is_none() {
            self.idle_since = Some(now);
        }
        packet
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
