//! The memory that an application shares with the kernel: its slots, and the doorbell, a BPF ring buffer
//! of which it is the only reader (kernel/bpf/ringbuf.c).

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::protocol::{Bell, Slot};

/// Set while the kernel writes the record (BPF_RINGBUF_BUSY_BIT), …
const BUSY: u32 = 1 << 31;
/// … and when it gave it up (BPF_RINGBUF_DISCARD_BIT).
const DISCARDED: u32 = 1 << 30;
/// Before each record: its length, and where it is.
const HEADER: u64 = 8;

/// Mapped until dropped.
struct Mapping {
    at: NonNull<c_void>,
    length: usize,
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, length: usize, offset: u64, prot: ProtFlags) -> io::Result<Self> {
        // SAFETY: the kernel chooses a place where nothing is.
        let at = unsafe { mmap(ptr::null_mut(), length, prot, MapFlags::SHARED, fd, offset)? };
        let at = NonNull::new(at).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.at.as_ptr(), self.length) };
    }
}

// SAFETY: what is in it is only used through atomics, or read once the kernel is done with it.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

/// An application's slots.
pub struct Slots {
    memory: Mapping,
    count: u32,
}

impl Slots {
    /// So many slots of the memory that this descriptor stands for.
    pub fn map(fd: BorrowedFd<'_>, count: u32) -> io::Result<Self> {
        let length = size_of::<Slot>() * count as usize;
        let memory = Mapping::new(fd, length, 0, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self { memory, count })
    }

    /// One of them.
    pub fn get(&self, index: u32) -> Option<&Slot> {
        let slots = self.memory.at.cast::<Slot>();
        // SAFETY: so many are mapped, and all of a slot is atomics.
        (index < self.count).then(|| unsafe { slots.add(index as usize).as_ref() })
    }
}

/// The doorbell.
pub struct Ring {
    fd: OwnedFd,
    consumer: Mapping,
    /// The producer's page, and the data, twice, so that no record is cut.
    producer: Mapping,
    mask: u64,
}

impl Ring {
    /// One with room for `bytes`, a power of two.
    pub fn map(fd: OwnedFd, bytes: u32) -> io::Result<Self> {
        let (page, bytes) = (page_size(), bytes as usize);
        if !bytes.is_power_of_two() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let consumer = Mapping::new(fd.as_fd(), page, 0, both)?;
        let whole = page + 2 * bytes;
        let producer = Mapping::new(fd.as_fd(), whole, page as u64, ProtFlags::READ)?;
        Ok(Self {
            fd,
            consumer,
            producer,
            mask: bytes as u64 - 1,
        })
    }

    /// Takes what has rung since the last call.
    pub fn take(&mut self, mut each: impl FnMut(Bell)) {
        // SAFETY: the first word of either page is its position.
        let (consumer, producer) = unsafe {
            (
                self.consumer.at.cast::<AtomicU64>().as_ref(),
                self.producer.at.cast::<AtomicU64>().as_ref(),
            )
        };
        let mut at = consumer.load(Ordering::Relaxed);
        while at < producer.load(Ordering::Acquire) {
            let record = self.data(at);
            // SAFETY: a header is aligned to 8 bytes, and lies in the mapping.
            let length = unsafe { record.cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                return;
            }
            let bytes = u64::from(length & !DISCARDED);
            if length & DISCARDED == 0 && bytes >= size_of::<Bell>() as u64 {
                // SAFETY: the kernel has written so many bytes behind the header, and is done.
                each(unsafe { self.data(at + HEADER).cast::<Bell>().read() });
            }
            at += (bytes + HEADER).next_multiple_of(8);
            // the order of all: the kernel looks whether the reader has caught up
            consumer.store(at, Ordering::SeqCst);
        }
    }

    fn data(&self, at: u64) -> NonNull<u8> {
        let offset = page_size() as u64 + (at & self.mask);
        // SAFETY: the data follows the producer's page, twice.
        unsafe { self.producer.at.cast::<u8>().add(offset as usize) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
