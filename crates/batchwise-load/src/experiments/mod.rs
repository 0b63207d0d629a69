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

use std::net::TcpStream;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

/// To close it resets the connection, from now on: its port can be used again at once.
fn reset_at_close(socket: &TcpStream) -> nix::Result<()> {
    let at_once = linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(socket, sockopt::Linger, &at_once)
}
