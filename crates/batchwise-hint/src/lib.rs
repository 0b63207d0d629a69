//! Hints (§3.3 of *Batching with End-to-End Performance Estimation*): an application says
//! [`create`](Hints::create) when it issues requests and [`complete`](Hints::complete) when it has
//! their responses. The queue state of this one logical queue gives the agent the end-to-end
//! latency, as the application defines it, by Little's law.
//!
//! ```
//! use batchwise_hint::Hints;
//!
//! let hints = Hints::for_service("10.0.0.1:6379".parse().unwrap());
//! hints.create(1);
//! // send the request, receive the response
//! hints.complete(1);
//! ```
//!
//! A handle never blocks, never fails and may be used by any number of threads. Without an agent
//! the calls count and read no clock; when one appears, or is restarted, it is found within about a
//! second. Nothing that an agent does or suffers reaches the application.
//!
//! The way of the data: a call updates its thread's shard of a [`layout::Segment`] in a memfd
//! (`segment`); one background thread hands the memfds to the agent (`link`); the agent reads them
//! through `reader`.

mod clock;
pub mod ffi;
mod handle;
pub mod layout;
mod link;
#[cfg(feature = "reader")]
pub mod reader;
mod segment;
mod threads;
#[cfg(feature = "tower")]
pub mod tower;

pub use handle::{Hints, Request};
pub use link::{DEFAULT_SOCKET, SOCKET_VARIABLE};
