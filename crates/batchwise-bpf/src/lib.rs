//! The BPF programs of batchwise and their loaders. They sense and hand over plain structs of
//! `batchwise-core`; they decide nothing.
//!
//! A folder a system: its program (`.bpf.c`), the structs that it shares with this side (`*_intf.h`, their
//! only definition: the types in the generated skeletons come from it) and its loader. What several systems
//! use, from the ground up, each standing only on those before it:
//!
//! - `lib/`: helper-free C, and the types that it uses, which tests also compile for the host
//! - `object`: opening, configuring and loading an object, on `plain` (structs as bytes) and `error`
//! - `attach/`: where programs are attached
//! - `features/`: the table of what a kernel must have, and how that is looked for
//! - `flows/`: the table of measured flows; `passive` has its shared structs from there
//!
//! On top of all systems stands `verify`, which loads every program for the doctor. A test holds all of this.
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
pub mod profile;
pub mod sense;
mod subcommand;
mod time;
pub mod traffic;
pub mod verify;
pub mod window;

pub use batchwise_core::sense::connection::{Connection, Reading, Vitals};

pub use attach::cgroup::find as find_cgroup;
pub use attach::interface::check as check_interface;
pub use attach::listeners::Listener;
pub use attach::netns::Namespace;
pub use attach::xdp;
pub use error::Error;
#[doc(hidden)]
pub use flows::gaps_from;
pub use object::holder;
pub use sense::{
    Actuator, Advertiser, Clocks, Config, Control, Exchange, Extension, GuardFds, Hints, Holders,
    MOST_SERVICES, Naming, Owners, Ping, Release, Sensor, Socket, Tuning, Units, Walker,
};
pub use time::monotonic_ns;

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
            include!(concat!(env!("OUT_DIR"), "/", $file, ".skel.rs"));

            #[allow(unused_imports)]
            mod plain {
                include!(concat!(env!("OUT_DIR"), "/", $file, ".plain.rs"));
            }
        }
    )*};
}

skeletons! {
    sense_skel: "sense",
    passive_skel: "passive",
    flows_skel: "flows",
    balance_skel: "balance",
    decap_skel: "decap",
    probe_skel: "probe",
    window_skel: "window",
    profile_skel: "profile",
    traffic_skel: "traffic",
    mark_skel: "mark",
    admit_skel: "admit",
    queue_skel: "queue"
}
