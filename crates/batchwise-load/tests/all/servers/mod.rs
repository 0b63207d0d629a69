//! The loads against real servers on the loopback interface: what they report, and what closed loops
//! say of each request.

mod log;
mod memcached;
mod process;
mod quic;
mod redis;
mod web;
