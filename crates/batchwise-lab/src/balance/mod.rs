//! The experiments of `batchwise balance`, and the process that they share.

mod agent;
pub(crate) mod cost;
pub mod faults;
pub(crate) mod policies;
mod site;
pub(crate) mod tail;
