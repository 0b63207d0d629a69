//! `lib/endpoint.h` beside its reference: the same events, and what they leave.

use batchwise_core::sense::queue::QueueState;
use batchwise_core::sense::wire::{ITEMS, Item, QUEUES, Queue};
use batchwise_reference::{Endpoint, Segment, SockView};

use crate::types::{sense_endpoint, sense_sock_view};
use crate::{bw_twin_drain, bw_twin_read, bw_twin_resync, bw_twin_segment, bw_twin_send};

fn c_view(v: &SockView) -> sense_sock_view {
    sense_sock_view {
        write_seq: v.write_seq,
        rcv_nxt: v.rcv_nxt,
        copied_seq: v.copied_seq,
        rcv_wup: v.rcv_wup,
        last_tx: v.last_tx,
        snd_nxt: v.write_seq,
        nagled: 0,
    }
}

/// Both sides of one connection.
pub struct Pair {
    ours: Endpoint,
    twin: Box<sense_endpoint>,
}

impl Pair {
    /// Both begin at this view.
    pub fn new(now: u64, v: &SockView, snd_una: u32) -> Self {
        let ours = Endpoint::new(now, v, snd_una);
        let mut twin = Box::new(sense_endpoint::default());
        bw_twin_resync(&mut twin, now, &c_view(v), snd_una);
        Self { ours, twin }
    }

    /// Both see what happens.
    pub fn apply(&mut self, now: u64, view: &SockView, event: &Event) {
        let (ours, twin, v) = (&mut self.ours, &mut *self.twin, c_view(view));
        match event {
            Event::Send { end, more, mss } => {
                ours.on_send(now, view, *end, *more, *mss);
                bw_twin_send(twin, now, &v, *end, i32::from(*more), *mss);
            }
            Event::Segment(s) => {
                ours.on_segment(now, view, s);
                let len = s.end.wrapping_sub(s.seq);
                let (segs, push) = (s.segs.into(), i32::from(s.push));
                bw_twin_segment(twin, now, &v, s.seq, len, s.ack, segs, push);
            }
            Event::Read => {
                ours.on_read(now, view);
                bw_twin_read(twin, now, &v);
            }
            Event::Resync { una } => {
                ours.resync(now, view, *una);
                bw_twin_resync(twin, now, &v, *una);
            }
        }
    }

    /// A queue of the reference.
    pub fn queue(&self, item: Item, queue: Queue) -> &QueueState {
        self.ours.queue(item, queue)
    }

    /// Panics where they differ, once the arrivals that wait in the log are worked off.
    pub fn same_counters(&mut self) {
        bw_twin_drain(&mut self.twin);
        for item in ITEMS {
            for queue in QUEUES {
                let q = self.twin.rec.q[item as usize][queue as usize];
                let theirs = QueueState {
                    time: q.time,
                    integral: q.integral,
                    total: q.total,
                    size: q.size,
                };
                assert_eq!(*self.ours.queue(item, queue), theirs, "{item:?} {queue:?}");
            }
        }
        assert_eq!(self.ours.overlaps(), self.twin.rec.overlaps);
    }
}

/// What happens on a socket.
#[derive(Clone, Debug)]
pub enum Event {
    /// The application sends.
    Send {
        /// Sequence number after its bytes.
        end: u32,
        /// More is to come.
        more: bool,
        /// Bytes of a segment.
        mss: u32,
    },
    /// A segment arrives.
    Segment(Segment),
    /// The application reads.
    Read,
    /// Counting begins again after a pause.
    Resync {
        /// Acknowledged up to here.
        una: u32,
    },
}
