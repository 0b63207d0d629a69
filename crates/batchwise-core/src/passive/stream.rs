//! What the headers of one flow's packets say about its gaps: which may be pauses, which end in a
//! retransmission, where the client thought. Reference for `flow_gaps_tcp()` and its like in `lib/gaps.h`.

use super::code::SHIFT;
use super::flight::Cause;
use super::{Algorithm, Gaps, Kind, Params};
use crate::sense::wire::after;

/// What is remembered of a TCP flow from packet to packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Sequence number after the highest payload seen.
    pub next_seq: u32,
    /// The highest acknowledgment seen.
    pub ack: u32,
    /// When a pure ACK brought it, in units of 16 ns after the last packet that counts; 0: none
    /// since then.
    pub acked_at: u32,
}

/// The header of a TCP segment with payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Bytes of payload.
    pub len: u32,
    /// What it acknowledges.
    pub ack: u32,
    /// Length of the whole packet, bytes.
    pub ip_len: u32,
}

impl Stream {
    /// A segment with payload. A request that a response triggered acknowledges that response: a
    /// gap that ends without news of the server is no pause. When a pure ACK has already brought all
    /// that the segment acknowledges, the responses were complete by then. A retransmission says
    /// of responses what a pure ACK does.
    pub fn segment(&mut self, gaps: &mut Gaps, p: &Params, now: u64, s: &Segment) {
        let (first, end) = (gaps.last == 0, s.seq.wrapping_add(s.len));
        if p.algorithm == Algorithm::Auto && !gaps.acks {
            gaps.kind = Kind::Flight;
        }
        gaps.acks = true;
        let behind = !first && !after(end, self.next_seq);
        let news = after(s.ack, self.ack);
        let acked = self.acked_at != 0;
        let at = gaps.last.saturating_add(u64::from(self.acked_at) << SHIFT);
        if gaps.kind == Kind::Flight {
            if behind && gaps.flight.resent(s.len) {
                gaps.resent_in_flight(now, acked || news);
                return self.ack(gaps, now, s.ack);
            }
            if !first && after(s.seq, self.next_seq) {
                gaps.flight.jumped(s.seq.wrapping_sub(self.next_seq));
            }
            let cause = match (first, news, acked) {
                (true, ..) => Cause::None,
                (_, true, _) => Cause::News,
                (_, _, true) => Cause::PureAck(at),
                _ => Cause::None,
            };
            gaps.in_flight(p, now, cause);
        } else {
            if acked && !news && !first {
                gaps.answered(p, now, at);
            }
            gaps.packet(p, now, first || news || acked, behind);
        }
        gaps.after_full = gaps.full_sized(s.ip_len);
        if first || !behind {
            self.next_seq = end;
        }
        if first || news {
            self.ack = s.ack;
        }
        self.acked_at = 0;
    }

    /// A pure ACK: it does not count, but says when a response came.
    pub fn ack(&mut self, gaps: &Gaps, now: u64, ack: u32) {
        if gaps.last != 0 && after(ack, self.ack) {
            self.ack = ack;
            let units = now.saturating_sub(gaps.last) >> SHIFT;
            self.acked_at = u32::try_from(units).unwrap_or(u32::MAX).max(1);
        }
    }
}

/// A datagram, or any packet of which only the length is known.
pub fn datagram(gaps: &mut Gaps, p: &Params, now: u64, ip_len: u32) {
    let marked = !gaps.after_full;
    gaps.packet(p, now, marked, false);
    gaps.after_full = gaps.full_sized(ip_len);
}
