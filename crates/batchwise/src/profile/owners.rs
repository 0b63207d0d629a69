//! Which processes are meant: by number, or by the ports that they have sockets at, in any network namespace.

use std::collections::HashSet;
use std::io::ErrorKind;

use anyhow::{bail, ensure};
use procfs::ProcResult;
use procfs::process::{FDTarget, Process, all_processes};

/// Fails where one of these is no process.
pub fn are_processes(pids: &[u32]) -> anyhow::Result<()> {
    for pid in pids {
        let status = Process::new(*pid as i32).and_then(|process| process.status());
        let Ok(status) = status else {
            bail!("--pid {pid}: there is no such process");
        };
        ensure!(
            status.tgid == *pid as i32,
            "--pid {pid} is a thread of process {0}: --pid {0}",
            status.tgid
        );
    }
    Ok(())
}

/// Who has sockets at ports.
#[derive(Debug, Default)]
pub struct Owners {
    pub pids: Vec<u32>,
    /// Processes that could not be looked into.
    unseen: usize,
}

impl Owners {
    /// Processes with TCP or UDP sockets whose local or remote port is one of these.
    pub fn of(ports: &[u16]) -> anyhow::Result<Self> {
        let processes: Vec<_> = all_processes()?.flatten().collect();
        let mut namespaces = HashSet::new();
        let mut sockets = HashSet::new();
        let mut owners = Self::default();
        for process in &processes {
            match std::fs::read_link(format!("/proc/{}/ns/net", process.pid)) {
                Ok(namespace) => {
                    if namespaces.insert(namespace) {
                        sockets.extend(sockets_at(process, ports));
                    }
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    // a thread of the kernel has no command line, and no sockets
                    let may_have = process.cmdline().is_ok_and(|line| !line.is_empty());
                    owners.unseen += usize::from(may_have && !may_look_into_all()?);
                }
                // it has ended meanwhile
                Err(_) => {}
            }
        }
        for process in &processes {
            // or it has ended meanwhile
            if has_one_of(process, &sockets).unwrap_or(false) {
                owners.pids.push(process.pid as u32);
            }
        }
        Ok(owners)
    }

    /// Fails where there are none; says where there may be more.
    pub fn are_there(&self, ports: &[u16]) -> anyhow::Result<()> {
        let unseen = self.unseen;
        let hint = format!("{unseen} processes could not be looked into: CAP_SYS_PTRACE is needed");
        if !self.pids.is_empty() {
            if unseen > 0 {
                tracing::warn!("{hint}");
            }
            return Ok(());
        }
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let ports = ports.join(" or ");
        ensure!(
            unseen == 0,
            "no process with a socket at port {ports} is to be seen: {hint}"
        );
        bail!("no process has a socket at port {ports}: start the service first")
    }
}

/// Whether this process has CAP_SYS_PTRACE. A sandbox may keep single processes even from who has it.
fn may_look_into_all() -> ProcResult<bool> {
    const SYS_PTRACE: u64 = 1 << 19;
    Ok(Process::myself()?.status()?.capeff & SYS_PTRACE != 0)
}

/// What cannot be read is passed over: procfs' iterator does so without a word.
fn has_one_of(process: &Process, sockets: &HashSet<u64>) -> ProcResult<bool> {
    let mut descriptors = process.fd()?.flatten();
    Ok(descriptors.any(|one| matches!(one.target, FDTarget::Socket(at) if sockets.contains(&at))))
}

/// Inodes of sockets in the process's network namespace.
fn sockets_at(process: &Process, ports: &[u16]) -> HashSet<u64> {
    let tcp = [process.tcp(), process.tcp6()]
        .into_iter()
        .flatten()
        .flatten();
    let udp = [process.udp(), process.udp6()]
        .into_iter()
        .flatten()
        .flatten();
    let tcp = tcp.map(|s| (s.local_address, s.remote_address, s.inode));
    let udp = udp.map(|s| (s.local_address, s.remote_address, s.inode));
    let at_port = |a: &std::net::SocketAddr| ports.contains(&a.port());
    let all = tcp
        .chain(udp)
        .filter(|(local, remote, _)| at_port(local) || at_port(remote));
    all.map(|(.., inode)| inode).collect()
}
