//! The memory that an application shares with the kernel: its slots.

use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::protocol::Slot;

/// An application's slots, mapped until dropped.
pub struct Slots {
    first: NonNull<Slot>,
    count: u32,
}

// SAFETY: all of a slot is atomics.
unsafe impl Send for Slots {}
// SAFETY: the same.
unsafe impl Sync for Slots {}

impl Slots {
    /// So many slots of the memory that this descriptor stands for.
    pub fn map(fd: BorrowedFd<'_>, count: u32) -> io::Result<Self> {
        let length = size_of::<Slot>() * count as usize;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let at = unsafe { mmap(ptr::null_mut(), length, both, MapFlags::SHARED, fd, 0)? };
        let first = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { first, count })
    }

    /// One of them.
    pub fn get(&self, index: u32) -> Option<&Slot> {
        // SAFETY: so many are mapped, and all of a slot is atomics.
        (index < self.count).then(|| unsafe { self.first.add(index as usize).as_ref() })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let length = size_of::<Slot>() * self.count as usize;
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), length) };
    }
}
