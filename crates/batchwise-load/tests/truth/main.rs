//! Closed-loop workloads against real servers on the loopback interface: what they report, and
//! what they say of each request.

mod log;
mod memcached;
mod process;
mod quic;
mod web;
