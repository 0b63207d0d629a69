//! Bursts on their way through a router: the forwarder in user space, which has the queue itself.

pub mod forward;
mod xsk;
