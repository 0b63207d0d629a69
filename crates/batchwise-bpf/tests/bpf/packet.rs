//! The parser that runs in the kernel, compiled on the host, against another parser (etherparse):
//! both must read the same from what no network would send.
//!
//! A hundred million: `cargo test -p batchwise-bpf --release --locked packet::long`.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use batchwise_reference::packet::{Read, read as reference};
use batchwise_twins::packet::read as twin;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::frames;

const SPACE: usize = 4096;

/// A page that ends where the next must not be touched: what reads beyond a frame, ends the test.
struct Page(NonNull<u8>);

impl Page {
    fn new() -> Self {
        let size = NonZeroUsize::new(2 * SPACE).unwrap();
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: new memory, of which nobody knows; the second page is not used.
        unsafe {
            let at = mmap_anonymous(None, size, access, MapFlags::MAP_PRIVATE).unwrap();
            mprotect(at.byte_add(SPACE), SPACE, ProtFlags::PROT_NONE).unwrap();
            Self(at.cast())
        }
    }

    fn parse(&mut self, frame: &[u8]) -> Option<Read> {
        assert!(frame.len() <= SPACE);
        // SAFETY: the frame fits into the page's end.
        let copy = unsafe {
            let at = self.0.add(SPACE - frame.len());
            at.copy_from_nonoverlapping(NonNull::from(frame).cast(), frame.len());
            std::slice::from_raw_parts(at.as_ptr(), frame.len())
        };
        twin(copy)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing borrows it.
        unsafe { munmap(self.0.cast(), 2 * SPACE).unwrap() }
    }
}

/// Values that matter to some field.
const TELLING: [u8; 20] = [
    0, 1, 2, 4, 5, 6, 7, 8, 17, 43, 44, 51, 60, 0x45, 0x4f, 0x60, 0x81, 0x88, 0xdd, 0xff,
];

fn mutate(rng: &mut SmallRng, frame: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..=4) {
        let len = frame.len();
        // most of what is read is among the first bytes
        let near = if rng.random_ratio(7, 8) { 100 } else { len };
        let at = rng.random_range(0..near.min(len));
        match rng.random_range(0..6) {
            0 => frame[at] ^= 1 << rng.random_range(0..8),
            1 => frame[at] = rng.random(),
            2 | 3 => frame[at] = TELLING[rng.random_range(0..TELLING.len())],
            4 => frame.truncate(at.max(1)),
            _ => frame.insert(at, rng.random()),
        }
    }
}

fn compare(count: u64, seed: u64) {
    let kinds = frames::kinds();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut page = Page::new();
    let mut read = 0;
    let mut frame = Vec::new();
    for _ in 0..count {
        frame.clone_from(&kinds[rng.random_range(0..kinds.len())]);
        mutate(&mut rng, &mut frame);
        let (ours, theirs) = (page.parse(&frame), reference(&frame));
        assert_eq!(ours, theirs, "{frame:02x?}");
        read += u64::from(ours.is_some());
    }
    // else the comparison says little
    assert!(
        read > count / 5 && read < count * 9 / 10,
        "{read} of {count} were read"
    );
}

#[test]
fn valid_frames_are_read() {
    let mut page = Page::new();
    for frame in frames::kinds() {
        let ours = page.parse(&frame);
        assert!(ours.is_some(), "{frame:02x?}");
        assert_eq!(ours, reference(&frame));
    }
}

#[test]
fn a_frame_that_was_cut_is_not_read() {
    let mut page = Page::new();
    for frame in frames::kinds() {
        for len in 1..frame.len() {
            assert_eq!(page.parse(&frame[..len]), None, "{len} of {frame:02x?}");
        }
    }
}

#[test]
fn a_million_mutated_frames_are_read_as_by_etherparse() {
    compare(1_000_000, 1);
}

mod long {
    use super::compare;

    #[test]
    fn a_hundred_million_mutated_frames_are_read_as_by_etherparse() {
        std::thread::scope(|scope| {
            for seed in 0..2 {
                scope.spawn(move || compare(50_000_000, 100 + seed));
            }
        });
    }
}
