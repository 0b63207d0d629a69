//! The BPF programs of batchwise and their loaders. They sense and hand over plain structs of
//! `batchwise-core`; they decide nothing.
//!
//! `src/bpf/intf.h`, `src/bpf/balance_intf.h` and `src/bpf/decap_intf.h` are the only definition of
//! what the kernel side and this side share: the types in the generated skeletons come from them.

mod actuator;
pub mod balance;
mod cgroup;
pub mod decap;
mod error;
mod netns;
pub mod passive;
mod plain;
pub mod probe;
mod record;
mod sensor;
pub mod xdp;

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

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod decap_skel {
    include!(concat!(env!("OUT_DIR"), "/decap.skel.rs"));
}

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod probe_skel {
    include!(concat!(env!("OUT_DIR"), "/probe.skel.rs"));
}
