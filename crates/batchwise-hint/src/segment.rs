//! A handle's memory, as the application writes it.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

use crate::layout::{self, Event, Header, Identity, LARGEST, MAGIC, Shard, VERSION};
use crate::{clock, threads};

/// 0 while no agent listens, else the clock that the process times by.
pub static TIMED_BY: AtomicU32 = AtomicU32::new(0);

/// The seals without which a reader could be hit by SIGBUS.
pub const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

/// Shared memory of one handle.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<Header>,
    size: usize,
    /// Shards that belong to a thread: all but the last.
    own: u32,
    /// Who may write the last shard.
    shared: Mutex<()>,
    memory: OwnedFd,
    /// Whose requests are counted.
    pub identity: Identity,
    /// No agent has had it, and one listened from its beginning.
    pub fresh: AtomicBool,
}

// SAFETY: the memory is only accessed through atomics, and `count` keeps to one writer a shard.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes the memory.
    ///
    /// # Errors
    /// No descriptor or no memory is left.
    pub fn new(identity: Identity) -> io::Result<Self> {
        let cpus = available_parallelism().map_or(1, NonZeroUsize::get);
        let size = layout::segment_size(layout::shards_for(cpus)).min(LARGEST);
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = memfd_create(c"batchwise-hint", flags)?;
        ftruncate(&memory, size as i64)?;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(SEALS))?;
        let length = NonZeroUsize::new(size).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &memory, 0) }?;
        let shards = layout::shards_in(size) as u32;
        let segment = Self {
            base: base.cast(),
            size,
            own: shards - 1,
            shared: Mutex::new(()),
            memory,
            identity,
            fresh: AtomicBool::new(TIMED_BY.load(Ordering::Relaxed) != 0),
        };
        let (ticks, ns) = clock::pair(clock::kind());
        let header = segment.header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.shards.store(shards, Ordering::Relaxed);
        header.clock.store(clock::kind(), Ordering::Relaxed);
        header.anchor_ticks.store(ticks, Ordering::Relaxed);
        header.anchor_ns.store(ns, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(segment)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, as long as `self` lives, and begins with a header,
        // whose fields are atomics: any bytes are valid.
        unsafe { self.base.as_ref() }
    }

    /// The shard of this index, which must be at most `own`.
    #[inline(always)]
    fn shard(&self, index: u32) -> &Shard {
        debug_assert!(index <= self.own);
        // SAFETY: `own` + 1 shards follow the header within the mapping; see header().
        unsafe {
            let first = self.base.add(1).cast::<Shard>();
            first.add(index as usize).as_ref()
        }
    }

    /// Counts `n` requests.
    #[inline(always)]
    pub fn count(&self, event: Event, n: u32) {
        let number = threads::number();
        if number < self.own {
            self.count_in(number, event, n);
        } else {
            self.count_elsewhere(event, n);
        }
    }

    #[inline(always)]
    fn count_in(&self, shard: u32, event: Event, n: u32) {
        let shard = self.shard(shard);
        match TIMED_BY.load(Ordering::Relaxed) {
            0 => shard.count_untimed(event, n.into()),
            clock => shard.count(event, n.into(), clock::ticks(clock)),
        }
    }

    /// For a thread's first time, for threads beyond the number of shards, and after a fork.
    #[cold]
    fn count_elsewhere(&self, event: Event, n: u32) {
        let number = threads::assign();
        if threads::is_forked() {
            return;
        }
        if number < self.own {
            self.count_in(number, event, n);
        } else {
            let _only_writer = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            self.count_in(self.own, event, n);
        }
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !threads::is_forked() {
            self.header().closed.store(1, Ordering::Release);
        }
        // SAFETY: the mapping that new() made; nothing refers to it any more. It can only fail
        // for a wrong address.
        let _ = unsafe { munmap(self.base.cast::<c_void>(), self.size) };
    }
}
