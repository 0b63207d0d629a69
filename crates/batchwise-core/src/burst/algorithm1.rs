//! The paper's Algorithm 1 (Schinazi, section 3.3), as published: for comparison. It counts packets,
//! reserves 70 % of what is to come, holds every packet against the longest super-packet, and keeps
//! state in two tables of which the older is destroyed each epoch. What expires so is never taken off
//! `spReserved`: the paper does not say that it is, and the queue shrinks with it.

use alloc::collections::BTreeMap;
use core::mem;

/// A packet, with what the paper carries in the TOS byte and the fragment ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// Of source, destination and super-packet identifier.
    pub key: u64,
    /// Packets of its super-packet: 1 of a regular packet.
    pub length: u32,
    /// It is the first of its super-packet.
    pub first: bool,
    /// It is the last of it.
    pub last: bool,
}

/// The algorithm's state.
#[derive(Clone, Debug)]
pub struct Algorithm1 {
    queue_size: u32,
    longest: u32,
    epoch: u64,
    epoch_ends: u64,
    reserved: u32,
    /// Packets left by key: of this epoch, and of the one before. As each reserves one at least, which is
    /// never given back if it does not come, there are no more than 1.5 of the queue's places.
    tables: [BTreeMap<u64, u32>; 2],
}

impl Algorithm1 {
    /// For a queue of so many packets and super-packets of at most so many; an epoch, ns, is twice the
    /// largest round-trip time.
    pub fn new(queue_size: u32, longest: u32, epoch: u64) -> Self {
        Self {
            queue_size,
            longest,
            epoch,
            epoch_ends: epoch,
            reserved: 0,
            tables: Default::default(),
        }
    }

    /// Whether the packet goes into the queue, which holds so many.
    pub fn admit(&mut self, now: u64, packet: Tagged, queued: u32) -> bool {
        while now >= self.epoch_ends {
            self.tables[1] = mem::take(&mut self.tables[0]);
            self.epoch_ends += self.epoch;
        }
        if packet.length <= 1 || packet.first {
            return self.begin(packet, queued);
        }
        let Some(table) = self.tables.iter_mut().find(|t| t.contains_key(&packet.key)) else {
            return false;
        };
        let left = table.get(&packet.key).map_or(0, |left| left - 1);
        self.reserved -= 1;
        if left == 0 || packet.last {
            self.reserved -= left;
            table.remove(&packet.key);
        } else {
            table.insert(packet.key, left);
        }
        true
    }

    fn begin(&mut self, packet: Tagged, queued: u32) -> bool {
        let space = f64::from(self.queue_size) - f64::from(queued);
        let weighted = f64::from(self.reserved) * 0.7;
        if space - weighted < f64::from(self.longest) {
            return false;
        }
        let left = packet.length.saturating_sub(1);
        self.reserved += left;
        if left > 0 {
            self.tables[0].insert(packet.key, left);
        }
        true
    }
}
