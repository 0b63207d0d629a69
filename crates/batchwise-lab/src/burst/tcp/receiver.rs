//! The receiving end: what has arrived, and when it is acknowledged (RFC 5681, section 4.2).

use std::collections::BTreeSet;

use crate::burst::packet::Ack;

/// How long an acknowledgment may wait for another segment, ns (Linux' TCP_DELACK_MIN).
pub const DELAYED_ACK: u64 = 40_000_000;
/// So many segments are acknowledged at once in the beginning (Linux' TCP_MAX_QUICKACKS).
const QUICK: u32 = 16;

#[derive(Default)]
pub struct Receiver {
    /// All before this one are there.
    upto: u32,
    beyond: BTreeSet<u32>,
    quick: u32,
    /// The segment that is not acknowledged yet.
    waits: Option<u32>,
}

impl Receiver {
    /// A segment arrives. Whether it is new, and the acknowledgment unless that waits.
    pub fn arrives(&mut self, seq: u32) -> (bool, Option<Ack>) {
        let is_new = seq >= self.upto && self.beyond.insert(seq);
        let in_order = seq == self.upto && self.beyond.len() == 1;
        while self.beyond.remove(&self.upto) {
            self.upto += 1;
        }
        self.quick += 1;
        if in_order && self.quick > QUICK && self.waits.is_none() {
            self.waits = Some(seq);
            return (is_new, None);
        }
        self.waits = None;
        let upto = self.upto;
        (is_new, Some(Ack { upto, seq }))
    }

    /// The acknowledgment that has waited long enough.
    pub fn late(&mut self) -> Option<Ack> {
        let seq = self.waits.take()?;
        Some(Ack {
            upto: self.upto,
            seq,
        })
    }

    /// Segments that arrived in order.
    pub fn upto(&self) -> u32 {
        self.upto
    }
}
