//! What each event on a TCP socket does to its queues: the reference for `lib/endpoint.h` and
//! `lib/queue.h` of batchwise-bpf, which run in the kernel and are tested against this crate. Only
//! tests use it.

pub mod packet;

use std::collections::VecDeque;

use batchwise_core::sense::queue::QueueState;
use batchwise_core::sense::wire::{Item, Queue, after};

/// Marks kept of what is not acknowledged and of what is not read; a full list grows its newest mark instead.
pub const MARKS: usize = 32;

/// Likewise of what this end has not acknowledged.
const ACK_MARKS: usize = 2;

/// An acknowledgment that leaves sooner than this after an event was sent by that event, later
/// ones by the delayed-ACK timer (at least 2 jiffies with TCP_BPF_DELACK_MAX, 40 ms without).
pub const DELACK_FLOOR_NS: u64 = 4_000_000;

/// The socket's own idea of its streams, read at an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SockView {
    /// The next byte the application hands over.
    pub write_seq: u32,
    /// Received in order up to here.
    pub rcv_nxt: u32,
    /// Read by the application up to here.
    pub copied_seq: u32,
    /// `rcv_nxt` when the last acknowledgment left.
    pub rcv_wup: u32,
    /// When the last segment left, ns.
    pub last_tx: u64,
}

/// A segment that arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Sequence number after its payload.
    pub end: u32,
    /// What it acknowledges.
    pub ack: u32,
    /// PSH is set: the sender's call ended here.
    pub push: bool,
    /// Segments on the wire that it stands for (GSO).
    pub segs: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    end: u32,
    calls: u64,
    segs: u64,
}

/// Where items end in a stream, as far as one consumer has not passed them.
#[derive(Clone, Debug, Default)]
struct Marks(VecDeque<Mark>);

impl Marks {
    fn push(&mut self, most: usize, mark: Mark) {
        let full = self.0.len() >= most;
        match self.0.back_mut().filter(|_| full) {
            Some(last) => {
                last.end = mark.end;
                last.calls += mark.calls;
                last.segs += mark.segs;
            }
            None => self.0.push_back(mark),
        }
    }

    fn pop_to(&mut self, upto: u32) -> (u64, u64) {
        let (mut calls, mut segs) = (0, 0);
        while let Some(m) = self.0.front().filter(|m| !after(m.end, upto)) {
            calls += m.calls;
            segs += m.segs;
            self.0.pop_front();
        }
        (calls, segs)
    }
}

fn earlier(a: u32, b: u32) -> u32 {
    if after(a, b) { b } else { a }
}

/// One end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    queues: [[QueueState; 4]; 3],
    last: u64,
    una: u32,
    wend: u32,
    rcv: u32,
    read: u32,
    acked: u32,
    out: Marks,
    in_read: Marks,
    in_ack: Marks,
    overlaps: u32,
}

impl Endpoint {
    /// Starts counting at `now`; what is queued already enters now, as one call.
    pub fn new(now: u64, v: &SockView, snd_una: u32) -> Self {
        let mut e = Self::default();
        e.resync(now, v, snd_una);
        e
    }

    /// Begins to count again after a pause: totals and integrals go on from where they were.
    pub fn resync(&mut self, now: u64, v: &SockView, snd_una: u32) {
        for q in self.queues.iter_mut().flatten() {
            q.time = now;
            q.size = 0;
        }
        self.last = now;
        self.una = snd_una;
        self.wend = v.write_seq;
        self.rcv = v.rcv_nxt;
        self.read = v.copied_seq;
        self.acked = v.rcv_nxt;
        (self.out, self.in_read, self.in_ack) = Default::default();
        let one = |end| Mark {
            end,
            calls: 1,
            segs: 1,
        };
        let unacked = u64::from(v.write_seq.wrapping_sub(snd_una));
        if unacked > 0 {
            self.enter(Queue::Unacked, now, [1, unacked, 1]);
            self.out.push(MARKS, one(self.wend));
        }
        let unread = u64::from(v.rcv_nxt.wrapping_sub(v.copied_seq));
        if unread > 0 {
            self.enter(Queue::Unread, now, [1, unread, 1]);
            self.in_read.push(MARKS, one(self.rcv));
        }
    }

    /// The state of a queue.
    pub fn queue(&self, item: Item, queue: Queue) -> &QueueState {
        &self.queues[item as usize][queue as usize]
    }

    /// Requests that were read while an earlier one had no response yet.
    pub fn overlaps(&self) -> u32 {
        self.overlaps
    }

    // `items`: calls, bytes, segments, the order of `wire::ITEMS`
    fn enter(&mut self, queue: Queue, now: u64, items: [u64; 3]) {
        for (q, n) in self.queues.iter_mut().zip(items) {
            if n > 0 {
                q[queue as usize].track(now, n as i64);
            }
        }
    }

    fn leave(&mut self, queue: Queue, now: u64, items: [u64; 3]) {
        for (q, n) in self.queues.iter_mut().zip(items) {
            if n > 0 {
                q[queue as usize].track(now, -(n as i64));
            }
        }
    }

    fn arrive(&mut self, now: u64, end: u32, calls: u64, segs: u64) {
        let bytes = u64::from(end.wrapping_sub(self.rcv));
        let items = [calls, bytes, segs];
        self.enter(Queue::Unread, now, items);
        self.enter(Queue::AckDelay, now, items);
        let mark = Mark { end, calls, segs };
        self.in_read.push(MARKS, mark);
        self.in_ack.push(ACK_MARKS, mark);
        self.rcv = end;
    }

    /// Catches up with arrivals that were not shown: the handshake's last segment, out-of-order
    /// ones that are now in order.
    fn catch_up(&mut self, v: &SockView) {
        if after(v.rcv_nxt, self.rcv) {
            self.arrive(self.last, v.rcv_nxt, 1, 1);
        }
    }

    /// An acknowledgment may have left since the last event, which has no hook of its own.
    fn settle(&mut self, now: u64, rcv_wup: u32, last_tx: u64) {
        if after(rcv_wup, self.acked) {
            let upto = earlier(rcv_wup, self.rcv);
            // a paced socket's stamp is when its next segment may leave: in the future
            let last_tx = last_tx.min(now);
            let timer = last_tx > self.last.wrapping_add(DELACK_FLOOR_NS);
            let left = if timer { last_tx } else { self.last };
            let (calls, segs) = self.in_ack.pop_to(upto);
            let bytes = u64::from(upto.wrapping_sub(self.acked));
            self.leave(Queue::AckDelay, left, [calls, bytes, segs]);
            self.acked = upto;
        }
        self.last = now;
    }

    /// The application hands over bytes up to `end`; with `more` (MSG_MORE) the message goes on. A
    /// call that took only a part is continued by the next.
    pub fn on_send(&mut self, now: u64, v: &SockView, end: u32, more: bool, mss: u32) {
        self.catch_up(v);
        self.settle(now, v.rcv_wup, v.last_tx);
        if end == self.wend {
            return;
        }
        if after(self.wend, v.write_seq)
            && let Some(last) = self.out.0.back_mut()
        {
            last.end = end;
            let q = &mut self.queues[Item::Bytes as usize][Queue::Unacked as usize];
            q.touch(now);
            q.size = q.size.wrapping_add(end.wrapping_sub(self.wend));
            self.wend = end;
            return;
        }
        if !after(end, self.wend) {
            return;
        }
        let bytes = u64::from(end.wrapping_sub(self.wend));
        let segs = match mss {
            0 => 1,
            _ => bytes.div_ceil(mss.into()),
        };
        let calls = u64::from(!more);
        self.enter(Queue::Unacked, now, [calls, bytes, segs]);
        self.out.push(MARKS, Mark { end, calls, segs });
        self.wend = end;
        self.leave(Queue::Turnaround, now, [u32::MAX.into(); 3]);
    }

    /// The peer has acknowledged up to `ack`.
    pub fn on_ack(&mut self, now: u64, ack: u32) {
        let ack = earlier(ack, self.wend);
        if !after(ack, self.una) {
            return;
        }
        let bytes = u64::from(ack.wrapping_sub(self.una));
        let (calls, segs) = self.out.pop_to(ack);
        self.leave(Queue::Unacked, now, [calls, bytes, segs]);
        self.una = ack;
    }

    /// A segment arrives; the socket has not processed it yet.
    pub fn on_segment(&mut self, now: u64, v: &SockView, s: &Segment) {
        // arrivals are logged with a coarser stamp, in 32 bits
        let since = now.saturating_sub(v.last_tx).div_ceil(1 << 10);
        let is_near = since < u32::MAX.into();
        let last_tx = if is_near {
            now.saturating_sub(since << 10)
        } else {
            0
        };
        self.settle(now, v.rcv_wup, last_tx);
        self.on_ack(now, s.ack);
        if !after(s.seq, self.rcv) && after(s.end, self.rcv) {
            self.arrive(now, s.end, u64::from(s.push), s.segs.into());
        }
    }

    /// The application has read.
    pub fn on_read(&mut self, now: u64, v: &SockView) {
        self.catch_up(v);
        self.settle(now, v.rcv_wup, v.last_tx);
        let upto = earlier(v.copied_seq, self.rcv);
        if !after(upto, self.read) {
            return;
        }
        let bytes = u64::from(upto.wrapping_sub(self.read));
        let (calls, segs) = self.in_read.pop_to(upto);
        self.leave(Queue::Unread, now, [calls, bytes, segs]);
        if calls > 0 && self.queue(Item::Calls, Queue::Turnaround).size > 0 {
            self.overlaps += calls as u32;
        }
        self.enter(Queue::Turnaround, now, [calls, bytes, segs]);
        self.read = upto;
    }
}
