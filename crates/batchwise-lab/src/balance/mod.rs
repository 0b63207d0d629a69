//! The experiments of `batchwise balance`.

pub mod tail;
