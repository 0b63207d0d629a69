//! Switching single sockets: whose they are, and a descriptor of one for as long as a system call takes.
//! A descriptor that was kept would keep the socket open after its application has closed it.

use std::collections::{HashMap, HashSet};
use std::mem::size_of;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use libbpf_rs::Link;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::sensor::read_iter;
use crate::Error;
use crate::plain::{Plain, read};
use crate::sense_skel::types;

/// Where the watched sockets were when they were looked for.
#[derive(Debug, Default)]
pub struct Owners {
    /// By socket cookie: process and descriptor.
    descriptors: HashMap<u64, (u32, RawFd)>,
    processes: HashMap<u32, OwnedFd>,
}

impl Owners {
    /// Runs `walk` over the descriptors of all processes.
    pub(super) fn find(walk: &Link) -> Result<Self, Error> {
        let bytes = read_iter(walk).map_err(Error::io("searching the processes' descriptors"))?;
        let found = bytes.chunks_exact(size_of::<types::bw_owner>());
        let found = found.filter_map(read::<types::bw_owner>);
        let descriptors: HashMap<_, _> = found
            .map(|owner| (owner.cookie, (owner.tgid, owner.fd as RawFd)))
            .collect();
        let pids: HashSet<u32> = descriptors.values().map(|&(pid, _)| pid).collect();
        let open = |pid: u32| {
            let process = Pid::from_raw(pid.try_into().ok()?)?;
            Some((pid, pidfd_open(process, PidfdFlags::empty()).ok()?))
        };
        Ok(Self {
            descriptors,
            processes: pids.into_iter().filter_map(open).collect(),
        })
    }

    /// The clocks of the processes that have these sockets.
    pub fn clocks(&self, cookies: impl Iterator<Item = u64>) -> Clocks {
        let owner = |cookie| self.descriptors.get(&cookie).map(|&(pid, _)| pid);
        let pids: HashSet<u32> = cookies.filter_map(owner).collect();
        let clock =
            |pid: u32| clock_getcpuclockid(unistd::Pid::from_raw(pid.try_into().ok()?)).ok();
        Clocks(pids.into_iter().filter_map(clock).collect())
    }

    /// Sets TCP_NODELAY on the socket. False: it is not reached in this way.
    pub(super) fn set(&self, cookie: u64, nodelay: bool) -> bool {
        let Some(&(pid, fd)) = self.descriptors.get(&cookie) else {
            return false;
        };
        let Some(process) = self.processes.get(&pid) else {
            return false;
        };
        let done = pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
            // the number may be another socket's by now
            .and_then(|socket| match sockopt::socket_cookie(&socket)? == cookie {
                true => set(&socket, nodelay),
                false => Err(Errno::BADF),
            });
        // one that was closed since needs no other way
        matches!(done, Ok(()) | Err(Errno::BADF | Errno::SRCH))
    }
}

/// Of processes.
#[derive(Debug)]
pub struct Clocks(Vec<ClockId>);

impl Clocks {
    /// CPU time that they have used, all their threads; what has ended counts no longer.
    pub fn cpu_time(&self) -> Duration {
        let time = |clock: &ClockId| clock.now().ok().map(Duration::from);
        self.0.iter().filter_map(time).sum()
    }
}

fn set(socket: &OwnedFd, nodelay: bool) -> Result<(), Errno> {
    // TCP_NODELAY pushes what the application holds back itself
    if nodelay && sockopt::tcp_cork(socket)? {
        return Ok(());
    }
    sockopt::set_tcp_nodelay(socket, nodelay)
}

impl Plain for types::bw_owner {}
