//! The mathematics of batchwise: queue states and Little's law, the wire format in which peers
//! exchange them, and how they combine into end-to-end latency.
//!
//! Nothing in this crate reads a clock, does I/O or knows about BPF: time is an argument.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod report;
