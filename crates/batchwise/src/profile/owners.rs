//! Which processes are meant: by number, or by the ports that they have sockets at, in any network namespace.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, ensure};
use procfs::process::{FDTarget, Process, all_processes};

/// PROC_PID_INIT_INO (include/linux/proc_ns.h).
const MACHINES_NAMESPACE: u64 = 0xefff_fffc;

/// Fails in a PID namespace of a container: samples have the numbers that processes have on the machine.
pub fn have_their_own_numbers() -> anyhow::Result<()> {
    let namespace =
        std::fs::metadata("/proc/self/ns/pid").context("looking at the PID namespace")?;
    ensure!(
        namespace.ino() == MACHINES_NAMESPACE,
        "--pid and --port need the machine's PID namespace: in this one processes have other numbers. Start the container \
         with --pid=host (Kubernetes: hostPID: true), or sample the whole machine or a --cgroup"
    );
    Ok(())
}

/// Processes with TCP or UDP sockets whose local or remote port is one of these.
pub fn of_ports(ports: &[u16]) -> anyhow::Result<Vec<u32>> {
    let processes: Vec<_> = all_processes()?.flatten().collect();
    let mut namespaces = HashSet::new();
    let mut sockets = HashSet::new();
    for process in &processes {
        // a process that has ended meanwhile has nothing
        let namespace = std::fs::read_link(format!("/proc/{}/ns/net", process.pid));
        if namespace.is_ok_and(|namespace| namespaces.insert(namespace)) {
            sockets.extend(sockets_at(process, ports));
        }
    }
    let has_one = |process: &Process| {
        let descriptors = process.fd().into_iter().flatten().flatten();
        let mut targets = descriptors.map(|descriptor| descriptor.target);
        targets.any(|target| matches!(target, FDTarget::Socket(inode) if sockets.contains(&inode)))
    };
    let owners = processes.iter().filter(|process| has_one(process));
    Ok(owners.map(|process| process.pid as u32).collect())
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
