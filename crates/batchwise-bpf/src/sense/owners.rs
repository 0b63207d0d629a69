//! Switching single sockets: whose they are, and a descriptor of one for as long as a system call takes.
//! A descriptor that was kept would keep the socket open after its application has closed it.

use std::collections::{HashMap, HashSet};
use std::mem::size_of;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::plain::read;
use crate::sense_skel::types;

/// A socket, and what it is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its cookie.
    pub cookie: u64,
    /// Inode of its network namespace.
    pub netns: u32,
    /// TCP_NODELAY.
    pub nodelay: bool,
}

/// Where the watched sockets were when they were looked for.
#[derive(Debug, Default)]
pub struct Owners {
    /// By socket cookie: processes and descriptors. Processes that fork share sockets.
    descriptors: HashMap<u64, Vec<(u32, RawFd)>>,
    processes: HashMap<u32, OwnedFd>,
}

impl Owners {
    /// As the walk over the descriptors of all processes told.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let found = bytes.chunks_exact(size_of::<types::sense_owner>());
        let found = found.filter_map(read::<types::sense_owner>);
        let mut descriptors: HashMap<_, Vec<_>> = HashMap::new();
        let mut pids = HashSet::new();
        for owner in found {
            let of_socket = descriptors.entry(owner.cookie).or_default();
            of_socket.push((owner.tgid, owner.fd as RawFd));
            pids.insert(owner.tgid);
        }
        let open = |pid: u32| {
            let process = Pid::from_raw(pid.try_into().ok()?)?;
            Some((pid, pidfd_open(process, PidfdFlags::empty()).ok()?))
        };
        Self {
            descriptors,
            processes: pids.into_iter().filter_map(open).collect(),
        }
    }

    /// The clocks of the processes that have these sockets.
    pub fn clocks(&self, cookies: impl Iterator<Item = u64>) -> Clocks {
        let owners = cookies.filter_map(|cookie| self.descriptors.get(&cookie));
        let pids: HashSet<u32> = owners.flatten().map(|&(pid, _)| pid).collect();
        let clock =
            |pid: u32| clock_getcpuclockid(unistd::Pid::from_raw(pid.try_into().ok()?)).ok();
        Clocks(pids.into_iter().filter_map(clock).collect())
    }

    /// Whether a process had this socket.
    pub fn have(&self, cookie: u64) -> bool {
        self.descriptors.contains_key(&cookie)
    }

    /// Sets TCP_NODELAY on each of these; gives those that no owner lets us reach. One that was closed
    /// since is not among them. What an application holds back itself (TCP_CORK) is left alone, unless it
    /// is to be given back.
    pub fn reach(&self, sockets: impl Iterator<Item = Socket>, give_back: bool) -> Vec<Socket> {
        sockets.filter(|s| !self.set(s, give_back)).collect()
    }

    fn set(&self, s: &Socket, give_back: bool) -> bool {
        let Some(of_socket) = self.descriptors.get(&s.cookie) else {
            return false;
        };
        let mut closed = true;
        for (pid, fd) in of_socket {
            let done = self
                .processes
                .get(pid)
                .ok_or(Errno::PERM)
                .and_then(|process| {
                    let socket = pidfd_getfd(process, *fd, PidfdGetfdFlags::empty())?;
                    // the number may be another socket's by now
                    match sockopt::socket_cookie(&socket)? == s.cookie {
                        true if s.nodelay && !give_back && sockopt::tcp_cork(&socket)? => Ok(()),
                        true => sockopt::set_tcp_nodelay(&socket, s.nodelay),
                        false => Err(Errno::BADF),
                    }
                });
            match done {
                Ok(()) => return true,
                Err(Errno::BADF | Errno::SRCH) => {}
                Err(_) => closed = false,
            }
        }
        closed
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
