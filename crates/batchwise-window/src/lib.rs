//! When TCP can send on a socket, and how much. An application that hands TCP more than the network takes
//! has decided too early: it waits in the kernel, and what is urgent waits behind it.
//!
//! A [`Set`] has a descriptor that is readable when one of its sockets can send, for epoll, poll, io_uring
//! or tokio. [`space`] says how many bytes TCP would send at once. With the feature `tokio`,
//! [`WindowedStream`] wraps a `TcpStream`, and does all of that itself.
//!
//! `batchwise window`, the agent, has the kernel wake the set when there is space. Without it the set falls back
//! to `TCP_NOTSENT_LOWAT`, and [`Set::mode`] says so.

mod agent;
#[cfg(feature = "tokio")]
mod driver;
mod ffi;
mod info;
mod key;
mod layout;
mod level;
mod link;
mod protocol;
mod set;
mod slots;
mod stats;
#[cfg(feature = "tokio")]
mod stream;
mod timer;

pub use agent::Mode;
pub use batchwise_core::window::patience;
pub use info::{Info, not_sent_low_water, space};
pub use key::Key;
#[doc(hidden)]
pub use layout::Slot;
pub use link::{DEFAULT_SOCKET, SOCKET_VARIABLE};
#[doc(hidden)]
pub use protocol::*;
pub use set::Set;
#[doc(hidden)]
pub use slots::Slots;
pub use stats::Stats;
#[cfg(feature = "tokio")]
pub use stream::WindowedStream;
