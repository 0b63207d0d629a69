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
mod object;
pub mod passive;
mod plain;
pub mod probe;
mod record;
mod sensor;
pub mod xdp;

pub use batchwise_core::sense::connection::{Connection, PeerState, Reading, Vitals};

pub use actuator::{Actuator, Control, GuardFds, release};
pub use cgroup::mount_point as cgroup_mount_point;
pub use error::Error;
pub use sensor::{Config, Sensor, Units};

/// A module for each skeleton that the build script makes.
macro_rules! skeletons {
    ($($module:ident: $file:literal),*) => {$(
        #[allow(
            missing_docs,
            clippy::all,
            clippy::undocumented_unsafe_blocks,
            dead_code
        )]
        mod $module {
            include!(concat!(env!("OUT_DIR"), "/", $file));
        }
    )*};
}

skeletons! {
    sense_skel: "sense.skel.rs",
    passive_skel: "passive.skel.rs",
    balance_skel: "balance.skel.rs",
    decap_skel: "decap.skel.rs",
    probe_skel: "probe.skel.rs"
}
