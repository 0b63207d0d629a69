//! The passive vantage's programs in the kernel: what becomes of packets, flows and epochs. Needs
//! root.

#[path = "../frames/mod.rs"]
mod frames;
#[path = "../kernel/mod.rs"]
mod kernel;

mod attach;
mod epochs;
mod fates;
mod setup;
mod table;
