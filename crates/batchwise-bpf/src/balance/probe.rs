//! Health checks on the way of the traffic: what a socket with [`mark`] sends leaves the interface as
//! the balancer's packets to that backend do. The program reads the balancer's `backends` map.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::Balancer;
use crate::Error;
use crate::attach::interface::{Attachment, Interface, Tc};
use crate::object::load;
use crate::probe_skel::{ProbeSkel, ProbeSkelBuilder};

/// The upper half of a probe's mark.
const PROBE_MARK: u32 = 0x6277_0000;

/// What to set with SO_MARK on a socket whose packets are to go to the backend with this index.
pub fn mark(index: u16) -> u32 {
    PROBE_MARK | u32::from(index)
}

/// The program, loaded.
pub struct Probe {
    pub(crate) skel: ProbeSkel<'static>,
}

/// The program at an interface, until this is dropped.
#[derive(Debug)]
pub struct Attached(Attachment);

impl Attached {
    /// The index of the interface; none: it is gone, and the program with it.
    pub fn ifindex(&self) -> Option<u32> {
        self.0.ifindex()
    }
}

/// How many SYNs of health checks left on the way of the traffic.
#[derive(Debug)]
pub struct Probed(MapHandle);

impl Probed {
    /// To the backend with this index, since the program was loaded; none: it cannot be read.
    pub fn syns(&self, index: u16) -> Option<u64> {
        let key = u32::from(index).to_ne_bytes();
        let value = self.0.lookup(&key, MapFlags::ANY).ok()??;
        Some(u64::from_ne_bytes(value.try_into().ok()?))
    }
}

impl Probe {
    /// Loads the program and attaches it nowhere yet.
    pub fn load(balancer: &Balancer) -> Result<Self, Error> {
        let skel = load::<ProbeSkelBuilder>(|open| {
            let reused = open.maps.backends.reuse_fd(balancer.backends_map());
            reused.map_err(Error::bpf("sharing the balancer's backends"))
        })?;
        Ok(Self { skel })
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.skel.progs.probe_tc.as_fd()
    }

    /// Attaches it to what leaves by the interface with this index, which must be the one that the
    /// route to the service's address takes.
    ///
    /// # Errors
    /// When the interface or the kernel does not allow it; each says the remedy.
    pub fn attach(&self, ifindex: u32) -> Result<Attached, Error> {
        let interface = Interface::at(ifindex)?;
        interface.tc(self.program(), Tc::Egress).map(Attached)
    }

    /// What was sent.
    pub fn probed(&self) -> Result<Probed, Error> {
        let map = MapHandle::try_from(&self.skel.maps.probed);
        Ok(Probed(map.map_err(Error::bpf(
            "opening the count of health checks",
        ))?))
    }
}
