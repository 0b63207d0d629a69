//! An open epoch of one flow and what a packet does to it: the reference for `lib/gaps.h` of
//! batchwise-bpf, which runs in the kernel and is tested against this module.

use super::code::{SHIFT, code_of_units, floor_of, units_of};
use super::flight::{BURSTS, Cause, ENOUGH, Flight};
use super::{Algorithm, MODES, Params};

/// Gaps of `idle_ns` times 2^IDLE_SHIFT are beyond all latencies.
pub const IDLE_SHIFT: u32 = 3;
/// Gaps this many codes from a mode join it: about 25 %.
const WIDTH: u8 = 2;
/// IP length in units of 64 B from which the largest packet may be full-sized: about 1200 B.
const FULL_UNITS: u8 = 18;

/// Gaps of about the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Of the gaps, in units of 16 ns.
    pub sum: u32,
    /// How many.
    pub count: u16,
    /// Of these, how many may be pauses between batches.
    pub marked: u16,
    /// Code of the shortest.
    pub lo: u8,
    /// Code of the longest.
    pub hi: u8,
}

impl Mode {
    /// Mean gap, ns.
    pub fn mean_ns(&self) -> u64 {
        (u64::from(self.sum) << SHIFT) / u64::from(self.count.max(1))
    }

    /// The shortest gap is at least this, ns.
    pub fn min_ns(&self) -> u64 {
        floor_of(self.lo)
    }

    /// The longest gap is less than this, ns.
    pub fn max_ns(&self) -> u64 {
        floor_of(self.hi.saturating_add(1))
    }
}

/// What of a flow is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Modes of gaps.
    #[default]
    Modes,
    /// Requests in flight.
    Flight,
    /// Modes of gaps, for now: the client sends bursts.
    Bursts,
}

/// An open epoch of one flow's gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// ns, the packet that opened it.
    pub start: u64,
    /// ns, the last packet that counts; 0: there was none.
    pub last: u64,
    /// Ascending; `len` of them.
    pub(super) modes: [Mode; MODES],
    pub(super) len: u8,
    /// Requests in flight; with [`Kind::Flight`] instead of modes.
    pub flight: Flight,
    /// What is kept.
    pub kind: Kind,
    /// Gaps that no counter had room for.
    pub discarded: u16,
    /// Gaps beyond all latencies.
    pub idle: u16,
    /// Gaps before a retransmission.
    pub resent: u16,
    /// Marks tell which packets a response triggered (TCP's acknowledgments), not only sizes.
    pub acks: bool,
    /// A counter is at its end.
    pub full: bool,
    /// The last packet was full-sized.
    pub after_full: bool,
    /// The largest packet seen, in units of 64 B of IP length.
    pub largest: u8,
}

impl Gaps {
    /// A flow without a packet; `acks` as in [`Gaps::acks`].
    pub fn new(acks: bool) -> Self {
        Self {
            acks,
            ..Self::default()
        }
    }

    /// A closed epoch's counters as they came from the kernel: `modes` ascending, empty ones left
    /// out.
    pub fn from_modes(modes: &[Mode]) -> Self {
        let mut gaps = Self::default();
        let len = modes.len().min(MODES);
        gaps.modes[..len].copy_from_slice(&modes[..len]);
        gaps.len = len as u8;
        gaps
    }

    /// The modes, ascending.
    pub fn modes(&self) -> &[Mode] {
        &self.modes[..usize::from(self.len)]
    }

    fn kept(&self) -> u32 {
        self.modes().iter().map(|m| u32::from(m.count)).sum()
    }

    fn marked(&self) -> u32 {
        self.modes().iter().map(|m| u32::from(m.marked)).sum()
    }

    /// Notes a packet's IP length; whether it is full-sized: the largest seen, and not small. What
    /// follows one at once is not triggered by a response (the paper's second heuristic, §3.4).
    pub fn full_sized(&mut self, ip_len: u32) -> bool {
        let units = u8::try_from(ip_len / 64).unwrap_or(u8::MAX);
        self.largest = self.largest.max(units);
        units >= FULL_UNITS && units == self.largest
    }

    /// Begins an epoch; keeps when the last packet was, and what is known of the flow.
    pub fn open(&mut self, now: u64) {
        let (gaps, marked) = (self.kept(), self.marked());
        let (kind, flight) = match self.kind {
            Kind::Flight if self.flight.is_of_bursts() => (Kind::Bursts, Flight::default()),
            Kind::Bursts if gaps >= ENOUGH && gaps - marked < gaps / BURSTS => {
                (Kind::Flight, Flight::default())
            }
            kind => (kind, self.flight),
        };
        *self = Self {
            start: now,
            last: self.last,
            flight,
            kind,
            acks: self.acks,
            after_full: self.after_full,
            largest: self.largest,
            ..Self::default()
        };
        self.flight.open();
    }

    /// Whether the epoch is to be closed before a packet that counts is added to the next one.
    pub fn due(&self, p: &Params, now: u64) -> bool {
        let age = now.saturating_sub(self.start);
        self.full
            || age > 0
                && age >= p.epoch_ns
                && (age >= p.max_ns || self.marked() + self.flight.seen() >= p.min_gaps)
    }

    /// All responses had come at `at`, and the client sends only `now`: in between it thought, which
    /// is not latency. The ACK that said so may itself be a delayed one, so a gap that is idle anyway
    /// stays so.
    pub fn answered(&mut self, p: &Params, now: u64, at: u64) {
        if self.last <= at && at <= now && now - self.last < p.idle_ns {
            self.last += now - at;
        }
    }

    /// A packet that counts. `marked`: the gap before it may be a pause between batches, since the
    /// packet before was not full-sized and, with [`Gaps::acks`], this one acknowledges more.
    pub fn packet(&mut self, p: &Params, now: u64, marked: bool, resent: bool) {
        if self.last == 0 {
            self.last = now;
            return;
        }
        let gap = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        if resent {
            self.resent = self.resent.saturating_add(1);
            self.full |= self.resent == u16::MAX;
        } else if gap >> IDLE_SHIFT >= p.idle_ns {
            self.idle = self.idle.saturating_add(1);
            self.full |= self.idle == u16::MAX;
        } else {
            let units = units_of(gap);
            match p.algorithm {
                Algorithm::Auto | Algorithm::Modes => self.place(units, marked),
                Algorithm::Fixed(delta) => self.part(units, usize::from(units > units_of(delta))),
            }
        }
    }

    /// A retransmission, where requests in flight are kept. `acked`: by now the client has acknowledged a
    /// response, whose time is relative to [`Gaps::last`].
    pub(super) fn resent_in_flight(&mut self, now: u64, acked: bool) {
        if !acked {
            self.last = self.last.max(now);
        }
        self.resent = self.resent.saturating_add(1);
        self.full |= self.resent == u16::MAX;
    }

    /// A packet with payload that is seen for the first time, where requests in flight are kept.
    pub(super) fn in_flight(&mut self, p: &Params, now: u64, cause: Cause) {
        let last = self.last;
        let now = now.max(last); // clocks of CPUs differ
        // what a response released is a request, whatever its size
        let begins = !self.after_full || cause != Cause::None;
        let f = &mut self.flight;
        self.last = now;
        f.gaps += u32::from(last != 0);
        if cause != Cause::News && last != 0 && (now - last) >> IDLE_SHIFT >= p.idle_ns {
            self.idle = self.idle.saturating_add(1);
            self.full |= self.idle == u16::MAX;
            if cause == Cause::None {
                f.drained();
            }
        }
        f.packet(now, last, cause, begins);
    }

    fn discard(&mut self, gaps: u16) {
        self.discarded = self.discarded.saturating_add(gaps);
        self.full = true;
    }

    fn add(&mut self, index: usize, units: u32, marked: bool) {
        let mode = &mut self.modes[index];
        match mode.sum.checked_add(units) {
            Some(sum) if mode.count < u16::MAX => {
                mode.sum = sum;
                mode.count += 1;
                mode.marked += u16::from(marked);
                self.full |= mode.count == u16::MAX;
            }
            _ => self.discard(1),
        }
    }

    /// Mode `index` takes in its upper neighbour.
    fn merge(&mut self, index: usize) {
        let upper = self.modes[index + 1];
        let mode = &mut self.modes[index];
        mode.hi = upper.hi;
        match (
            mode.sum.checked_add(upper.sum),
            mode.count.checked_add(upper.count),
        ) {
            (Some(sum), Some(count)) => {
                mode.sum = sum;
                mode.count = count;
                mode.marked += upper.marked;
            }
            _ => self.discard(upper.count),
        }
        self.modes.copy_within(index + 2.., index + 1);
        self.modes[MODES - 1] = Mode::default();
        self.len -= 1;
    }

    /// Algorithm 2 with relative distances. A gap extends a mode that is near, and joins two that
    /// are; else it becomes a mode. Where there is no room, the two neighbours that are closest of
    /// all are joined: the widest valleys stay.
    fn place(&mut self, units: u32, marked: bool) {
        let code = code_of_units(units);
        let modes = self.modes();
        let mut upto = modes.iter().take_while(|m| m.lo <= code).count();
        let below = upto
            .checked_sub(1)
            .map(|i| code.saturating_sub(modes[i].hi));
        let above = modes.get(upto).map(|m| m.lo - code);
        if below == Some(0) {
            return self.add(upto - 1, units, marked);
        }
        let near = |d: Option<u8>| d.is_some_and(|d| d <= WIDTH);
        let (mut down, mut up) = (near(below), near(above));
        if !down && !up && modes.len() == MODES {
            let own = below.unwrap_or(u8::MAX).min(above.unwrap_or(u8::MAX));
            let pair = (0..MODES - 1)
                .filter(|&i| i + 1 != upto)
                .min_by_key(|&i| modes[i + 1].lo - modes[i].hi)
                .filter(|&i| modes[i + 1].lo - modes[i].hi < own);
            match pair {
                Some(i) => {
                    self.merge(i);
                    upto -= usize::from(i < upto);
                }
                None => {
                    down = below.is_some_and(|b| above.is_none_or(|a| b <= a));
                    up = !down;
                }
            }
        }
        if down {
            self.modes[upto - 1].hi = code;
            if up {
                self.merge(upto - 1);
            }
            self.add(upto - 1, units, marked);
        } else if up {
            self.modes[upto].lo = code;
            self.add(upto, units, marked);
        } else {
            self.modes.copy_within(upto..MODES - 1, upto + 1);
            self.modes[upto] = Mode {
                lo: code,
                hi: code,
                ..Mode::default()
            };
            self.len += 1;
            self.add(upto, units, marked);
        }
    }

    /// Algorithm 1: two modes, parted at a threshold; either may be empty.
    fn part(&mut self, units: u32, index: usize) {
        let code = code_of_units(units);
        self.len = 2;
        let mode = &mut self.modes[index];
        if mode.count == 0 {
            (mode.lo, mode.hi) = (code, code);
        }
        mode.lo = mode.lo.min(code);
        mode.hi = mode.hi.max(code);
        self.add(index, units, true);
    }
}
