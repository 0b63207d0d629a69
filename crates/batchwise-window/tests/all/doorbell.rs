//! What library and programs do with a slot, model-checked: whoever sleeps is woken. `ask` and `acked` take the
//! socket's lock, as TCP_INFO and the programs do; `read` takes what the programs have published.

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[derive(Default)]
struct Shared {
    /// Bytes that TCP can send, …
    socket: Mutex<u32>,
    /// … and as the slot has it, …
    space: AtomicU32,
    /// … since so many events.
    events: AtomicU32,
    armed: AtomicU32,
    woken: AtomicBool,
}

impl Shared {
    fn arm(&self) {
        self.armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn ask(&self) -> u32 {
        *self.socket.lock().unwrap()
    }

    /// What an application goes by that knew of no space as of event 0.
    fn read(&self) -> u32 {
        match self.events.load(Ordering::SeqCst) {
            0 => 0,
            _ => self.space.load(Ordering::Acquire),
        }
    }

    /// As `window_acked`: an acknowledgment makes space, is published, and wakes whoever has armed.
    fn acked(&self) {
        let mut space = self.socket.lock().unwrap();
        *space = 1_448;
        self.space.store(*space, Ordering::Relaxed);
        self.events.swap(1, Ordering::SeqCst);
        // the kernel's exchanges are full barriers, those of loom are not
        fence(Ordering::SeqCst);
        let exchanged = self
            .armed
            .compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst);
        if exchanged.is_ok() {
            self.woken.store(true, Ordering::SeqCst);
        }
    }
}

/// An application that waits in this way, and an acknowledgment at any moment of it.
fn meet(wait: fn(&Shared) -> u32) {
    loom::model(move || {
        let shared = Arc::new(Shared::default());
        let kernel = Arc::clone(&shared);
        let acked = thread::spawn(move || kernel.acked());
        let sleeps = wait(&shared) == 0;
        acked.join().unwrap();
        assert!(
            !sleeps || shared.woken.load(Ordering::SeqCst),
            "it sleeps on"
        );
    });
}

#[test]
fn whoever_arms_and_then_asks_is_woken_or_has_seen_the_space() {
    meet(|shared| {
        shared.arm();
        shared.ask()
    });
}

#[test]
fn whoever_arms_and_then_reads_its_slot_is_woken_or_has_seen_the_space() {
    meet(|shared| {
        shared.arm();
        shared.read()
    });
}

#[test]
#[should_panic(expected = "it sleeps on")]
fn whoever_asks_first_may_sleep_on() {
    meet(|shared| {
        let space = shared.ask();
        shared.arm();
        space
    });
}

#[test]
#[should_panic(expected = "it sleeps on")]
fn whoever_reads_first_may_sleep_on() {
    meet(|shared| {
        let space = shared.read();
        shared.arm();
        space
    });
}
