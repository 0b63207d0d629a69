//! The agent's side of the shared memory: takes over a segment, trusts nothing in it, and reads it
//! without ever making its writers wait.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;

use crate::clock;
use crate::layout::{
    self, CLOCK_MONOTONIC, CLOCK_TSC, Header, LARGEST, MAGIC, Shard, Sums, VERSION,
};
use crate::segment::SEALS;

pub use crate::clock::monotonic_ns;
pub use crate::layout::{Identity, Registration};

/// Why a segment is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It could be made smaller while it is read.
    NotSealed,
    /// It is no memory of the size that its shards need, or too large.
    WrongSize,
    /// It does not begin as a segment of this version does.
    WrongVersion,
    /// Its clock is not one that this machine trusts, or not in step with it.
    WrongClock,
    /// It cannot be mapped.
    Unmappable,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotSealed => "its memory is not sealed against shrinking",
            Self::WrongSize => "its memory has a size that no segment has",
            Self::WrongVersion => "its memory is not of this version of batchwise-hint",
            Self::WrongClock => "its clock is not this machine's",
            Self::Unmappable => "its memory cannot be mapped",
        })
    }
}

/// How the clocks go: a pair of times to which later ones are compared.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    clock: u32,
    base: (u64, u64),
    last: (u64, u64),
    /// Of the time before `base`; 0: there was none.
    ns_per_tick: f64,
}

/// A rate taken over less time than this would be too rough.
const SHORTEST_BASE_NS: u64 = 10_000_000;
/// No clock drifts so much, as a share: it stood still, or went on while the other did.
const JUMP: f64 = 0.01;
/// How far a segment's clock may seem off, ns, …
const CLOCK_SLACK_NS: f64 = 10e6;
/// … and as a share of its age: CLOCK_MONOTONIC may be slewed by 500 ppm.
const CLOCK_DRIFT: f64 = 1e-3;

impl Calibration {
    /// Begins now. Waits for 10 ms, so that rates can be told at once.
    pub fn start() -> Self {
        let clock = clock::kind();
        let base = clock::pair(clock);
        thread::sleep(Duration::from_nanos(SHORTEST_BASE_NS));
        Self {
            clock,
            base,
            last: base,
            ns_per_tick: 0.0,
        }
    }

    /// Notices that the machine was suspended, when CLOCK_MONOTONIC stands and a counter may go on or
    /// begin anew. To be called again and again.
    pub fn follow(&mut self) {
        self.follow_to(clock::pair(self.clock));
    }

    fn follow_to(&mut self, now: (u64, u64)) {
        if now.1.wrapping_sub(self.last.1) < SHORTEST_BASE_NS {
            return;
        }
        let before = match self.last == self.base {
            true => self.ns_per_tick,
            false => rate(self.base, self.last),
        };
        let since = rate(self.last, now);
        if before > 0.0 && (since / before - 1.0).abs() > JUMP {
            self.ns_per_tick = before;
            self.base = now;
        }
        self.last = now;
    }

    /// The length of one tick of a clock, ns.
    fn ns_per_tick(&self, clock: u32) -> f64 {
        if clock == CLOCK_MONOTONIC {
            return 1.0;
        }
        let now = clock::pair(self.clock);
        let is_long = now.1.wrapping_sub(self.base.1) >= SHORTEST_BASE_NS;
        match is_long || self.ns_per_tick == 0.0 {
            true => rate(self.base, now),
            false => self.ns_per_tick,
        }
    }

    /// Whether `ticks` of a segment's clock and `ns` of CLOCK_MONOTONIC were at the same moment, not
    /// in the future.
    fn agrees(&self, clock: u32, ticks: u64, ns: u64) -> bool {
        let now = monotonic_ns();
        let same = match clock {
            CLOCK_MONOTONIC => ticks == ns,
            CLOCK_TSC if self.clock == CLOCK_TSC => {
                let by_ticks = ticks.wrapping_sub(self.base.0) as i64 as f64;
                let by_ns = ns.wrapping_sub(self.base.1) as i64 as f64;
                let off = (by_ticks * self.ns_per_tick(clock) - by_ns).abs();
                // the segment may be older than a suspend
                off <= CLOCK_SLACK_NS + CLOCK_DRIFT * by_ns.abs() + clock::suspended_ns() as f64
            }
            _ => false,
        };
        same && ns <= now
    }
}

/// ns a tick from one pair of times to a later one.
fn rate((ticks, ns): (u64, u64), later: (u64, u64)) -> f64 {
    let passed = later.0.wrapping_sub(ticks).max(1);
    later.1.wrapping_sub(ns) as f64 / passed as f64
}

/// What a segment says at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Over all shards.
    pub sums: Sums,
    /// The segment's clock, ticks: no event in `sums` is later.
    pub ticks: u64,
    /// The same moment, ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// Length of a tick, ns.
    pub ns_per_tick: f64,
    /// The application has closed the handle: this is all that there was.
    pub closed: bool,
}

/// A segment that was taken over.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<Header>,
    size: usize,
    clock: u32,
    anchor_ticks: u64,
    /// What each shard last said when it was not being written.
    shards: Vec<Sums>,
}

// SAFETY: the memory is only read, and only through atomics.
unsafe impl Send for Mapping {}

/// Reading all shards takes about a microsecond. What took longer was interrupted; events that
/// happened meanwhile may be seen at one shard and missed at another, so it is done again.
const UNDISTURBED_NS: f64 = 20_000.0;
/// How often it is tried.
const TRIES: usize = 8;
/// How often a shard that is being written is read again.
const SHARD_TRIES: usize = 64;

impl Mapping {
    /// Takes over the segment in `memory`, which may be closed afterwards.
    ///
    /// # Errors
    /// It is no segment that can be read safely.
    pub fn new(memory: &impl AsFd, calibration: &Calibration) -> Result<Self, Refused> {
        let seals = fcntl(memory, FcntlArg::F_GET_SEALS).map_err(|_: Errno| Refused::NotSealed)?;
        if !SealFlag::from_bits_retain(seals).contains(SEALS) {
            return Err(Refused::NotSealed);
        }
        let size = fstat(memory).map_err(|_| Refused::WrongSize)?.st_size;
        let size = usize::try_from(size).map_err(|_| Refused::WrongSize)?;
        // more than `Segment::new` makes on this machine would only cost memory and time
        let most = layout::segment_size(layout::shards_for(clock::cpus())).min(LARGEST);
        if size == 0 || size > most || size % layout::PAGE != 0 {
            return Err(Refused::WrongSize);
        }
        let length = NonZeroUsize::new(size).ok_or(Refused::WrongSize)?;
        // SAFETY: a new mapping, at an address that the kernel chooses; the seals keep it whole.
        let base = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED,
                memory,
                0,
            )
        }
        .map_err(|_| Refused::Unmappable)?;
        let mut mapping = Self {
            base: base.cast(),
            size,
            clock: 0,
            anchor_ticks: 0,
            shards: Vec::new(),
        };
        mapping.check(calibration)?;
        Ok(mapping)
    }

    fn check(&mut self, calibration: &Calibration) -> Result<(), Refused> {
        let header = self.header();
        let magic = header.magic.load(Ordering::Acquire);
        let shards = header.shards.load(Ordering::Relaxed) as usize;
        let clock = header.clock.load(Ordering::Relaxed);
        let anchor_ticks = header.anchor_ticks.load(Ordering::Relaxed);
        let anchor_ns = header.anchor_ns.load(Ordering::Relaxed);
        if magic != MAGIC || header.version.load(Ordering::Relaxed) != VERSION {
            return Err(Refused::WrongVersion);
        }
        if shards == 0 || shards > layout::shards_in(self.size) {
            return Err(Refused::WrongSize);
        }
        if !calibration.agrees(clock, anchor_ticks, anchor_ns) {
            return Err(Refused::WrongClock);
        }
        self.clock = clock;
        self.anchor_ticks = anchor_ticks;
        self.shards = vec![Sums::default(); shards];
        Ok(())
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, at least a page long, cannot shrink, and lives as
        // long as `self`; the fields are atomics, for which any bytes are valid.
        unsafe { self.base.as_ref() }
    }

    fn shard(&self, index: usize) -> &Shard {
        debug_assert!(index < self.shards.len());
        // SAFETY: check() made sure that so many shards follow the header; see header().
        unsafe { self.base.add(1).cast::<Shard>().add(index).as_ref() }
    }

    /// When the segment was made, by its own clock.
    pub fn made_at(&self) -> u64 {
        self.anchor_ticks
    }

    /// What it says now.
    pub fn read(&mut self, calibration: &Calibration) -> Snapshot {
        let ns_per_tick = calibration.ns_per_tick(self.clock);
        // before the sums: what is counted when it is set is all that there will be
        let closed = self.header().closed.load(Ordering::Acquire) != 0;
        let (mut ticks, mut at) = (0, 0);
        for _ in 0..TRIES {
            let begin = clock::ticks(self.clock);
            for index in 0..self.shards.len() {
                let read = (0..SHARD_TRIES).find_map(|_| self.shard(index).read());
                if let Some(sums) = read {
                    self.shards[index] = sums;
                }
            }
            (ticks, at) = (clock::ticks(self.clock), monotonic_ns());
            let took = ticks.wrapping_sub(begin) as f64 * ns_per_tick;
            if took < UNDISTURBED_NS {
                break;
            }
        }
        let mut sums = Sums::default();
        for shard in &self.shards {
            sums.add(shard);
        }
        Snapshot {
            sums,
            ticks,
            at,
            ns_per_tick,
            closed,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that new() made; nothing refers to it any more. It can only fail
        // for a wrong address.
        let _ = unsafe { munmap(self.base.cast::<c_void>(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A clock of two ticks a nanosecond, that a poll looks at each second.
    fn polled(seconds: u64) -> Calibration {
        let mut calibration = Calibration {
            clock: CLOCK_TSC,
            base: (0, 0),
            last: (0, 0),
            ns_per_tick: 0.0,
        };
        for second in 1..=seconds {
            calibration.follow_to((2 * second * SECOND, second * SECOND));
        }
        calibration
    }

    #[test]
    fn the_rate_is_of_all_the_time_that_clocks_went_together() {
        let calibration = polled(10);
        assert_eq!(calibration.base, (0, 0));
        assert_eq!(rate(calibration.base, calibration.last), 0.5);
    }

    #[test]
    fn a_suspend_does_not_change_the_rate() {
        let mut calibration = polled(10);
        // for an hour only the counter went on
        let hour = 3_600 * SECOND;
        let after = (2 * (11 * SECOND + hour), 11 * SECOND);
        calibration.follow_to(after);
        assert_eq!((calibration.base, calibration.ns_per_tick), (after, 0.5));
        calibration.follow_to((after.0 + 2 * SECOND, after.1 + SECOND));
        assert_eq!(rate(calibration.base, calibration.last), 0.5);
    }

    #[test]
    fn a_counter_that_begins_anew_does_not_change_the_rate_either() {
        let mut calibration = polled(10);
        calibration.follow_to((7, 11 * SECOND));
        assert_eq!(calibration.ns_per_tick, 0.5);
        assert_eq!(calibration.base, (7, 11 * SECOND));
    }
}
