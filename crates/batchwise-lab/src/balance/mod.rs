//! Experiments with `batchwise balance` before real servers.

pub mod faults;
