//! BPF iterators: a walk over kernel objects, and what the program told on it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::made;

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

/// The same; `alive` is called in the kernel's pauses, each of which comes after a quarter of a second or so.
pub(crate) fn run_long(link: BorrowedFd<'_>, alive: &mut dyn FnMut()) -> io::Result<Vec<u8>> {
    to_end(&mut open(link)?, alive)
}

/// Walks for what that does; takes no memory.
pub(crate) fn only(walk: &mut File) -> io::Result<()> {
    going_on(|| io::copy(walk, &mut io::sink()), &mut || {}).map(drop)
}

fn to_end(walk: &mut impl Read, alive: &mut dyn FnMut()) -> io::Result<Vec<u8>> {
    let mut told = Vec::new();
    going_on(|| walk.read_to_end(&mut told), alive)?;
    Ok(told)
}

/// The kernel pauses with EAGAIN after a million objects of which the program told nothing (bpf_seq_read(),
/// MAX_ITER_OBJECTS): a user's descriptors can be so many. The next read goes on where that stood.
fn going_on<T>(mut read: impl FnMut() -> io::Result<T>, alive: &mut dyn FnMut()) -> io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => alive(),
            done => return done,
        }
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
        assert!(pauses >= 3);
    }
}
