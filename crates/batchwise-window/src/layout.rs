//! The memory that an application shares with the kernel, as `window_intf.h` of batchwise-bpf has it.
//! Generated from that: `BLESS=1 cargo test -p batchwise-window --lib layout`.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// A registered socket in its application's memory. The application writes the first three, `fallbacks` and `turn`, and takes `rung_at`; the programs write the rest. Slot 0 is no socket's.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// 1: the application sleeps, or is about to
    pub armed: AtomicU32,
    /// bytes that congestion window and peer must allow before it is woken
    pub at_least: AtomicU32,
    /// from the last wake-up to the moment that the application heard of it
    pub lag_ns: AtomicU32,
    /// bytes that may be written, as of the last acknowledgment, …
    pub space: AtomicU32,
    /// … and those that congestion window and peer allowed, whatever the device takes
    pub allowed: AtomicU32,
    /// bytes that waited in the kernel then
    pub unsent: AtomicU32,
    /// smoothed
    pub rtt_us: AtomicU32,
    /// how often the programs looked
    pub events: AtomicU32,
    /// how often they woke the application
    pub rung: AtomicU32,
    /// how often it looked again as nothing had rung
    pub fallbacks: AtomicU32,
    /// of the socket that has the slot now; 0: none
    pub turn: AtomicU32,
    /// of a wake-up that the application has not heard of yet, ns, CLOCK_MONOTONIC
    pub rung_at: AtomicU64,
}
