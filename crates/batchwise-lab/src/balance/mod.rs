//! The experiments of `batchwise balance`.

pub mod cost;
pub mod faults;
pub mod policies;
pub mod tail;
