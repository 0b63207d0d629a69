//! Whose sockets are: which processes hold the watched ones, and the listeners.

use std::collections::{BTreeMap, HashMap};
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use batchwise_core::passive::address;
use batchwise_core::sense::connection::ServiceKey;
use libbpf_rs::Link;

use super::extension::{Extension, Loaded};
use crate::Error;
use crate::attach::walk;
use crate::features::in_machines_pids;
use crate::plain::read;
use crate::sense_skel::{OpenSenseSkel, types};

const INIT: u32 = 1;

/// Lets be found out whose sockets are.
#[derive(Clone, Copy, Debug)]
pub struct Naming;

/// Finds it out.
#[derive(Debug)]
pub struct Walker(Link);

/// As a walk found it. Of several processes that share a socket, the one with the lowest number: usually the others'
/// parent, but not that which opens sockets for others.
#[derive(Debug, Default)]
pub struct Holders {
    sockets: HashMap<u64, u32>,
    listeners: BTreeMap<(u32, SocketAddr), u32>,
}

impl Naming {
    /// None: this PID namespace is not the machine's, so that others' processes have no numbers here.
    pub fn here() -> Option<Self> {
        in_machines_pids().unwrap_or(false).then_some(Self)
    }
}

impl Extension for Naming {
    type Attached = Walker;

    fn configure(&self, open: &mut OpenSenseSkel<'_>) {
        open.progs.sense_owners.set_autoload(true);
        if let Some(ro) = open.maps.rodata_data.as_deref_mut() {
            ro.naming = true;
        }
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<Walker, Error> {
        let walk = loaded.skel.progs.sense_owners.attach();
        Ok(Walker(walk.map_err(Error::bpf("creating iter/task_file"))?))
    }
}

impl Walker {
    /// What this process holds, or all do. Costs what all descriptors of all processes cost to look at.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    pub fn look(&self, only: Option<u32>) -> Result<Holders, Error> {
        let told = walk::run(self.0.as_fd());
        let told = told.map_err(Error::io("searching the processes' descriptors"))?;
        let mut holders = Holders::default();
        let owners = told.chunks_exact(size_of::<types::sense_owner>());
        let owners = owners.filter_map(read::<types::sense_owner>);
        for owner in owners.filter(|owner| only.is_none_or(|pid| pid == owner.tgid)) {
            let at = owner.listens;
            let pid = match at.port {
                0 => holders.sockets.entry(owner.cookie).or_insert(owner.tgid),
                port => {
                    let address = SocketAddr::new(address(at.addr), port);
                    let listener = (at.netns, address);
                    holders.listeners.entry(listener).or_insert(owner.tgid)
                }
            };
            *pid = match (*pid, owner.tgid) {
                (INIT, other) | (other, INIT) => other,
                (a, b) => a.min(b),
            };
        }
        Ok(holders)
    }
}

impl Holders {
    /// The process that holds a connection, by its cookie.
    pub fn of_connection(&self, cookie: u64) -> Option<u32> {
        self.sockets.get(&cookie).copied()
    }

    /// The process that listens for a server's service.
    pub fn of_listener(&self, service: &ServiceKey) -> Option<u32> {
        service.at_its_listener(|at| self.listeners.get(&at).copied())
    }
}
