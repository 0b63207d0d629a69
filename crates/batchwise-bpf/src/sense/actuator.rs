//! Acting on sockets: what the agent decided for each service goes into a map, and a walk over the
//! TCP sockets of each network namespace brings them in line. [`release`] undoes it all, also from
//! another process.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use batchwise_core::sense::report::Side;
use batchwise_core::sense::wire::State;
use batchwise_core::tune::Arm;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::extension::{Extension, Loaded};
use crate::Error;
use crate::attach::{done, made, netns};
use crate::features::Subcommand;
use crate::plain::{Plain, bytes, octets};
use crate::sense_skel::{OpenSenseSkel, types};

/// What a service's sockets are to do, and what is advertised to the other end's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Nagle's algorithm; `None`: as each application asked for.
    pub arm: Option<Arm>,
    /// With [`Arm::On`]: bytes held back that the next ACK releases; 0: none.
    pub limit: u32,
    /// What is advertised to the other end's agent.
    pub advertised: State,
}

/// Lets sockets be changed.
#[derive(Clone, Copy, Debug)]
pub struct Tuning;

/// Changes sockets.
pub struct Actuator {
    controls: MapHandle,
    released: MapHandle,
    walk: Link,
    cgroup: Option<PathBuf>,
    namespaces: HashMap<u32, File>,
    own: u32,
    searched: Option<Instant>,
}

/// Looking through /proc for namespaces costs milliseconds: not more often than this.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

impl Extension for Tuning {
    type Attached = Actuator;

    fn subcommand(&self) -> Option<Subcommand> {
        Some(Subcommand::Tune)
    }

    fn needs_cgroup(&self) -> bool {
        true
    }

    fn configure(&self, open: &mut OpenSenseSkel<'_>) {
        open.progs.bw_apply.set_autoload(true);
        open.progs.bw_app_setting.set_autoload(true);
        if let Some(ro) = open.maps.rodata_data.as_deref_mut() {
            ro.tuning = true;
        }
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<Actuator, Error> {
        let (progs, maps) = (&loaded.skel.progs, &loaded.skel.maps);
        if let Some(cgroup) = &loaded.cgroup {
            let link = progs.bw_app_setting.attach_cgroup(cgroup.as_raw_fd());
            let attached = link.map_err(Error::bpf("attaching cgroup/setsockopt"))?;
            loaded.links.push(attached);
        }
        let opening = Error::bpf;
        let own = std::fs::metadata("/proc/self/ns/net");
        let walk = progs.bw_apply.attach();
        Ok(Actuator {
            controls: MapHandle::try_from(&maps.controls).map_err(opening("opening a map"))?,
            released: MapHandle::try_from(&maps.released).map_err(opening("opening a map"))?,
            walk: walk.map_err(Error::bpf("creating iter/tcp for changing sockets"))?,
            cgroup: loaded.config.cgroup.clone(),
            namespaces: HashMap::new(),
            own: own
                .map_err(Error::io("reading our network namespace"))?
                .ino() as u32,
            searched: None,
        })
    }
}

impl Actuator {
    /// What another process needs for [`release`].
    pub fn guard_fds(&self) -> GuardFds {
        GuardFds {
            walk: self.walk.as_fd().as_raw_fd(),
            released: self.released.as_fd().as_raw_fd(),
        }
    }

    /// Writes down what was decided; [`Self::apply`] makes it so.
    pub fn control(&self, server: SocketAddr, side: Side, control: &Control) -> Result<(), Error> {
        let value = types::bw_control {
            arm: match control.arm {
                None => types::bw_arm::BW_ARM_APP_SETTING,
                Some(Arm::On) => types::bw_arm::BW_ARM_ON,
                Some(Arm::Off) => types::bw_arm::BW_ARM_OFF,
            },
            limit: control.limit,
            advertised: control.advertised.flags(),
        };
        self.controls
            .update(bytes(&key(server, side)), bytes(&value), MapFlags::ANY)
            .map_err(Error::bpf("writing a decision"))
    }

    /// After [`release`]: decisions count again.
    pub fn resume(&self) -> Result<(), Error> {
        self.released
            .update(&0u32.to_ne_bytes(), &0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::bpf("taking sockets over again"))
    }

    /// Forgets a service: its sockets are to be as their applications asked.
    pub fn forget(&self, server: SocketAddr, side: Side) -> Result<(), Error> {
        match self.controls.delete(bytes(&key(server, side))) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::bpf("deleting a decision")(e))
            }
            _ => Ok(()),
        }
    }

    /// Brings the sockets in line in these network namespaces (inodes, as in
    /// [`crate::Connection::netns`]).
    pub fn apply(&mut self, namespaces: impl Iterator<Item = u32>) -> Result<(), Error> {
        let begin = Instant::now();
        for inode in namespaces {
            if inode == self.own {
                walk(self.walk.as_fd()).map_err(Error::io("changing sockets"))?;
                continue;
            }
            if !self.namespaces.contains_key(&inode) && !self.search() {
                continue;
            }
            let Some(ns) = self.namespaces.get(&inode) else {
                continue; // its last process is gone, and soon its sockets
            };
            let fd = self.walk.as_fd();
            netns::within(ns, || walk(fd)).map_err(Error::io("changing sockets"))?;
        }
        tracing::trace!("sockets changed in {:?}", begin.elapsed());
        Ok(())
    }

    fn search(&mut self) -> bool {
        if self.searched.is_some_and(|at| at.elapsed() < SEARCH_EVERY) {
            return false;
        }
        self.searched = Some(Instant::now());
        let found = netns::others(self.cgroup.as_deref());
        let inode = |f: &File| f.metadata().map(|m| m.ino() as u32).ok();
        self.namespaces = found
            .into_iter()
            .filter_map(|f| Some((inode(&f)?, f)))
            .collect();
        true
    }
}

fn key(server: SocketAddr, side: Side) -> types::bw_service {
    types::bw_service {
        addr: octets(server.ip()),
        port: server.port(),
        server: u16::from(side == Side::Server),
    }
}

/// Runs the walk in the network namespace that the calling thread is in.
fn walk(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a system call on a descriptor that is open; the result is checked.
    let iter = made(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?;
    io::copy(&mut File::from(iter), &mut io::sink()).map(drop)
}

/// The descriptors that [`release`] works with.
#[derive(Clone, Copy, Debug)]
pub struct GuardFds {
    /// The walk that applies decisions.
    pub walk: RawFd,
    /// The switch that makes it apply the applications' own settings.
    pub released: RawFd,
}

/// Gives every socket back to its application: each has again the setting that it asked for.
pub fn release(fds: &GuardFds, cgroup: Option<&Path>) -> io::Result<()> {
    let (index, yes) = (0u32.to_ne_bytes(), 1u32.to_ne_bytes());
    // SAFETY: both buffers have the sizes that the map was made with (u32 each).
    done(unsafe {
        libbpf_sys::bpf_map_update_elem(fds.released, index.as_ptr().cast(), yes.as_ptr().cast(), 0)
    })?;
    // SAFETY: the caller keeps it open.
    let link = unsafe { BorrowedFd::borrow_raw(fds.walk) };
    let mut result = walk(link);
    for ns in netns::others(cgroup) {
        result = result.and(netns::within(&ns, || walk(link)));
    }
    result
}

impl Plain for types::bw_service {}
impl Plain for types::bw_control {}
