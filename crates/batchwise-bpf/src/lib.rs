//! The BPF programs of batchwise and their loaders. They sense and hand over plain structs of
//! `batchwise-core`; they decide nothing.
//!
//! A folder a system: its program (`.bpf.c`), the structs that it shares with this side (`*_intf.h`, their
//! only definition: the types in the generated skeletons come from it) and its loader. Several systems use
//! `attach/` (where programs are attached), `flows/` (the table of measured flows; `passive` has its shared
//! structs from there) and `lib/` (helper-free C, which tests also compile for the host).
//!
//! What is attached belongs to file descriptors of this process: when the process ends, however it ends,
//! the kernel detaches it. Only `balance` may pin what it has.

mod attach;
pub mod balance;
pub mod burst;
pub mod decap;
mod error;
pub mod features;
mod flows;
mod object;
pub mod passive;
mod plain;
pub mod probe;
pub mod profile;
pub mod programs;
pub mod sense;
pub mod traffic;
pub mod window;

pub use batchwise_core::sense::connection::{Connection, Reading, Vitals};

pub use attach::cgroup::find as find_cgroup;
pub use attach::xdp;
pub use error::Error;
#[doc(hidden)]
pub use flows::gaps_from;
pub use object::holder;
pub use sense::{
    Actuator, Advertiser, Clocks, Config, Exchange, Extension, GuardFds, Hints, MOST_SERVICES,
    Owners, Ping, Release, Sensor, Socket, Tuning, Units, monotonic_ns,
};

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
    flows_skel: "flows.skel.rs",
    balance_skel: "balance.skel.rs",
    decap_skel: "decap.skel.rs",
    forward_skel: "forward.skel.rs",
    probe_skel: "probe.skel.rs",
    window_skel: "window.skel.rs",
    profile_skel: "profile.skel.rs",
    traffic_skel: "traffic.skel.rs",
    mark_skel: "mark.skel.rs",
    admit_skel: "admit.skel.rs",
    queue_skel: "queue.skel.rs"
}
