//! Hosts and networks as they are built. Needs root.

mod segment;
mod topology;
mod triangle;
