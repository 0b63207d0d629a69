//! The passive vantage's programs in the kernel: what becomes of packets, flows and epochs. Needs
//! root.

mod attach;
mod epochs;
mod fates;
mod setup;
mod table;
