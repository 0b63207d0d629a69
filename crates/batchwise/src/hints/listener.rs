//! The socket at which applications hand over their hints. Who may is checked, what they hand over
//! is checked, and what they say is not believed beyond what can be.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use batchwise_core::sense::hint::{HintQueue, HintSums, Implausible, Moment};
use batchwise_hint::layout::REGISTRATION_LEN;
use batchwise_hint::reader::{Calibration, Identity, Mapping, Registration, Snapshot};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;

use super::windows::HintReading;
use crate::frame::door::{self, Door};
use crate::frame::messages::Complaints;

/// Processes that may hand over hints at a time, …
const MOST_PEERS: usize = 1024;
/// … and those of a user but root.
const MOST_OF_USER: usize = MOST_PEERS / 4;
/// Handles that one process may have, …
const MOST_HINTS: usize = 8192;
/// … all processes of a user, …
const MOST_HINTS_OF_USER: usize = 2 * MOST_HINTS;
/// … and all processes. The kernel lets us map 65,530 (vm.max_map_count); without one more there is no memory.
const MOST_HINTS_OF_ALL: usize = 4 * MOST_HINTS;
/// Processes that are accepted in one poll.
const AT_ONCE: usize = 256;
/// What a poll may take; who finds no time is first in the next.
const POLL: Duration = Duration::from_millis(10);
/// What one process may take of it, half of it for what is new: who makes handles all the time is read as well.
const POLL_OF_PEER: Duration = Duration::from_millis(3);

/// Takes hints from applications.
#[derive(Debug)]
pub struct HintListener {
    door: Door,
    allowed: HashSet<u32>,
    calibration: Calibration,
    peers: Vec<Peer>,
    next_id: u64,
    complaints: Complaints,
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
    /// When it was read last.
    at: u64,
}

impl HintListener {
    /// Listens at `path` for processes of root, of our own user and of the users `allowed`.
    pub fn bind(path: &Path, allowed: &[u32]) -> anyhow::Result<Self> {
        let mut allowed: HashSet<u32> = allowed.iter().copied().collect();
        allowed.extend([0, geteuid().as_raw()]);
        Ok(Self {
            door: Door::open(path, "--hints", "hints")?,
            allowed,
            calibration: Calibration::start(),
            peers: Vec::new(),
            next_id: 0,
            complaints: Complaints::default(),
        })
    }

    /// Takes in what is new, drops what is gone, and reads all hints, as far as there is time; those
    /// that ended since the last poll for the last time. Never blocks.
    pub fn poll(&mut self) -> Vec<HintReading> {
        self.calibration.follow();
        self.accept();
        let mut readings = Vec::new();
        let mut peers = std::mem::take(&mut self.peers);
        let mut handles = Handles::default();
        for peer in &peers {
            handles.add(peer.uid, peer.hints.len());
        }
        let mut has_news = news(&peers).into_iter();
        let end = Instant::now() + POLL;
        let mut served = 0;
        let is_over = |peer: &mut Peer| {
            let has_news = has_news.next().unwrap_or(true);
            let now = Instant::now();
            let half = || end.min(Instant::now() + POLL_OF_PEER / 2);
            let received = match has_news && now < end && !door::is_behind() {
                true => self.receive(peer, &mut handles, half()),
                false => Ok(true),
            };
            let read = peer.read(&self.calibration, half(), &mut readings);
            match received.and_then(|is_open| read.map_err(implausible).map(|()| is_open)) {
                Ok(is_open) => {
                    served += usize::from(is_open && now < end);
                    !is_open
                }
                Err(why) => {
                    let (pid, uid) = (peer.pid, peer.uid);
                    self.complaints.say(&format!(
                        "hints of process {pid} (user {uid}) dropped: {why}"
                    ));
                    true
                }
            }
        };
        let over: Vec<_> = peers.extract_if(.., is_over).map(|p| p.socket).collect();
        door::let_go(over);
        peers.rotate_left(served);
        self.peers = peers;
        readings
    }

    fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            let socket = match self.door.accept() {
                Ok(socket) => socket,
                Err(Errno::EAGAIN) => return,
                Err(error) => {
                    self.complaints
                        .say(&format!("hints cannot be accepted: {error}"));
                    return;
                }
            };
            let Ok(who) = getsockopt(&socket, PeerCredentials) else {
                door::let_go(vec![socket]);
                continue;
            };
            let (pid, uid) = (who.pid(), who.uid());
            let refusal = match () {
                () if !self.allowed.contains(&uid) => {
                    format!("hints of user {uid} refused: allow them with --hints-uid {uid}")
                }
                () if self.peers.len() >= MOST_PEERS => {
                    format!("hints of more than {MOST_PEERS} processes refused")
                }
                () if uid != 0 && self.places_of(uid) >= MOST_OF_USER => {
                    format!("hints of more than {MOST_OF_USER} processes of user {uid} refused")
                }
                () => {
                    self.peers.push(Peer {
                        socket,
                        pid,
                        uid,
                        hints: Vec::new(),
                    });
                    continue;
                }
            };
            self.complaints.say(&refusal);
            door::let_go(vec![socket]);
        }
    }

    fn places_of(&self, uid: u32) -> usize {
        self.peers.iter().filter(|peer| peer.uid == uid).count()
    }

    /// Takes in a process's new handles; whether its socket is still open, or why it is to be dropped.
    fn receive(
        &mut self,
        peer: &mut Peer,
        handles: &mut Handles,
        until: Instant,
    ) -> Result<bool, String> {
        while Instant::now() < until {
            let (registration, memory) = match receive(&peer.socket) {
                Ok(Some(it)) => it,
                Ok(None) | Err(Errno::ECONNRESET) => return Ok(false),
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(true),
                Err(Errno::EPROTO) => return Err("it sent no registration".to_owned()),
                Err(error) => return Err(error.to_string()),
            };
            if let Err(full) = handles.room_for(peer.uid, peer.hints.len()) {
                door::let_go(vec![memory]);
                return Err(full);
            }
            let mapped = Mapping::new(&memory, &self.calibration);
            door::let_go(vec![memory]);
            let mut memory = mapped.map_err(|why| why.to_string())?;
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
                at: now.at,
            });
            handles.add(peer.uid, 1);
        }
        Ok(true)
    }
}

/// Handles that there are.
#[derive(Debug, Default)]
struct Handles {
    of_users: HashMap<u32, usize>,
    all: usize,
}

impl Handles {
    fn add(&mut self, uid: u32, handles: usize) {
        *self.of_users.entry(uid).or_default() += handles;
        self.all += handles;
    }

    /// Whether this user's process, which has so many, may have one more; if not, why.
    fn room_for(&self, uid: u32, of_process: usize) -> Result<(), String> {
        let of_user = self.of_users.get(&uid).copied().unwrap_or_default();
        let (who, most) = match () {
            () if of_process >= MOST_HINTS => ("it has", MOST_HINTS),
            () if of_user >= MOST_HINTS_OF_USER => {
                ("its user's processes have", MOST_HINTS_OF_USER)
            }
            () if self.all >= MOST_HINTS_OF_ALL => ("all processes have", MOST_HINTS_OF_ALL),
            () => return Ok(()),
        };
        Err(format!("{who} more than {most} handles"))
    }
}

impl Drop for HintListener {
    /// With them goes what they have sent and nobody has received.
    fn drop(&mut self) {
        door::let_go(self.peers.drain(..).map(|peer| peer.socket).collect());
    }
}

impl Peer {
    /// Those for which there is no time say what they said last, and are first the next time.
    fn read(
        &mut self,
        calibration: &Calibration,
        until: Instant,
        readings: &mut Vec<HintReading>,
    ) -> Result<(), Implausible> {
        let mut result = Ok(());
        let mut read = 0;
        self.hints.retain_mut(|hint| {
            if Instant::now() >= until {
                readings.push(hint.reading());
                return true;
            }
            let now = hint.memory.read(calibration);
            match hint.queue.advance(sums(&now.sums), moment(&now)) {
                Ok(_) => {
                    hint.at = now.at;
                    readings.push(hint.reading());
                }
                Err(lie) => result = Err(lie),
            }
            read += usize::from(!now.closed);
            !now.closed
        });
        self.hints.rotate_left(read);
        result
    }
}

impl Hint {
    /// As it was read last.
    fn reading(&self) -> HintReading {
        HintReading {
            id: self.id,
            cookie: self.identity.cookie,
            service: self.identity.service,
            born: self.born,
            at: self.at,
            queue: self.queue.state(),
        }
    }
}

/// Which of them have sent something, or are gone: many stay and say nothing, which must cost no time.
fn news(peers: &[Peer]) -> Vec<bool> {
    let fds = peers
        .iter()
        .map(|peer| PollFd::new(peer.socket.as_fd(), PollFlags::POLLIN));
    let mut fds: Vec<_> = fds.collect();
    let asked = poll(&mut fds, PollTimeout::ZERO);
    let has = |fd: &PollFd<'_>| asked.is_err() || fd.any() != Some(false);
    fds.iter().map(has).collect()
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

/// The next registration; `None` when the process has hung up; EPROTO for what is none.
fn receive(socket: &OwnedFd) -> nix::Result<Option<(Registration, OwnedFd)>> {
    // one byte more than a registration has, to notice what is longer
    let mut bytes = [0; REGISTRATION_LEN + 1];
    let (length, mut descriptors) = door::receive(socket.as_fd(), &mut bytes)?;
    if length == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    let Some(registration) = Registration::decode(&bytes[..length]) else {
        door::let_go(descriptors);
        return Err(Errno::EPROTO);
    };
    match (descriptors.pop(), descriptors.is_empty()) {
        (Some(memory), true) => Ok(Some((registration, memory))),
        (memory, _) => {
            descriptors.extend(memory);
            door::let_go(descriptors);
            Err(Errno::EPROTO)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_users_together_leave_room_for_the_agents_own_memory() {
        let mut handles = Handles::default();
        for uid in 0..4 {
            assert_eq!(handles.room_for(uid, 0), Ok(()));
            handles.add(uid, MOST_HINTS);
        }
        handles
            .room_for(4, 0)
            .expect_err("there are as many as may be");
        let mut handles = Handles::default();
        handles.add(1, MOST_HINTS_OF_USER);
        handles
            .room_for(1, 0)
            .expect_err("the user has as many as it may");
        assert_eq!(handles.room_for(2, 0), Ok(()));
        handles
            .room_for(2, MOST_HINTS)
            .expect_err("the process has");
    }
}
