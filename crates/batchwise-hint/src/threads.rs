//! Which shard is whose: every thread that uses hints has a number, given back when it ends. After
//! a fork the child has none: what it inherited is its parent's.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// The thread has no number yet.
const UNKNOWN: u32 = u32::MAX;

thread_local! {
    // without a destructor, so that reading it is one instruction
    static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) };
    static LEASE: Lease = const { Lease };
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers {
    returned: BTreeSet::new(),
    next: 0,
});
static FORKED: AtomicBool = AtomicBool::new(false);

struct Numbers {
    returned: BTreeSet<u32>,
    next: u32,
}

/// Gives the number back when its thread ends.
struct Lease;

impl Drop for Lease {
    fn drop(&mut self) {
        let number = NUMBER.replace(UNKNOWN);
        if number != UNKNOWN && !is_forked() {
            numbers().returned.insert(number);
        }
    }
}

fn numbers() -> std::sync::MutexGuard<'static, Numbers> {
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of the calling thread; larger than every other when it has none.
#[inline(always)]
pub fn number() -> u32 {
    NUMBER.get()
}

/// Gives the calling thread a number, if it has none: the smallest that is free. A thread that is
/// ending gets none, since it could not give it back.
#[cold]
pub fn assign() -> u32 {
    if NUMBER.get() == UNKNOWN && !is_forked() && LEASE.try_with(|_| ()).is_ok() {
        let mut numbers = numbers();
        let number = numbers.returned.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        NUMBER.set(number);
    }
    NUMBER.get()
}

/// Whether this process is a fork of one that used hints: then its hints rest, since its threads
/// would write where its parent's write.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// From now on forks are noticed.
pub fn notice_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only writes an atomic and a thread-local without destructor.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    NUMBER.set(UNKNOWN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_number_and_its_successors_use_it_again() {
        let largest = (0..100)
            .map(|_| {
                let thread = std::thread::spawn(|| {
                    let number = assign();
                    assert_eq!(number, assign());
                    number
                });
                thread.join().expect("the thread ends well")
            })
            .max();
        // other tests' threads may hold some
        assert!(largest < Some(90), "{largest:?}");
    }
}
