//! Copies of other processes' sockets: what getsockopt() says of a copy it says of the original.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::cgroup;
use crate::host::Host;

/// Copies of the sockets that the processes in `host` have accepted at `port`, at most so many.
pub fn accepted(host: &Host, port: u16, most: usize) -> Result<Vec<TcpStream>> {
    let served = |s: &TcpStream| s.local_addr().is_ok_and(|a| a.port() == port);
    copies(host, most, |s| served(s) && s.peer_addr().is_ok())
}

/// Copies of those that are connected to this address, at most so many.
pub fn connected(host: &Host, to: SocketAddr, most: usize) -> Result<Vec<TcpStream>> {
    copies(host, most, |s| s.peer_addr().is_ok_and(|a| a == to))
}

/// Of the connections that the processes in `host` have from or to a port of these: how many there are, and how many
/// of them have TCP_NODELAY. Takes one descriptor at a time.
pub fn with_nodelay(host: &Host, ports: RangeInclusive<u16>) -> Result<(usize, usize)> {
    let (mut all, mut nodelay) = (0, 0);
    each(host, |socket| {
        let local = socket.local_addr().map(|a| a.port());
        let remote = socket.peer_addr().map(|a| a.port());
        if let (Ok(local), Ok(remote)) = (local, remote)
            && (ports.contains(&local) || ports.contains(&remote))
        {
            all += 1;
            nodelay += usize::from(socket.nodelay().unwrap_or(false));
        }
        true
    })?;
    Ok((all, nodelay))
}

fn copies(
    host: &Host,
    most: usize,
    is_wanted: impl Fn(&TcpStream) -> bool,
) -> Result<Vec<TcpStream>> {
    let mut sockets = Vec::new();
    each(host, |socket| {
        if is_wanted(&socket) {
            sockets.push(socket);
        }
        sockets.len() < most
    })?;
    Ok(sockets)
}

/// Gives a copy of each socket of the processes in `host` to `take`, while that wants more.
fn each(host: &Host, mut take: impl FnMut(TcpStream) -> bool) -> Result<()> {
    for pid in cgroup::processes(host.cgroup())? {
        let process = Pid::from_raw(pid.as_raw()).context("a process without an id")?;
        let Ok(pidfd) = pidfd_open(process, PidfdFlags::empty()) else {
            continue;
        };
        let folder = format!("/proc/{pid}/fd");
        let entries = fs::read_dir(&folder).with_context(|| format!("listing {folder}"))?;
        for entry in entries.flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            if !target.to_string_lossy().starts_with("socket:") {
                continue;
            }
            let number = entry.file_name().to_string_lossy().parse()?;
            // closed meanwhile
            let Ok(copy) = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) else {
                continue;
            };
            if !take(TcpStream::from(copy)) {
                return Ok(());
            }
        }
    }
    Ok(())
}
