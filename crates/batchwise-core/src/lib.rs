//! The mathematics of batchwise: queue states and Little's law, the wire format in which peers
//! exchange them, and how they combine into end-to-end latency.
//!
//! Nothing in this crate reads a clock, does I/O or knows about BPF: time is an argument.
//!
//! The way of the data: [`endpoint`] turns socket events into [`queue`] states (in production its
//! C twin does, inside the kernel), [`wire`] carries them to the peer, [`sample`] subtracts two
//! readings of a connection, and [`estimate`] combines the differences into a [`report::Line`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod balance;
pub mod endpoint;
pub mod estimate;
pub mod hint;
pub mod passive;
pub mod queue;
pub mod report;
pub mod sample;
pub mod service;
pub mod tune;
pub mod wire;
