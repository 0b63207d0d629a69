//! The memory that an application shares with the kernel: its slots.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::protocol::Slot;

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
