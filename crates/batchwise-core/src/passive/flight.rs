//! Requests in flight on one TCP flow, by the acknowledgments that its own packets carry: when each
//! was sent, and when a response released the next one. Reference for `lib/flight.h` of batchwise-bpf.
//!
//! Gaps cannot tell four requests in flight from one (docs/research/passive.md). Acknowledgments can, nearly:
//! a request that brings news of the server was released by a response; one that follows it without
//! news belongs to the same burst. Which response answers which request does not matter to the mean:
//! the sum over all of (released - sent) is the same in any order.

use super::code::SHIFT;

/// Most requests in flight that are told apart; with more, the oldest are taken for answered.
pub const FLIGHT: usize = 8;
/// An ACK that comes this long after the request, in units of 16 ns, may be a delayed one
/// (TCP_DELACK_MIN of Linux): when the response came is not known.
const DELACK: u32 = 40_000_000 >> SHIFT;
/// Within this part of the usual latency after an ACK, a request follows the response that it tells of.
const SOON: u32 = 4;
/// With at least half of the requests following another one at once, bursts are what tells: see
/// [`Flight::is_of_bursts`]. Fewer requests than `ENOUGH` tell nothing.
pub(super) const BURSTS: u32 = 2;
pub(super) const ENOUGH: u32 = 64;

/// What a packet is to the requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It acknowledges more than was known: a response came just now.
    News,
    /// A pure ACK had already acknowledged all; the response was complete at that time, ns.
    PureAck(u64),
    /// Neither: it belongs to the burst before it.
    None,
}

/// The requests in flight, and what was seen in the open epoch. Times in units of 16 ns of a clock
/// that wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flight {
    /// When they were sent: a ring, the oldest at `head`.
    pub sent: [u32; FLIGHT],
    /// Sum of the epoch's latencies.
    pub sum: u64,
    /// Sum of those that only a late pure ACK ended, which may have been delayed.
    pub pure_ack_sum: u64,
    /// Latencies in `sum`.
    pub count: u32,
    /// Gaps between packets that count, in the epoch.
    pub gaps: u32,
    /// A moving average of latencies; 0: none yet.
    pub usual: u32,
    /// Requests begun, in as many epochs as it takes to have [`ENOUGH`].
    pub begun: u32,
    /// Of these, how many followed another one without news.
    pub alone: u32,
    /// Latencies in `pure_ack_sum`.
    pub pure_acks: u16,
    /// Bytes below the highest that were not seen yet.
    pub missing: u16,
    /// Position of the oldest.
    pub head: u8,
    /// How many are in flight.
    pub len: u8,
    /// Most that the client has in flight; 0: not known.
    pub cap: u8,
    /// A larger number than `cap` that was seen once.
    pub pending: u8,
    /// Of those in flight, how many do not count, since a retransmission delayed them.
    pub tainted: u8,
    /// Packets that came late, after others: the client may resend them needlessly.
    pub late: u8,
    /// The burst that goes on began with nothing in flight.
    pub grows: bool,
    /// The client was seen with nothing in flight after it had sent: `len` is right.
    pub sure: bool,
}

impl Flight {
    /// Begins an epoch; keeps what is in flight.
    pub fn open(&mut self) {
        (self.sum, self.pure_ack_sum, self.count) = (0, 0, 0);
        (self.gaps, self.pure_acks) = (0, 0);
        if self.begun >= ENOUGH {
            (self.begun, self.alone) = (0, 0);
        }
    }

    /// Latencies in the epoch so far.
    pub fn seen(&self) -> u32 {
        self.count + u32::from(self.pure_acks)
    }

    /// Whether the client sends bursts and waits for all responses, whose number then says nothing of
    /// how many are in flight: gaps tell better.
    pub fn is_of_bursts(&self) -> bool {
        self.begun >= ENOUGH && self.alone >= self.begun / BURSTS
    }

    /// Nothing is in flight any more, and it is not known since when.
    pub fn drained(&mut self) {
        (self.len, self.tainted) = (0, 0);
        (self.missing, self.late) = (0, 0);
        (self.grows, self.sure) = (true, true);
    }

    /// So many bytes before a packet were not seen: they were overtaken, or are lost.
    pub fn jumped(&mut self, bytes: u32) {
        let missing = u32::from(self.missing).saturating_add(bytes);
        self.missing = u16::try_from(missing).unwrap_or(u16::MAX);
    }

    /// A packet of `len` bytes, none beyond the highest: whether it is a retransmission, not one that
    /// was overtaken. For a retransmission all in flight wait, unless the client resends what came
    /// late: then nothing was lost.
    pub fn resent(&mut self, len: u32) -> bool {
        match u16::try_from(len)
            .ok()
            .and_then(|len| self.missing.checked_sub(len))
        {
            Some(rest) => {
                self.missing = rest;
                self.late = self.late.saturating_add(1);
                return false;
            }
            None if self.late > 0 => self.late -= 1,
            None => self.tainted = self.len,
        }
        true
    }

    /// A packet with payload at `now`, ns; `last`: that before it; `begins`: a request begins with
    /// it.
    pub fn packet(&mut self, now: u64, last: u64, cause: Cause, begins: bool) {
        let units = (now >> SHIFT) as u32;
        match cause {
            Cause::News => self.released(units),
            Cause::PureAck(at) => {
                let acked = (at >> SHIFT) as u32;
                let quiet = (now.saturating_sub(at) >> SHIFT) as u32;
                let wait = (at.saturating_sub(last) >> SHIFT) as u32;
                if quiet <= self.usual / SOON {
                    self.released(units); // the ACK came before the client had read all
                } else if quiet <= if self.usual > 0 { self.usual } else { wait } {
                    self.released(acked);
                } else {
                    self.all_answered((last >> SHIFT) as u32, wait);
                }
            }
            Cause::None => self.alone += u32::from(begins && self.len > 0),
        }
        if begins {
            let gap = units.wrapping_sub((last >> SHIFT) as u32);
            self.begin(units, cause != Cause::None || gap <= self.usual / SOON);
        }
    }

    fn oldest(&self) -> u32 {
        self.sent[usize::from(self.head) % FLIGHT]
    }

    /// The oldest was answered at `at`, unless a retransmission says that it is not known.
    fn pop(&mut self, at: u32) {
        let waited = at.wrapping_sub(self.oldest());
        self.head = (self.head + 1) % FLIGHT as u8;
        self.len -= 1;
        if self.tainted > 0 {
            self.tainted -= 1;
            return;
        }
        self.sum += u64::from(waited);
        self.count += 1;
        self.usual = match self.usual {
            0 => waited,
            usual => usual - usual / 8 + waited / 8,
        };
    }

    /// A burst that began with nothing in flight is over: so many the client has in flight at most,
    /// if it shows it twice (responses that came together make a burst look longer).
    fn end_growth(&mut self) {
        if self.grows && self.len > self.cap {
            if self.cap <= 1 || self.len == self.pending {
                self.cap = self.len;
            }
            self.pending = self.len;
        }
    }

    /// A response came at `at`.
    fn released(&mut self, at: u32) {
        self.end_growth();
        if self.len > 0 {
            self.pop(at);
        }
        self.grows = self.len == 0;
    }

    /// The client thought: all responses came in `wait` after the packet at `last`, evenly.
    fn all_answered(&mut self, last: u32, wait: u32) {
        self.end_growth();
        if wait < DELACK {
            let n = u32::from(self.len);
            for i in 1..=n {
                self.pop(last.wrapping_add(wait * i / n));
            }
        } else if self.len == 1 && self.tainted == 0 && self.pure_acks < u16::MAX {
            let at = last.wrapping_add(wait);
            self.pure_ack_sum += u64::from(at.wrapping_sub(self.oldest()));
            self.pure_acks += 1;
        }
        self.drained();
    }

    /// A request begins; `soon` after the packet before, or with news of its own.
    fn begin(&mut self, now: u32, soon: bool) {
        self.begun += 1;
        self.grows |= self.cap == 0;
        // another response came with the last one; long after it, nothing says when
        if usize::from(self.len) == FLIGHT || !self.grows && self.len > 0 && self.len >= self.cap {
            if !soon && self.tainted == 0 {
                self.tainted = 1;
            }
            self.pop(now);
        }
        self.sent[usize::from(self.head + self.len) % FLIGHT] = now;
        self.len += 1;
    }
}
