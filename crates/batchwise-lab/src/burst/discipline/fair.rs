//! A queue for each flow, served in turn by deficit round robin: fq_codel (RFC 8290), and CAKE without
//! its shaper. Of CAKE the flow isolation and COBALT are here; every sender is a host of its own, so
//! that its isolation of hosts is that of flows.

use std::collections::{HashMap, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::aqm::{Aqm, Cobalt, Codel};
use super::{Discipline, Limit};
use crate::burst::packet::Packet;

/// Bytes of a turn.
const QUANTUM: i64 = 1514;
/// Queues of fq_codel, which flows are hashed to. CAKE's sets of eight ways keep flows apart.
const QUEUES: u32 = 1024;
/// What fq_codel drops at most at once when it is full (RFC 8290, section 4.1).
const BATCH: usize = 64;

struct Queue {
    packets: VecDeque<(u64, Packet)>,
    bytes: u32,
    deficit: i64,
    is_listed: bool,
    aqm: Aqm,
}

pub struct Fair {
    limit: Limit,
    cake: bool,
    salt: u32,
    /// Where the queue of a flow, or of its hash, is.
    index: HashMap<u32, usize>,
    queues: Vec<Queue>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    packets: usize,
    bytes: u32,
    dropped: u64,
    rng: StdRng,
}

impl Fair {
    pub fn fq_codel(limit: Limit, seed: u64) -> Self {
        Self::new(limit, false, seed)
    }

    pub fn cake(limit: Limit, seed: u64) -> Self {
        Self::new(limit, true, seed)
    }

    fn new(limit: Limit, cake: bool, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        Self {
            limit,
            cake,
            salt: rng.random(),
            index: HashMap::new(),
            queues: Vec::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
            dropped: 0,
            rng,
        }
    }

    fn queue_of(&mut self, flow: u32) -> usize {
        let hashed = (flow ^ self.salt).wrapping_mul(0x9e37_79b1) >> 16;
        let key = if self.cake { flow } else { hashed % QUEUES };
        let queues = &mut self.queues;
        *self.index.entry(key).or_insert_with(|| {
            queues.push(Queue {
                packets: VecDeque::new(),
                bytes: 0,
                deficit: 0,
                is_listed: false,
                aqm: match self.cake {
                    true => Aqm::Cobalt(Cobalt::default()),
                    false => Aqm::Codel(Codel::default()),
                },
            });
            queues.len() - 1
        })
    }

    fn pop(&mut self, index: usize) -> Option<(u64, Packet)> {
        let queue = &mut self.queues[index];
        let (since, packet) = queue.packets.pop_front()?;
        queue.bytes -= packet.bytes;
        self.bytes -= packet.bytes;
        self.packets -= 1;
        Some((since, packet))
    }

    /// All queues together are full: the longest gives.
    fn drop_from_longest(&mut self, now: u64) {
        let longest = (0..self.queues.len()).max_by_key(|&i| self.queues[i].bytes);
        let Some(longest) = longest else { return };
        let half = self.queues[longest].bytes / 2;
        let most = if self.cake { 1 } else { BATCH };
        for _ in 0..most {
            self.pop(longest);
            self.dropped += 1;
            if self.queues[longest].bytes <= half {
                break;
            }
        }
        if let Aqm::Cobalt(cobalt) = &mut self.queues[longest].aqm {
            cobalt.full(now);
        }
    }

    /// The queue's next packet that its AQM lets pass.
    fn take(&mut self, now: u64, index: usize) -> Option<Packet> {
        loop {
            let backlog = self.queues[index].bytes;
            let Some((since, packet)) = self.pop(index) else {
                match &mut self.queues[index].aqm {
                    Aqm::Cobalt(cobalt) => cobalt.empty(now),
                    Aqm::Codel(codel) => _ = codel.drops(now, 0, 0),
                }
                return None;
            };
            let queue = &mut self.queues[index];
            let drops = match &mut queue.aqm {
                Aqm::Codel(codel) => codel.drops(now, now - since, backlog),
                // the last packet of a queue stays
                Aqm::Cobalt(cobalt) => {
                    let drops = cobalt.drops(now, now - since, self.rng.random());
                    drops && !queue.packets.is_empty()
                }
            };
            if !drops {
                return Some(packet);
            }
            self.dropped += 1;
        }
    }
}

impl Discipline for Fair {
    fn enqueue(&mut self, now: u64, packet: Packet) {
        let index = self.queue_of(packet.flow);
        let queue = &mut self.queues[index];
        queue.packets.push_back((now, packet));
        queue.bytes += packet.bytes;
        self.bytes += packet.bytes;
        self.packets += 1;
        if !queue.is_listed {
            queue.is_listed = true;
            queue.deficit = QUANTUM;
            self.new.push_back(index);
        }
        while self.packets > self.limit.packets as usize || self.bytes > self.limit.bytes {
            self.drop_from_longest(now);
        }
    }

    fn dequeue(&mut self, now: u64) -> Option<Packet> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            if self.queues[index].deficit <= 0 {
                list.pop_front();
                self.queues[index].deficit += QUANTUM;
                self.old.push_back(index);
                continue;
            }
            if let Some(packet) = self.take(now, index) {
                self.queues[index].deficit -= i64::from(packet.bytes);
                return Some(packet);
            }
            let list = if is_new { &mut self.new } else { &mut self.old };
            list.pop_front();
            if is_new && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                self.queues[index].is_listed = false;
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}
