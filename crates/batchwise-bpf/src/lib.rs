//! The BPF programs of batchwise and their loaders. They sense and hand over plain structs of
//! `batchwise-core`; they decide nothing.
//!
//! `src/bpf/intf.h` and `src/bpf/balance_intf.h` are the only definition of what the kernel side and
//! this side share: the types in the generated skeletons come from them.

mod actuator;
pub mod balance;
mod cgroup;
mod error;
mod netns;
pub mod passive;
mod plain;
mod record;
mod sensor;

pub use actuator::{Actuator, Control, GuardFds, release};
pub use cgroup::mount_point as cgroup_mount_point;
pub use error::Error;
pub use record::{Connection, PeerState, Vitals};
pub use sensor::{Config, Reading, Sensor, Units};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/sense.skel.rs"));
}

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod passive_skel {
    include!(concat!(env!("OUT_DIR"), "/passive.skel.rs"));
}

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod balance_skel {
    include!(concat!(env!("OUT_DIR"), "/balance.skel.rs"));
}
