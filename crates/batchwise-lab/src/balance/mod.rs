//! The experiments of `batchwise balance`, before real servers.

pub mod faults;
pub mod tail;
