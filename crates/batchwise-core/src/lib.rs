//! The mathematics of batchwise, a folder a system: [`sense`] estimates latency from the queues of both
//! ends, [`tune`] decides about Nagle's algorithm, [`passive`] measures from one direction of the
//! traffic, [`balance`] turns latencies into weights, [`burst`] admits bursts whole, [`window`] says how much TCP can send at once, [`profile`] where CPU time goes.
//!
//! Nothing in this crate reads a clock, does I/O or knows about BPF: time is an argument.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod balance;
pub mod burst;
pub mod passive;
pub mod profile;
pub mod sense;
pub mod tune;
pub mod window;
