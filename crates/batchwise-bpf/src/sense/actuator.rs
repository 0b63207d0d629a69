//! Acting on sockets: what the agent decided for each service goes into a map, and its sockets follow,
//! one by one, or by a walk over all TCP sockets of a network namespace. [`Release`] undoes it all,
//! also from another process.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Side;
use batchwise_core::tune::Arm;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

use super::extension::{Extension, Loaded};
use super::owners::{Owners, Socket};
use crate::Error;
use crate::attach::{netns, walk};
use crate::features::Subcommand;
use crate::object::done;
use crate::plain::{bytes, octets, read};
use crate::sense_skel::{OpenSenseSkel, types};

/// Services that can be switched at a time.
pub const MOST_SERVICES: usize = types::sense_controls_size::SENSE_CONTROLS.0 as usize;

/// Lets sockets be changed.
#[derive(Clone, Copy, Debug)]
pub struct Tuning;

/// What a service's sockets are to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// This setting of Nagle's algorithm.
    Nagle(Arm),
    /// Acknowledgments that wait two ticks of the kernel's clock at most.
    AckSoon,
}

/// Changes sockets.
pub struct Actuator {
    controls: MapHandle,
    released: MapHandle,
    orphaned: MapHandle,
    walk: Link,
    owners: Link,
    cgroup: Option<PathBuf>,
}

impl Extension for Tuning {
    type Attached = Actuator;

    fn subcommand(&self) -> Option<Subcommand> {
        Some(Subcommand::Tune)
    }

    fn needs_cgroup(&self) -> bool {
        true
    }

    fn configure(&self, open: &mut OpenSenseSkel<'_>) {
        open.progs.sense_apply.set_autoload(true);
        open.progs.sense_owners.set_autoload(true);
        open.progs.sense_app_setting.set_autoload(true);
        if let Some(ro) = open.maps.rodata_data.as_deref_mut() {
            ro.tuning = true;
        }
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<Actuator, Error> {
        let (progs, maps) = (&loaded.skel.progs, &loaded.skel.maps);
        if let Some(cgroup) = &loaded.cgroup {
            let link = progs.sense_app_setting.attach_cgroup(cgroup.as_raw_fd());
            let attached = link.map_err(Error::bpf("attaching cgroup/setsockopt"))?;
            loaded.links.push(attached);
        }
        let opening = Error::bpf;
        let walk = progs.sense_apply.attach();
        let owners = progs.sense_owners.attach();
        Ok(Actuator {
            controls: MapHandle::try_from(&maps.controls).map_err(opening("opening a map"))?,
            released: MapHandle::try_from(&maps.released).map_err(opening("opening a map"))?,
            orphaned: MapHandle::try_from(&maps.orphaned_settings)
                .map_err(opening("opening a map"))?,
            walk: walk.map_err(Error::bpf("creating iter/tcp for changing sockets"))?,
            owners: owners.map_err(Error::bpf("creating iter/task_file"))?,
            cgroup: loaded.config.cgroup.clone(),
        })
    }
}

impl Actuator {
    /// What another process needs for [`Release`].
    pub fn guard_fds(&self) -> GuardFds {
        GuardFds {
            walk: self.walk.as_fd().as_raw_fd(),
            owners: self.owners.as_fd().as_raw_fd(),
            released: self.released.as_fd().as_raw_fd(),
        }
    }

    /// Writes down what a service's sockets are to have, `None`: what each application asked for.
    /// What an application asks for meanwhile is remembered, and goes into effect later.
    pub fn control(&self, service: &ServiceKey, control: Option<Control>) -> Result<(), Error> {
        let arm = match control {
            None => return self.forget(service),
            Some(Control::Nagle(Arm::On)) => types::sense_arm::SENSE_ARM_NAGLE_ON,
            Some(Control::Nagle(Arm::Off)) => types::sense_arm::SENSE_ARM_NAGLE_OFF,
            Some(Control::AckSoon) => types::sense_arm::SENSE_ARM_ACK_SOON,
        };
        let value = types::sense_control { arm };
        self.controls
            .update(bytes(&key(service)), bytes(&value), MapFlags::ANY)
            .map_err(Error::bpf("writing a decision"))
    }

    /// After [`Release`]: decisions count again.
    pub fn resume(&self) -> Result<(), Error> {
        self.released
            .update(&0u32.to_ne_bytes(), &0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::bpf("taking sockets over again"))
    }

    /// Forgets a service: its sockets are to be as their applications asked.
    pub fn forget(&self, service: &ServiceKey) -> Result<(), Error> {
        match self.controls.delete(bytes(&key(service))) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(Error::bpf("deleting a decision")(e))
            }
            _ => Ok(()),
        }
    }

    /// Finds out whose the watched sockets are: costs what all descriptors of all processes cost to look
    /// at. Without it, sockets are changed by a walk. `alive` is called again and again while it takes long.
    pub fn owners(&self, alive: &mut dyn FnMut()) -> Result<Owners, Error> {
        let walked = walk::run_long(self.owners.as_fd(), alive);
        let bytes = walked.map_err(Error::io("searching the processes' descriptors"))?;
        Ok(Owners::of(&bytes))
    }

    /// Changes these sockets, to what was written by [`Self::control`]. Those that have no owner that
    /// lets us are reached by a walk over the kernel's table of connections, a millisecond or more in
    /// each of their namespaces.
    pub fn set(&self, owners: &Owners, sockets: impl Iterator<Item = Socket>) -> Result<(), Error> {
        let left = owners.reach(sockets, false);
        self.set_all(&left.iter().map(|s| s.netns).collect())
    }

    /// Changes all sockets in these network namespaces, to what was written by [`Self::control`]: a millisecond or more
    /// in each.
    pub fn set_all(&self, namespaces: &BTreeSet<u32>) -> Result<(), Error> {
        self.walk(namespaces).map_err(Error::io("changing sockets"))
    }

    /// Gives these sockets of an earlier agent back, by `reach`, which is given their owners, and by a walk those that
    /// it returns, since no owner lets us: the PID namespace is another one. Returns the same.
    pub fn give_back(
        &self,
        sockets: &[Socket],
        reach: impl FnOnce(&Owners) -> Vec<Socket>,
        alive: &mut dyn FnMut(),
    ) -> Result<Vec<Socket>, Error> {
        for s in sockets {
            let value = u32::from(s.nodelay).to_ne_bytes();
            // what finds no room is left as it is
            if self
                .orphaned
                .update(&s.cookie.to_ne_bytes(), &value, MapFlags::ANY)
                .is_err()
            {
                break;
            }
        }
        let unreached = self.owners(alive).map(|owners| reach(&owners));
        let mut walked = Ok(());
        if unreached.as_ref().is_ok_and(|left| !left.is_empty()) {
            walked = walk_all(self.walk.as_fd(), self.cgroup.as_deref()).map(drop);
        }
        for s in sockets {
            // it may be none of those that found room
            let _ = self.orphaned.delete(&s.cookie.to_ne_bytes());
        }
        walked.map_err(Error::io("giving sockets back"))?;
        unreached
    }

    fn walk(&self, namespaces: &BTreeSet<u32>) -> io::Result<()> {
        if namespaces.is_empty() {
            return Ok(());
        }
        let own = netns::inode(&fs::metadata("/proc/self/ns/net")?);
        if namespaces.contains(&own) {
            walk::run(self.walk.as_fd())?;
        }
        if namespaces.iter().all(|ns| *ns == own) {
            return Ok(());
        }
        // one whose last process is gone has no sockets for long
        for ns in netns::others(self.cgroup.as_deref()) {
            if namespaces.contains(&netns::inode(&ns.metadata()?)) {
                netns::within(&ns, || walk::run(self.walk.as_fd()))?;
            }
        }
        Ok(())
    }
}

fn key(service: &ServiceKey) -> types::sense_service {
    types::sense_service {
        addr: octets(service.server.ip()),
        port: service.server.port(),
        server: u16::from(service.side == Side::Server),
        netns: service.netns,
    }
}

/// Walks here and in the namespaces of the cgroup's processes (of all, without one): in each, whatever fails elsewhere.
fn walk_all(link: BorrowedFd<'_>, cgroup: Option<&Path>) -> io::Result<Vec<Vec<u8>>> {
    let mut all = vec![walk::run(link)];
    for ns in netns::others(cgroup) {
        all.push(netns::within(&ns, || walk::run(link)));
    }
    all.into_iter().collect()
}

/// The descriptors that a [`Release`] works with.
#[derive(Clone, Copy, Debug)]
pub struct GuardFds {
    /// The walk that applies decisions.
    pub walk: RawFd,
    /// The walk over the descriptors of all processes.
    pub owners: RawFd,
    /// The switch that makes it apply the applications' own settings.
    pub released: RawFd,
}

/// Gives every socket back to its application: each has again the setting that it asked for.
///
/// It is prepared ahead since what opens a file waits while a memory cgroup is full, for seconds where those that
/// the kernel kills cannot end (alloc_empty_file, try_charge_memcg). In the network namespace where it was prepared
/// it needs no memory afterwards.
#[derive(Debug)]
pub struct Release {
    fds: GuardFds,
    own: File,
}

impl Release {
    /// The caller keeps the descriptors open.
    pub fn prepare(fds: GuardFds) -> io::Result<Self> {
        // SAFETY: the caller keeps it open.
        let own = walk::open(unsafe { BorrowedFd::borrow_raw(fds.walk) })?;
        Ok(Self { fds, own })
    }

    /// Does it, in this network namespace, and in those of the cgroup's processes (of all, without one). What applications
    /// had `asked` for on sockets that are in none of these, they get by way of their owners. Returns the cookies of the
    /// sockets that have it now. All but the first takes memory.
    pub fn run(
        mut self,
        cgroup: Option<&Path>,
        asked: impl FnOnce() -> Vec<(u64, bool)>,
    ) -> io::Result<HashSet<u64>> {
        let (index, yes) = (0u32.to_ne_bytes(), 1u32.to_ne_bytes());
        let (map, key, value) = (self.fds.released, index.as_ptr(), yes.as_ptr());
        // SAFETY: both buffers have the sizes that the map was made with (u32 each).
        done(unsafe { libbpf_sys::bpf_map_update_elem(map, key.cast(), value.cast(), 0) })?;
        // what fails here fails below, too
        let _ = walk::only(&mut self.own);
        // SAFETY: the caller keeps both open.
        let (link, owners) = unsafe {
            (
                BorrowedFd::borrow_raw(self.fds.walk),
                BorrowedFd::borrow_raw(self.fds.owners),
            )
        };
        let told = walk_all(link, cgroup)?;
        let cookies = told
            .iter()
            .flat_map(|told| told.chunks_exact(size_of::<u64>()));
        let mut back: HashSet<u64> = cookies.filter_map(read::<u64>).collect();
        let mut rest = asked();
        rest.retain(|(cookie, _)| !back.contains(cookie));
        if rest.is_empty() {
            return Ok(back);
        }
        let sockets = rest.iter().map(|&(cookie, nodelay)| Socket {
            cookie,
            netns: 0,
            nodelay,
        });
        let left = Owners::of(&walk::run(owners)?).reach(sockets, true);
        let left: HashSet<u64> = left.iter().map(|s| s.cookie).collect();
        let reached = rest.iter().map(|(cookie, _)| *cookie);
        back.extend(reached.filter(|cookie| !left.contains(cookie)));
        Ok(back)
    }
}
