//! A ring that a socket shares with the kernel: one side writes entries and moves the producer's index on,
//! the other reads them and moves the consumer's. Each ring has one type for the side that we are.

use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;

/// The mapped memory of a ring.
#[derive(Debug)]
struct Ring<T> {
    base: NonNull<u8>,
    length: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
}

// SAFETY: nothing of it belongs to a thread, and it is used through one owner.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `size` entries, a power of two, that is at `offset` of the socket.
    fn map(socket: impl AsFd, offset: u64, at: XdpRingOffset, size: u32) -> Result<Self, Errno> {
        let length = at.desc as usize + size as usize * size_of::<T>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { mmap(ptr::null_mut(), length, protection, flags, socket, offset) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::FAULT)?;
        // SAFETY: the kernel says that they are within the mapping, and aligns them.
        let (producer, consumer, entries) = unsafe {
            (
                base.add(at.producer as usize).cast(),
                base.add(at.consumer as usize).cast(),
                base.add(at.desc as usize).cast(),
            )
        };
        Ok(Self {
            base,
            length,
            producer,
            consumer,
            entries,
            size,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it is in the mapping, which lives as long as `self`; the kernel changes it atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the index is below the ring's size.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and whoever borrows from it borrows `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A ring whose entries we write.
#[derive(Debug)]
pub(super) struct Produced<T> {
    ring: Ring<T>,
    /// The next entry.
    next: u32,
    /// The consumer's index when it was read last.
    consumed: u32,
}

impl<T: Copy> Produced<T> {
    pub(super) fn map(
        socket: impl AsFd,
        offset: u64,
        at: XdpRingOffset,
        size: u32,
    ) -> Result<Self, Errno> {
        let ring = Ring::map(socket, offset, at, size)?;
        Ok(Self {
            next: ring.producer().load(Ordering::Relaxed),
            consumed: ring.consumer().load(Ordering::Relaxed),
            ring,
        })
    }

    /// Whether there is room for an entry.
    pub(super) fn has_room(&mut self) -> bool {
        if self.next.wrapping_sub(self.consumed) < self.ring.size {
            return true;
        }
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed) < self.ring.size
    }

    /// Writes an entry if there is room. The other side sees it after [`Self::submit`].
    pub(super) fn put(&mut self, entry: T) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the other side does not read it before `submit`.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    pub(super) fn submit(&self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Entries that the other side has not consumed.
    pub(super) fn waiting(&self) -> u32 {
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(consumed)
    }
}

/// A ring whose entries we read.
#[derive(Debug)]
pub(super) struct Consumed<T> {
    ring: Ring<T>,
    /// The next entry.
    next: u32,
    /// The producer's index when it was read last.
    produced: u32,
}

impl<T: Copy> Consumed<T> {
    pub(super) fn map(
        socket: impl AsFd,
        offset: u64,
        at: XdpRingOffset,
        size: u32,
    ) -> Result<Self, Errno> {
        let ring = Ring::map(socket, offset, at, size)?;
        let next = ring.consumer().load(Ordering::Relaxed);
        Ok(Self {
            next,
            produced: next,
            ring,
        })
    }

    /// The next entry. The other side gets its room back with [`Self::release`].
    pub(super) fn take(&mut self) -> Option<T> {
        if self.next == self.produced {
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the other side wrote it before it moved its index, and does not before `release`.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    pub(super) fn release(&self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
