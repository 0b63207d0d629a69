//! The load balancer's data path in the kernel, packet in and packet out. Needs root.

mod choices;
mod flows;
mod fuzz;
mod measured;
mod paths;
mod refused;
mod replies;
pub mod setup;
mod takeover;
pub mod tunnels;
