//! The memory that an application shares with the kernel: its slots.

use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::Slot;

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

impl Slot {
    /// Another socket has the slot: nothing is known of it yet.
    pub fn begin(&self, turn: u32) {
        self.armed.store(0, Ordering::Relaxed);
        self.rung_at.store(0, Ordering::Relaxed);
        self.space.store(0, Ordering::Relaxed);
        self.allowed.store(0, Ordering::Relaxed);
        self.unsent.store(0, Ordering::Relaxed);
        self.lag_ns.store(0, Ordering::Relaxed);
        self.turn.store(turn, Ordering::Release);
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let length = size_of::<Slot>() * self.count as usize;
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), length) };
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{env, fs};

    /// The file that this header's slot comes to.
    fn generated(header: &str) -> String {
        let (before, rest) = header
            .split_once("\nstruct window_slot {\n")
            .expect("the slot");
        let (fields, _) = rest.split_once("\n};").expect("its end");
        let (_, about) = before.rsplit_once("/*").expect("what it is");
        let about = about.trim_end_matches("*/").split_whitespace();
        let about: Vec<_> = about.filter(|word| *word != "*").collect();
        let field = |line: &str| {
            let (field, about) = line.split_once(';').expect("a field a line");
            let (kind, name) = field.trim().split_once(' ').expect("type and name");
            let kind = match kind {
                "__u32" => "AtomicU32",
                "__u64" => "AtomicU64",
                other => panic!("{other}: another type than those of slots"),
            };
            let about = about.trim().trim_matches(['/', '*']).trim();
            format!("    /// {about}\n    pub {name}: {kind},\n")
        };
        let fields: String = fields.lines().map(field).collect();
        format!(
            "//! The memory that an application shares with the kernel, as `window_intf.h` of batchwise-bpf has it.\n\
             //! Generated from that: `BLESS=1 cargo test -p batchwise-window --lib layout`.\n\n\
             use std::sync::atomic::{{AtomicU32, AtomicU64}};\n\n\
             /// {}\n\
             #[derive(Debug)]\n#[repr(C)]\npub struct Slot {{\n{fields}}}\n",
            about.join(" ")
        )
    }

    #[test]
    fn the_layout_is_what_the_programs_header_says() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let header = here.join("../batchwise-bpf/src/window/window_intf.h");
        let file = here.join("src/layout.rs");
        let generated = generated(&fs::read_to_string(header).expect("the header"));
        if env::var_os("BLESS").is_some() {
            fs::write(&file, &generated).expect("to write it");
        }
        let known = fs::read_to_string(&file).expect("the layout");
        assert_eq!(known, generated, "BLESS=1 writes it");
    }
}
