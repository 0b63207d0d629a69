//! Health checks on the way of the traffic: what a socket with [`mark`] sends leaves the interface as
//! the balancer's packets to that backend do. The program reads the balancer's `backends` map.
//!
//! What it attaches belongs to a file descriptor of this process: when the process ends, however it
//! ends, the kernel detaches it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::Error;
use crate::balance::Balancer;
use crate::passive::attach::Interface;
use crate::probe_skel::{ProbeSkel, ProbeSkelBuilder};

/// The upper half of a probe's mark.
const PROBE_MARK: u32 = 0x6277_0000;

/// What to set with SO_MARK on a socket whose packets are to go to the backend with this index.
pub fn mark(index: u16) -> u32 {
    PROBE_MARK | u32::from(index)
}

/// The program, loaded and attached; detached when dropped.
pub struct Probe {
    // before the program: what is attached goes first
    _link: Option<OwnedFd>,
    skel: ProbeSkel<'static>,
}

impl Probe {
    /// Loads the program and attaches it to what leaves by `interface`, which must be the one that
    /// the route to the service's address takes.
    ///
    /// # Errors
    /// When the interface or the kernel does not allow it; each says the remedy.
    pub fn attach(balancer: &Balancer, interface: &str) -> Result<Self, Error> {
        let interface = Interface::find(interface)?;
        let mut probe = Self::load(balancer)?;
        probe._link = Some(interface.tc_egress(probe.program())?);
        Ok(probe)
    }

    /// Loads the program and attaches it nowhere.
    ///
    /// # Errors
    /// When the kernel does not allow it.
    pub fn load(balancer: &Balancer) -> Result<Self, Error> {
        // as in `sensor.rs`: the skeleton borrows its object, and lives as long as the process
        let holder: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ProbeSkelBuilder::default()
            .open(holder)
            .map_err(Error::bpf("opening the BPF object"))?;
        let reused = open.maps.backends.reuse_fd(balancer.backends_map());
        reused.map_err(Error::bpf("sharing the balancer's backends"))?;
        let skel = open
            .load()
            .map_err(Error::bpf("loading the BPF programs"))?;
        Ok(Self { _link: None, skel })
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.skel.progs.bw_probe.as_fd()
    }
}
