//! Which processes are meant: by number, or by the ports that they have sockets at, in any network namespace.

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::PathBuf;

use anyhow::{bail, ensure};

/// Fails where one of these is no process.
pub fn are_processes(pids: &[u32]) -> anyhow::Result<()> {
    for pid in pids {
        let Some(process) = status(pid, "Tgid:") else {
            bail!("--pid {pid}: there is no such process");
        };
        ensure!(
            process == pid.to_string(),
            "--pid {pid} is a thread of process {process}: --pid {process}"
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
        let entries = fs::read_dir("/proc")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pids: Vec<u32> = pids.collect();
        let mut namespaces = HashSet::new();
        let mut sockets = HashSet::new();
        let mut unseen = 0;
        for pid in &pids {
            match fs::read_link(format!("/proc/{pid}/ns/net")) {
                Ok(namespace) => {
                    if namespaces.insert(namespace) {
                        add_sockets_at(*pid, ports, &mut sockets);
                    }
                }
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    // a thread of the kernel has no command line, and no sockets
                    let line = fs::read(format!("/proc/{pid}/cmdline"));
                    let may_have = line.is_ok_and(|line| !line.is_empty());
                    unseen += usize::from(may_have && !may_look_into_all());
                }
                // it has ended meanwhile
                Err(_) => {}
            }
        }
        let owns = |pid: &u32| has_one_of(*pid, &sockets);
        let pids = pids.into_iter().filter(owns).collect();
        Ok(Self { pids, unseen })
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

/// A field of a process's status. `None`: there is no such process.
fn status(pid: impl Display, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(value.trim().to_owned())
}

/// Whether this process has CAP_SYS_PTRACE. A sandbox may keep single processes even from who has it.
fn may_look_into_all() -> bool {
    const SYS_PTRACE: u64 = 1 << 19;
    let capabilities = status("self", "CapEff:");
    let capabilities = capabilities.and_then(|bits| u64::from_str_radix(&bits, 16).ok());
    capabilities.is_some_and(|bits| bits & SYS_PTRACE != 0)
}

/// Whether the process has one of these sockets. What cannot be read is passed over: it may have ended.
fn has_one_of(pid: u32, sockets: &HashSet<PathBuf>) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut descriptors = descriptors.into_iter().flatten().flatten();
    descriptors.any(|one| fs::read_link(one.path()).is_ok_and(|to| sockets.contains(&to)))
}

/// Adds sockets of the process's network namespace, as links of descriptors name them.
fn add_sockets_at(pid: u32, ports: &[u16], sockets: &mut HashSet<PathBuf>) {
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        // without IPv6 there are two
        let Ok(table) = File::open(format!("/proc/{pid}/net/{table}")) else {
            continue;
        };
        let lines = BufReader::new(table).lines().map_while(Result::ok);
        sockets.extend(lines.filter_map(|line| socket_at(&line, ports)));
    }
}

/// The socket in a line of such a table, if it is at one of the ports.
fn socket_at(line: &str, ports: &[u16]) -> Option<PathBuf> {
    let mut fields = line.split_whitespace().skip(1);
    let mut is_at_port = || {
        let (_, port) = fields.next()?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(ports.contains(&port))
    };
    let (local, remote) = (is_at_port()?, is_at_port()?);
    let inode = fields.nth(6)?;
    (local || remote).then(|| format!("socket:[{inode}]").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_either_port() {
        let lines = [
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000   104        0 20481 1 0 100 0 0 10 0",
            "   1: 00000000000000000000000001000000:D431 00000000000000000000000001000000:18EB 01 00000000:00000000 02:0000030C 00000000     0        0 31337 2 0 20 4 30 10 -1",
        ];
        let at = |ports: &[u16]| lines.map(|line| socket_at(line, ports));
        let [listener, client] = ["socket:[20481]", "socket:[31337]"].map(|name| Some(name.into()));
        assert_eq!(at(&[6379]), [None, listener, client.clone()]);
        assert_eq!(at(&[80, 0xd431]), [None, None, client]);
    }
}
