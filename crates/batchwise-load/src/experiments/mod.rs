//! Workloads that only the lab's experiments need: clients and servers of one question each, and what
//! runs over libraries of others (redis-rs, quinn, hyper). Behind the feature `experiments`, since these
//! take longer to build than all other workloads.

pub mod downloads;
pub mod incast;
pub mod lives;
pub mod multiplexed;
pub mod priority;
pub mod quic;
pub mod streams;
