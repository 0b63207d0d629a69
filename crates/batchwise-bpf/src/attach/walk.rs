//! BPF iterators: a walk over kernel objects, and what the program told on it.

use std::fs::File;
use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::object::made;

/// A walk, by a link, over what the calling thread sees (its network namespace, its PID namespace). Reading it walks.
pub(crate) fn open(link: BorrowedFd<'_>) -> io::Result<File> {
    // SAFETY: a system call on a descriptor that is open; the result is checked.
    let walk = made(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?;
    Ok(File::from(walk))
}

/// Walks; what the program told.
pub(crate) fn run(link: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    run_long(link, &mut || {})
}

/// The same; `alive` is called again and again while it takes long.
pub(crate) fn run_long(link: BorrowedFd<'_>, alive: &mut dyn FnMut()) -> io::Result<Vec<u8>> {
    to_end(&mut open(link)?, alive)
}

/// Walks for what that does; takes no memory.
pub(crate) fn only(walk: &mut File) -> io::Result<()> {
    each(walk, &mut [0; 4 << 10], |_| ())
}

pub(crate) fn to_end(walk: &mut impl Read, alive: &mut dyn FnMut()) -> io::Result<Vec<u8>> {
    let mut told = Vec::new();
    each(walk, &mut vec![0; 32 << 10], |some| {
        told.extend_from_slice(some);
        alive();
    })?;
    Ok(told)
}

/// Some of what the program told at a time, and nothing in the pauses that the kernel makes: EAGAIN after a million
/// objects of which nothing was told, a quarter of a second or so (bpf_seq_read(), MAX_ITER_OBJECTS). A user's
/// descriptors can be so many. The next read goes on where that stood.
pub(crate) fn each(
    walk: &mut impl Read,
    some: &mut [u8],
    mut tell: impl FnMut(&[u8]),
) -> io::Result<()> {
    loop {
        let count = match walk.read(some) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => 0,
            Err(error) => return Err(error),
        };
        tell(&some[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells these, with a pause before each.
    struct Pausing(Vec<&'static [u8]>, bool);

    impl Read for Pausing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.0.pop().unwrap_or_default().read(buffer)
        }
    }

    #[test]
    fn a_walk_over_more_than_the_kernel_does_at_a_time_goes_on_to_its_end() {
        let mut walk = Pausing(vec![b"three", b"two", b"one"], false);
        let mut pauses = 0;
        let told = to_end(&mut walk, &mut || pauses += 1).expect("pauses are no errors");
        assert_eq!(told, b"onetwothree");
        assert!(pauses >= 6, "in the kernel's pauses, and in what is told");
    }
}
