//! The experiments of `batchwise balance`, and the process that they share.

pub(crate) mod agent;
pub(crate) mod cost;
pub mod faults;
pub(crate) mod policies;
pub(crate) mod site;
pub(crate) mod tail;
