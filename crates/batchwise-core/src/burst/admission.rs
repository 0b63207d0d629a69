//! Admission over a queue of its own: the decision with its tables of flows and sources.

use super::credit::Credit;
use super::decide::{Lease, Packet, Verdict, decide};
use super::reserved::Reserved;
use super::rules::Rules;
use super::slots::Slots;

/// Who sent a packet: hashes with a key that senders do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Of its source address.
    pub source: u64,
    /// Of its addresses, ports and protocol.
    pub flow: u64,
}

/// Admits bursts to a queue whole, or not at all. All memory is taken at the start.
#[derive(Clone, Debug)]
pub struct Admission {
    rules: Rules,
    reserved: Reserved,
    leases: Slots<Lease>,
    sources: Slots<Credit>,
}

impl Admission {
    /// With room for so many sources, and for as many bursts at a time.
    pub fn new(rules: Rules, sources: usize) -> Self {
        Self {
            rules,
            reserved: Reserved::default(),
            leases: Slots::new(sources),
            sources: Slots::new(sources),
        }
    }

    /// Decides about a packet that arrives at `now` and finds so many bytes in the queue.
    pub fn admit(&mut self, now: u64, sender: Sender, packet: Packet, queued: u32) -> Verdict {
        let (rules, reserved) = (&self.rules, &mut self.reserved);
        let epoch = now >> rules.epoch_shift;
        let (lease, source) = match packet.segments {
            None => (None, None),
            Some(_) => (
                self.leases.entry(sender.flow, |l| !l.is_live(epoch)),
                self.sources.entry(sender.source, |c| c.is_full(now)),
            ),
        };
        decide(rules, reserved, lease, source, now, queued, packet)
    }

    /// Bytes that are promised and have not come.
    pub fn reserved(&mut self, now: u64) -> u32 {
        self.reserved.advance(now >> self.rules.epoch_shift);
        self.reserved.bytes
    }
}
