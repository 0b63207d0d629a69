//! The exchange's TCP option: one queue's three counters in 16 bytes (docs/research/exchange.md). The C twin
//! is `lib/wire.h` of batchwise-bpf.

use crate::sense::queue::{QueueState, Window};

/// RFC 4727: TCP option kind for experiments.
pub const KIND: u8 = 253;
/// RFC 6994 experiment identifier: "BW".
pub const EXID: u16 = 0x4257;
/// Length of the option that offers or accepts the exchange, on SYN and SYN-ACK.
pub const HELLO_LEN: usize = 4;
/// Length of the option that carries one queue.
pub const LEN: usize = 16;
/// Wire times count 2¹⁰ ns.
pub const TIME_SHIFT: u32 = 10;
/// Bytes are integrated as KiB.
pub const BYTES_SHIFT: u32 = 10;
const TIME_MASK: u32 = (1 << 28) - 1;

/// What a queue counts; the discriminant is its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Item {
    /// Send calls; at a receiver, the messages they became.
    Calls = 0,
    /// Bytes of the stream.
    Bytes = 1,
    /// Segments.
    Segments = 2,
}

/// All kinds of items, in wire order.
pub const ITEMS: [Item; 3] = [Item::Calls, Item::Bytes, Item::Segments];

/// The queues of an endpoint; the discriminant is the number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Queue {
    /// Handed over by the application, not yet acknowledged by the peer.
    Unacked = 0,
    /// Received, not yet read by the application.
    Unread = 1,
    /// Received, not yet acknowledged to the peer.
    AckDelay = 2,
    /// Read by the application, not yet followed by a send.
    Turnaround = 3,
}

/// All queues, in wire order.
pub const QUEUES: [Queue; 4] = [
    Queue::Unacked,
    Queue::Unread,
    Queue::AckDelay,
    Queue::Turnaround,
];

/// A decoded option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// What is counted.
    pub item: Item,
    /// Which queue.
    pub queue: Queue,
    /// 28 bits of [`QueueState::time`], in 2¹⁰ ns.
    pub time: u32,
    /// The low 32 bits of [`QueueState::total`].
    pub total: u32,
    /// 32 bits of [`QueueState::integral`], in item·2¹⁰ ns (KiB·2¹⁰ ns for bytes).
    pub integral: u32,
}

/// What follows the kind, the length and the identifier of an option of ours.
fn words(opt: &[u8; LEN]) -> Option<[u32; 3]> {
    let word = |i: usize| u32::from_be_bytes([opt[i], opt[i + 1], opt[i + 2], opt[i + 3]]);
    let ours = opt[0] == KIND && opt[1] as usize == LEN && opt[2..4] == EXID.to_be_bytes();
    ours.then(|| [4, 8, 12].map(word))
}

fn integral_shift(item: Item) -> u32 {
    TIME_SHIFT + if item == Item::Bytes { BYTES_SHIFT } else { 0 }
}

impl Tuple {
    /// What `q` looks like on the wire.
    pub fn new(item: Item, queue: Queue, q: &QueueState) -> Self {
        Self {
            item,
            queue,
            time: (q.time >> TIME_SHIFT) as u32 & TIME_MASK,
            total: q.total as u32,
            integral: (q.integral >> integral_shift(item)) as u32,
        }
    }

    /// The option's bytes, kind and length included.
    pub fn encode(&self) -> [u8; LEN] {
        let head = u32::from(self.item as u8) << 30 | u32::from(self.queue as u8) << 28 | self.time;
        let mut opt = [0; LEN];
        opt[0] = KIND;
        opt[1] = LEN as u8;
        opt[2..4].copy_from_slice(&EXID.to_be_bytes());
        opt[4..8].copy_from_slice(&head.to_be_bytes());
        opt[8..12].copy_from_slice(&self.total.to_be_bytes());
        opt[12..16].copy_from_slice(&self.integral.to_be_bytes());
        opt
    }

    /// `None` for anything that is not such an option.
    pub fn decode(opt: &[u8; LEN]) -> Option<Self> {
        let [head, total, integral] = words(opt)?;
        Some(Self {
            item: *ITEMS.get((head >> 30) as usize)?,
            queue: QUEUES[(head >> 28 & 3) as usize],
            time: head & TIME_MASK,
            total,
            integral,
        })
    }
}

/// A queue of the peer: the last raw counters heard, and wide ones that they add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerQueue {
    /// 2¹⁰ ns since the first option heard.
    pub time: u64,
    /// As on the wire, but wide.
    pub integral: u64,
    /// Items that left.
    pub total: u64,
    /// Options heard about this queue.
    pub heard: u32,
    /// The last raw time.
    pub raw_time: u32,
    /// The last raw integral.
    pub raw_integral: u32,
    /// The last raw total.
    pub raw_total: u32,
}

impl PeerQueue {
    /// Adds what `t` brings; `false` for an option that is not newer than the last (a TSO burst
    /// repeats its option in each segment, and retransmissions reorder). Counters begin at zero
    /// with the connection, so the first one heard is itself a difference.
    pub fn add(&mut self, t: &Tuple) -> bool {
        let dt = t.time.wrapping_sub(self.raw_time) & TIME_MASK;
        if self.heard > 0 {
            if dt == 0 || dt > TIME_MASK / 2 {
                return false;
            }
            self.time += u64::from(dt);
        }
        let total = t.total.wrapping_sub(self.raw_total);
        let integral = t.integral.wrapping_sub(self.raw_integral);
        self.total = self.total.wrapping_add(total.into());
        self.integral = self.integral.wrapping_add(integral.into());
        (self.raw_time, self.raw_total, self.raw_integral) = (t.time, t.total, t.integral);
        self.heard += 1;
        true
    }

    /// What happened between `earlier` and this, in ns and items.
    pub fn since(&self, earlier: &Self, item: Item) -> Window {
        let time = self.time.wrapping_sub(earlier.time);
        let integral = self.integral.wrapping_sub(earlier.integral);
        Window {
            time: time.saturating_mul(1 << TIME_SHIFT),
            integral: integral.saturating_mul(1 << integral_shift(item)),
            total: self.total.wrapping_sub(earlier.total),
        }
    }
}

/// Sequence numbers wrap (RFC 1982): whether `a` is after `b`.
pub fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tuple(time: u32, total: u32, integral: u32) -> Tuple {
        Tuple {
            item: Item::Calls,
            queue: Queue::Unread,
            time,
            total,
            integral,
        }
    }

    #[test]
    fn an_option_has_the_documented_bytes() {
        let t = Tuple {
            item: Item::Bytes,
            queue: Queue::AckDelay,
            time: 0x0123_4567,
            total: 0x89ab_cdef,
            integral: 0x0102_0304,
        };
        assert_eq!(
            t.encode(),
            [
                253, 16, 0x42, 0x57, 0x61, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 2, 3, 4
            ]
        );
    }

    #[test]
    fn what_is_not_our_option_is_not_decoded() {
        let good = tuple(1, 2, 3).encode();
        for i in 0..4 {
            let mut bad = good;
            bad[i] ^= 1;
            assert_eq!(Tuple::decode(&bad), None);
        }
        let mut unknown_item = good;
        unknown_item[4] |= 0xc0;
        assert_eq!(Tuple::decode(&unknown_item), None);
    }

    #[test]
    fn counters_that_wrap_keep_adding_up() {
        let mut p = PeerQueue::default();
        assert!(p.add(&tuple(TIME_MASK - 1, u32::MAX - 4, u32::MAX - 9)));
        let before = p;
        assert!(p.add(&tuple(8, 5, 90)));
        assert_eq!(
            p.since(&before, Item::Calls),
            Window {
                time: 10 << 10,
                integral: 100 << 10,
                total: 10
            }
        );
    }

    #[test]
    fn copies_and_old_options_are_not_counted_twice() {
        let mut p = PeerQueue::default();
        assert!(p.add(&tuple(100, 10, 50)));
        let once = p;
        assert!(!p.add(&tuple(100, 10, 50)));
        assert!(!p.add(&tuple(99, 9, 40)));
        assert_eq!(p, once);
    }

    proptest! {
        #[test]
        fn options_round_trip(item in 0usize..3, queue in 0usize..4, time in 0u32..1 << 28, total: u32, integral: u32) {
            let t = Tuple { item: ITEMS[item], queue: QUEUES[queue], time, total, integral };
            prop_assert_eq!(Tuple::decode(&t.encode()), Some(t));
        }

        #[test]
        fn the_wide_counters_follow_the_peers_own(steps in proptest::collection::vec((1u64..1 << 30, 0u64..1 << 30, 0u64..1 << 31), 1..40)) {
            let mut q = QueueState::new(0);
            let mut p = PeerQueue::default();
            for (dt, items, area) in steps {
                q.time += dt.max(1 << TIME_SHIFT);
                q.total += items;
                q.integral += area << TIME_SHIFT;
                p.add(&Tuple::new(Item::Calls, Queue::Unacked, &q));
            }
            prop_assert_eq!(p.total, q.total);
            prop_assert_eq!(p.integral, q.integral >> TIME_SHIFT);
        }
    }
}
