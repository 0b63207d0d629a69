//! Sensing what TCP sockets do: [`Sensor`] counts and is read. On top of it [`Exchange`] advertises our
//! queue states to peers and hears theirs, [`Hints`] advertises what applications count themselves, and [`Tuning`] changes sockets.

mod actuator;
mod config;
mod counting;
mod exchange;
mod extension;
mod hints;
mod owners;
mod ping;
mod prices;
mod record;
pub(crate) mod sensor;
mod tails;

pub use actuator::{Actuator, GuardFds, MOST_SERVICES, Release, Socket, Tuning};
pub use config::{Config, Units};
pub use counting::monotonic_ns;
pub use exchange::Exchange;
pub use extension::Extension;
pub use hints::{Advertiser, Hints};
pub use owners::{Clocks, Owners};
pub use ping::Ping;
pub use sensor::Sensor;
