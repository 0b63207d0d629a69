//! What library and agent say to each other over a Unix socket (SOCK_SEQPACKET), and the memory that the
//! application shares with the kernel (`window_intf.h` of batchwise-bpf; a test holds both together).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Both ends must speak the same.
pub const VERSION: u32 = 6;
/// Begins every message.
pub const MAGIC: u32 = 0x6277_7764;
/// Sockets of one application; slot 0 is none's.
pub const MOST_SLOTS: u32 = 16_384;

/// What the library asks, after its first message, each with the socket's descriptor: that it be
/// registered. The first message has no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Ask {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The slot that it is to have; in the first message how many there are to be.
    pub slot: u32,
    /// The turn of the slot, which says so, too.
    pub turn: u32,
}

/// What the agent answers. To the first message with a descriptor: the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// 0, or an `errno`.
    pub error: u32,
}

/// `struct bw_slot`.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// 1: the application sleeps, or is about to.
    pub armed: AtomicU32,
    /// Bytes that congestion window and peer must allow before it is woken.
    pub at_least: AtomicU32,
    /// From the last wake-up to the moment that the application heard of it, ns.
    pub lag_ns: AtomicU32,
    /// Bytes that may be written, as of the last acknowledgment, …
    pub space: AtomicU32,
    /// … and those that congestion window and peer allowed, whatever the device takes.
    pub allowed: AtomicU32,
    /// Bytes that waited in the kernel then.
    pub unsent: AtomicU32,
    /// Smoothed round trip, µs.
    pub rtt_us: AtomicU32,
    /// How often the programs looked.
    pub events: AtomicU32,
    /// How often they woke the application.
    pub rung: AtomicU32,
    /// How often the application looked again as nothing had rung.
    pub fallbacks: AtomicU32,
    /// Of the socket that has the slot now; 0: none has. What the programs find out of another is lost.
    pub turn: AtomicU32,
    /// Of a wake-up that the application has not heard of yet, ns, CLOCK_MONOTONIC.
    pub rung_at: AtomicU64,
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
