//! Queue disciplines: which packets a router keeps, and which leaves next.

mod admit;
mod aqm;
mod fair;
mod fifo;

use super::packet::Packet;
use batchwise_core::burst::Rules;
use serde::{Deserialize, Serialize};

/// A queue before a link.
pub trait Discipline {
    /// A packet arrives: it is kept, or it or others are dropped.
    fn enqueue(&mut self, now: u64, packet: Packet);
    /// The packet that leaves next.
    fn dequeue(&mut self, now: u64) -> Option<Packet>;
    /// Packets that were dropped so far.
    fn dropped(&self) -> u64;
}

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub packets: u32,
    pub bytes: u32,
}

impl Limit {
    /// So many packets of 1500 B.
    pub fn full_sized(packets: u32) -> Self {
        let bytes = packets * 1500;
        Self { packets, bytes }
    }

    fn has_room(self, packets: usize, bytes: u32, next: u32) -> bool {
        packets < self.packets as usize && bytes + next <= self.bytes
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Which {
    #[serde(rename = "drop-tail")]
    DropTail,
    #[serde(rename = "RED")]
    Red,
    #[serde(rename = "fq_codel")]
    FqCodel,
    #[serde(rename = "CAKE")]
    Cake,
    #[serde(rename = "Algorithm 1")]
    Algorithm1,
    #[serde(rename = "batchwise")]
    Batchwise,
}

impl Which {
    pub const ALL: [Self; 6] = [
        Self::DropTail,
        Self::Red,
        Self::FqCodel,
        Self::Cake,
        Self::Algorithm1,
        Self::Batchwise,
    ];
}

/// A queue that is to be built.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub which: Which,
    pub limit: Limit,
    /// Of the link behind it, bits a second.
    pub rate: u64,
    /// The paper's longest super-packet.
    pub longest: u32,
    /// Twice the largest round-trip time, ns: the paper's epoch.
    pub epoch: u64,
    /// Changes the rules of batchwise, to show what one of them is good for.
    pub rules: fn(Rules) -> Rules,
}

impl Spec {
    pub fn build(&self, seed: u64) -> Box<dyn Discipline> {
        match self.which {
            Which::DropTail => Box::new(fifo::DropTail::new(self.limit)),
            Which::Red => Box::new(fifo::Red::new(self.limit, self.rate, seed)),
            Which::FqCodel => Box::new(fair::Fair::fq_codel(self.limit, seed)),
            Which::Cake => Box::new(fair::Fair::cake(self.limit, seed)),
            Which::Algorithm1 => Box::new(admit::Paper::new(self)),
            Which::Batchwise => Box::new(admit::Batchwise::new(self)),
        }
    }
}
