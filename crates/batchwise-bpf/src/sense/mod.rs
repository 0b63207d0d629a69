//! Sensing what TCP sockets do: [`Sensor`] counts and is read. On top of it [`Exchange`] advertises our
//! queue states to peers and hears theirs, [`Hints`] advertises what applications count
//! themselves, [`Naming`] finds out whose sockets are, and [`Tuning`] changes them.

mod actuator;
mod config;
mod exchange;
mod extension;
mod hints;
mod holders;
mod owners;
mod ping;
mod record;
pub(crate) mod sensor;

pub use actuator::{Actuator, Control, GuardFds, MOST_SERVICES, Release, Tuning};
pub use config::{Config, Units};
pub use exchange::Exchange;
pub use extension::Extension;
pub use hints::{Advertiser, Hints};
pub use holders::{Holders, Naming, Walker};
pub use owners::{Clocks, Owners, Socket};
pub use ping::Ping;
pub use sensor::Sensor;
