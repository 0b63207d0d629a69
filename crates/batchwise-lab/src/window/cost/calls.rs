//! The system calls of a process, counted in the kernel.

use anyhow::{Context as _, Result};
use batchwise_bpf::holder;
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use nix::unistd::Pid;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/calls.skel.rs"));
}
use skel::{CallsSkel, CallsSkelBuilder};

/// Counts until it is dropped.
pub struct Calls(CallsSkel<'static>);

impl Calls {
    /// Counts those of this process from now on.
    pub fn of(process: Pid) -> Result<Self> {
        let mut open = CallsSkelBuilder::default().open(holder())?;
        let bss = open.maps.bss_data.as_deref_mut();
        bss.context("calls.bpf.c has no .bss")?.process = process.as_raw() as u32;
        let mut skel = open.load().context("loading a counter of system calls")?;
        skel.attach().context("attaching it")?;
        Ok(Self(skel))
    }

    /// So far.
    pub fn count(&self) -> u64 {
        self.0.maps.bss_data.as_deref().map_or(0, |bss| bss.calls)
    }
}
