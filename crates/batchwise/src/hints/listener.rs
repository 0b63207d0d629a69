//! The socket at which applications hand over their hints. Who may is checked, what they hand over
//! is checked, and what they say is not believed beyond what can be.

use std::collections::HashSet;
use std::fs;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use batchwise_core::sense::hint::{HintQueue, HintSums, Implausible, Moment};
use batchwise_hint::layout::REGISTRATION_LEN;
use batchwise_hint::reader::{Calibration, Identity, Mapping, Registration, Snapshot};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept4,
    bind, connect, getsockopt, listen, recvmsg, socket,
};
use nix::unistd::geteuid;

use super::windows::HintReading;

/// Processes that may hand over hints at a time.
const MOST_PEERS: usize = 1024;
/// Handles that one process may have.
const MOST_HINTS: usize = 8192;
/// Processes that wait to be accepted.
const BACKLOG: i32 = 256;
/// Descriptors that one message can bring (the kernel's SCM_MAX_FD).
const MOST_DESCRIPTORS: usize = 253;
/// Different complaints that are remembered, so that each is made once.
const MOST_COMPLAINTS: usize = 1024;

/// Takes hints from applications.
#[derive(Debug)]
pub struct HintListener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket's file: it may be another's by the time we end.
    file: (u64, u64),
    allowed: HashSet<u32>,
    calibration: Calibration,
    peers: Vec<Peer>,
    next_id: u64,
    complaints: HashSet<String>,
}

/// A process that has connected.
#[derive(Debug)]
struct Peer {
    socket: OwnedFd,
    pid: i32,
    uid: u32,
    hints: Vec<Hint>,
}

#[derive(Debug)]
struct Hint {
    id: u64,
    identity: Identity,
    memory: Mapping,
    queue: HintQueue,
    born: u64,
}

impl HintListener {
    /// Listens at `path` for processes of root, of our own user and of the users `allowed`.
    pub fn bind(path: &Path, allowed: &[u32]) -> anyhow::Result<Self> {
        let shown = path.display();
        make_room(path)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .context("a socket for hints")?;
        let address = UnixAddr::new(path).with_context(|| format!("--hints {shown}"))?;
        bind(socket.as_raw_fd(), &address).with_context(|| {
            format!("cannot listen for hints at {shown}: run as root, or give a path with --hints")
        })?;
        // who connects is checked; the file lets everyone try
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))
            .and_then(|()| Ok(listen(&socket, Backlog::new(BACKLOG)?)?))
            .with_context(|| format!("listening for hints at {shown}"))?;
        let file = fs::metadata(path).with_context(|| format!("reading {shown}"))?;
        let mut allowed: HashSet<u32> = allowed.iter().copied().collect();
        allowed.extend([0, geteuid().as_raw()]);
        Ok(Self {
            socket,
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
            allowed,
            calibration: Calibration::start(),
            peers: Vec::new(),
            next_id: 0,
            complaints: HashSet::new(),
        })
    }

    /// Takes in what is new, drops what is gone, and reads all hints; those that ended since the
    /// last poll for the last time. Never blocks.
    pub fn poll(&mut self) -> Vec<HintReading> {
        self.accept();
        let mut readings = Vec::new();
        let mut peers = std::mem::take(&mut self.peers);
        peers.retain_mut(|peer| {
            let received = self.receive(peer);
            let read = peer.read(&self.calibration, &mut readings);
            match received.and_then(|is_open| read.map_err(implausible).map(|()| is_open)) {
                Ok(is_open) => is_open,
                Err(why) => {
                    let (pid, uid) = (peer.pid, peer.uid);
                    self.complain(&format!(
                        "hints of process {pid} (user {uid}) dropped: {why}"
                    ));
                    false
                }
            }
        });
        self.peers = peers;
        readings
    }

    fn accept(&mut self) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        for _ in 0..BACKLOG {
            let fd = match accept4(self.socket.as_raw_fd(), flags) {
                Ok(fd) => fd,
                Err(Errno::ECONNABORTED | Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return,
                Err(error) => {
                    self.complain(&format!("hints cannot be accepted: {error}"));
                    return;
                }
            };
            // SAFETY: the kernel just gave it to us.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            let Ok(who) = getsockopt(&socket, PeerCredentials) else {
                continue;
            };
            if !self.allowed.contains(&who.uid()) {
                self.complain(&format!(
                    "hints of process {} refused: allow its user with --hints-uid {}",
                    who.pid(),
                    who.uid()
                ));
            } else if self.peers.len() >= MOST_PEERS {
                self.complain(&format!(
                    "hints of more than {MOST_PEERS} processes refused"
                ));
            } else {
                self.peers.push(Peer {
                    socket,
                    pid: who.pid(),
                    uid: who.uid(),
                    hints: Vec::new(),
                });
            }
        }
    }

    /// Takes in a process's new handles; whether its socket is still open, or why it is to be dropped.
    fn receive(&mut self, peer: &mut Peer) -> Result<bool, String> {
        while peer.hints.len() < MOST_HINTS {
            let (registration, memory) = match receive(&peer.socket) {
                Ok(Some(it)) => it,
                Ok(None) | Err(Errno::ECONNRESET) => return Ok(false),
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(true),
                Err(Errno::EPROTO) => return Err("it sent no registration".to_owned()),
                Err(error) => return Err(error.to_string()),
            };
            let memory = Mapping::new(&memory, &self.calibration);
            let mut memory = memory.map_err(|why| why.to_string())?;
            let now = memory.read(&self.calibration);
            let (queue, born) = if registration.fresh {
                let age = now.ticks.wrapping_sub(memory.made_at()) as f64 * now.ns_per_tick;
                let queue = HintQueue::fresh(memory.made_at(), moment(&now));
                (queue, now.at.saturating_sub(age as u64))
            } else {
                let queue = HintQueue::new(sums(&now.sums), moment(&now));
                (queue.map_err(implausible)?, now.at)
            };
            self.next_id += 1;
            peer.hints.push(Hint {
                id: self.next_id,
                identity: registration.identity,
                memory,
                queue,
                born,
            });
        }
        Err(format!("it has more than {MOST_HINTS} handles"))
    }

    /// Once, however often the application comes back.
    fn complain(&mut self, complaint: &str) {
        if self.complaints.len() < MOST_COMPLAINTS && self.complaints.insert(complaint.to_owned()) {
            tracing::warn!("{complaint}");
        }
    }
}

impl Drop for HintListener {
    fn drop(&mut self) {
        let ours = |m: fs::Metadata| (m.dev(), m.ino()) == self.file;
        if fs::metadata(&self.path).is_ok_and(ours) {
            // a file that stays is no harm: the next agent removes it
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Peer {
    fn read(
        &mut self,
        calibration: &Calibration,
        readings: &mut Vec<HintReading>,
    ) -> Result<(), Implausible> {
        let mut result = Ok(());
        self.hints.retain_mut(|hint| {
            let now = hint.memory.read(calibration);
            match hint.queue.advance(sums(&now.sums), moment(&now)) {
                Ok(queue) => readings.push(HintReading {
                    id: hint.id,
                    cookie: hint.identity.cookie,
                    service: hint.identity.service,
                    born: hint.born,
                    at: now.at,
                    queue,
                }),
                Err(lie) => result = Err(lie),
            }
            !now.closed
        });
        result
    }
}

fn implausible(_: Implausible) -> String {
    "its numbers cannot be".to_owned()
}

fn moment(s: &Snapshot) -> Moment {
    Moment {
        ticks: s.ticks,
        at: s.at,
        ns_per_tick: s.ns_per_tick,
    }
}

/// Makes the directory, and removes the socket of an agent that is no more.
fn make_room(path: &Path) -> anyhow::Result<()> {
    let shown = path.display();
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(parent);
        made.with_context(|| format!("--hints {shown}: making its directory"))?;
    }
    let Ok(file) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !file.file_type().is_socket() {
        bail!("--hints {shown}: there is something else; give another path");
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let probe = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    match connect(probe.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => {}
        Err(error @ (Errno::EACCES | Errno::EPERM | Errno::EPROTOTYPE)) => {
            bail!("--hints {shown}: the socket is another's ({error}); give another path")
        }
        _ => bail!(
            "another agent takes hints at {shown}: stop it, or give another path with --hints"
        ),
    }
    fs::remove_file(path).with_context(|| format!("removing the stale socket {shown}"))
}

/// The next registration; `None` when the process has hung up; EPROTO for what is none.
fn receive(socket: &OwnedFd) -> nix::Result<Option<(Registration, OwnedFd)>> {
    // one byte more than a registration has, to notice what is longer
    let mut bytes = [0; REGISTRATION_LEN + 1];
    // room for all that a message can bring: what does not fit would stay open and unknown
    let mut control = nix::cmsg_space!([i32; MOST_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let length = message.bytes;
    let mut descriptors = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = part {
            for fd in fds {
                // SAFETY: the kernel just gave it to us.
                descriptors.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    if length == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    let registration = Registration::decode(&bytes[..length]).ok_or(Errno::EPROTO)?;
    match (descriptors.pop(), descriptors.is_empty()) {
        (Some(memory), true) => Ok(Some((registration, memory))),
        _ => Err(Errno::EPROTO),
    }
}

/// What an application has counted, in the words of the mathematics.
fn sums(s: &batchwise_hint::layout::Sums) -> HintSums {
    HintSums {
        created: s.created,
        created_at: s.created_at,
        completed: s.completed,
        completed_at: s.completed_at,
        untimed_created: s.untimed_created,
        untimed_completed: s.untimed_completed,
    }
}
