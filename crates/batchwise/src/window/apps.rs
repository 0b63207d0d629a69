//! The applications that have connected: who they are, what they registered, and what became of it.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use anyhow::Context;
use batchwise_bpf::window::{MOST_APPS, Window};
use batchwise_window::{Answer, Ask, MAGIC, MOST_SLOTS, Slots, VERSION};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{AcceptConn, PeerCredentials};
use nix::sys::socket::{
    ControlMessage, MsgFlags, SockaddrStorage, getpeername, getsockopt, sendmsg,
};

use crate::frame::door;
use crate::frame::human::process_name;
use crate::frame::messages::Complaints;

/// Applications that one user may have at a time.
const MOST_OF_A_USER: usize = 64;

/// All of them.
#[derive(Default)]
pub struct Apps {
    apps: Vec<App>,
    /// Sockets that were refused, since the start.
    pub refused: u64,
    complaints: Complaints,
}

/// One of them.
pub struct App {
    socket: OwnedFd,
    pub pid: i32,
    uid: u32,
    pub name: String,
    /// Its memory, once it has asked for it.
    memory: Option<((u32, u32), Slots)>,
    /// Slots that were registered.
    registered: BTreeSet<u32>,
    /// As of the last reading.
    before: Sums,
}

/// Sums over an application's sockets, since the kernel began to count (modulo 2^32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    events: u32,
    rung: u32,
    fallbacks: u32,
}

/// What an application's sockets did since the last reading.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub pid: i32,
    pub name: String,
    /// Registered, and not let go of.
    pub sockets: u64,
    /// Those of them whose application waits until TCP can send.
    pub waiting: u64,
    /// Bytes that wait in the kernel, of all sockets, as of their last acknowledgments.
    pub unsent: u64,
    /// Acknowledgments that were looked at.
    pub events: u64,
    /// Times that the application was woken.
    pub rung: u64,
    /// Times that it looked again as nothing had rung.
    pub fallbacks: u64,
    /// The longest of the sockets' last wake-ups, until the application heard of them, ns.
    pub lag_ns: u64,
}

impl Apps {
    /// Takes in an application that has connected, if its user has not too many.
    pub fn add(&mut self, socket: OwnedFd) -> anyhow::Result<()> {
        let who = getsockopt(&socket, PeerCredentials).context("asking who connects")?;
        let (pid, uid) = (who.pid(), who.uid());
        let of_user = self.apps.iter().filter(|app| app.uid == uid).count();
        if of_user >= MOST_OF_A_USER || self.apps.len() >= MOST_APPS as usize {
            let what = format!("process {pid} refused: user {uid} has {of_user} applications here");
            self.complaints.say(&what);
            return Ok(());
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        self.apps.push(App {
            socket,
            pid,
            uid,
            name: process_name(&name),
            memory: None,
            registered: BTreeSet::new(),
            before: Sums::default(),
        });
        Ok(())
    }

    /// Their sockets, in order.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.apps.iter().map(|app| app.socket.as_fd())
    }

    /// Serves those that asked something, by their position; those that hung up are forgotten.
    pub fn serve(&mut self, window: &mut Window, asked: &[bool]) {
        let mut position = 0;
        let taken: Vec<u32> = self.numbers().collect();
        let mut free = (0..MOST_APPS).filter(|number| !taken.contains(number));
        let (refused, complaints) = (&mut self.refused, &mut self.complaints);
        self.apps.retain_mut(|app| {
            let has_asked = asked.get(position).copied().unwrap_or(false);
            position += 1;
            if !has_asked || app.serve(window, &mut free, refused, complaints) {
                return true;
            }
            if let Some(((number, _), _)) = &app.memory {
                window.forget(*number);
            }
            false
        });
    }

    fn numbers(&self) -> impl Iterator<Item = u32> {
        let memory = self.apps.iter().filter_map(|app| app.memory.as_ref());
        memory.map(|((number, _), _)| *number)
    }

    /// What each did since the last reading.
    pub fn read(&mut self) -> Vec<Seen> {
        self.apps.iter_mut().map(App::read).collect()
    }
}

impl App {
    /// One question; false: it has hung up, or does not speak our language.
    fn serve(
        &mut self,
        window: &mut Window,
        free: &mut impl Iterator<Item = u32>,
        refused: &mut u64,
        complaints: &mut Complaints,
    ) -> bool {
        let (ask, sockets) = match receive(self.socket.as_fd()) {
            Ok(Some(asked)) => asked,
            Err(Errno::EAGAIN | Errno::EINTR) => return true,
            _ => return false,
        };
        if (ask.magic, ask.version) != (MAGIC, VERSION) {
            let pid = self.pid;
            let version = ask.version;
            complaints.say(&format!(
                "process {pid} speaks version {version}, not {VERSION}"
            ));
            answer(self.socket.as_fd(), 0, &[]);
            return false;
        }
        let goes_on = match (&self.memory, sockets.first()) {
            // it has not waited for its turn: its memory would delay those that do
            (None, None) if self.has_hung_up() => false,
            (None, None) => match self.begin(window, free) {
                Ok(()) => true,
                Err(error) => {
                    let pid = self.pid;
                    complaints.say(&format!("process {pid} gets no memory: {error:#}"));
                    false
                }
            },
            (Some((id, _)), Some(socket)) => {
                let error = match register(window, socket.as_fd(), *id, &ask) {
                    Ok(()) => {
                        self.registered.insert(ask.slot);
                        0
                    }
                    Err(errno) => {
                        *refused += 1;
                        errno as u32
                    }
                };
                answer(self.socket.as_fd(), error, &[])
            }
            _ => false,
        };
        door::let_go(sockets);
        goes_on
    }

    fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ended| ended > 0)
    }

    /// Gives it its memory.
    fn begin(
        &mut self,
        window: &mut Window,
        free: &mut impl Iterator<Item = u32>,
    ) -> anyhow::Result<()> {
        let number = free.next().context("there are too many applications")?;
        let memory = window.app(number, MOST_SLOTS)?;
        let slots = Slots::map(memory.slots.as_fd(), MOST_SLOTS)?;
        self.memory = Some((memory.id, slots));
        answer(self.socket.as_fd(), 0, &[memory.slots.as_fd()]);
        Ok(())
    }

    fn read(&mut self) -> Seen {
        let mut seen = Seen {
            pid: self.pid,
            name: self.name.clone(),
            ..Seen::default()
        };
        let Some((_, slots)) = &self.memory else {
            return seen;
        };
        let mut now = Sums::default();
        for slot in self.registered.iter().filter_map(|&slot| slots.get(slot)) {
            let of = |counter: &std::sync::atomic::AtomicU32| counter.load(Ordering::Relaxed);
            now.events = now.events.wrapping_add(of(&slot.events));
            now.rung = now.rung.wrapping_add(of(&slot.rung));
            now.fallbacks = now.fallbacks.wrapping_add(of(&slot.fallbacks));
            if of(&slot.turn) == 0 {
                continue; // the application has let go of it
            }
            seen.sockets += 1;
            seen.waiting += u64::from(of(&slot.armed) != 0);
            seen.unsent += u64::from(of(&slot.unsent));
            seen.lag_ns = seen.lag_ns.max(of(&slot.lag_ns).into());
        }
        seen.events = now.events.wrapping_sub(self.before.events).into();
        seen.rung = now.rung.wrapping_sub(self.before.rung).into();
        seen.fallbacks = now.fallbacks.wrapping_sub(self.before.fallbacks).into();
        self.before = now;
        seen
    }
}

fn register(
    window: &Window,
    socket: BorrowedFd<'_>,
    app: (u32, u32),
    ask: &Ask,
) -> Result<(), Errno> {
    check(socket, ask)?;
    let registered = window.register(socket, app, ask.slot, ask.turn);
    registered.map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(Errno::EIO as i32)))
}

/// Only a connected TCP socket, for a slot that there is.
pub fn check(socket: BorrowedFd<'_>, ask: &Ask) -> Result<(), Errno> {
    if !(1..MOST_SLOTS).contains(&ask.slot) || ask.turn == 0 {
        return Err(Errno::EINVAL);
    }
    let protocol = rustix::net::sockopt::socket_protocol(socket);
    let protocol = protocol.map_err(|e| Errno::from_raw(e.raw_os_error()))?;
    if protocol != Some(rustix::net::ipproto::TCP) {
        return Err(Errno::EPROTONOSUPPORT);
    }
    if getsockopt(&socket, AcceptConn)? {
        return Err(Errno::ENOTCONN);
    }
    getpeername::<SockaddrStorage>(socket.as_raw_fd()).map(drop)
}

/// A question and its descriptors. `None`: the application has hung up.
pub fn receive(from: BorrowedFd<'_>) -> Result<Option<(Ask, Vec<OwnedFd>)>, Errno> {
    let mut bytes = [0; size_of::<Ask>()];
    let (length, fds) = door::receive(from, &mut bytes)?;
    if length != bytes.len() {
        door::let_go(fds);
        return Ok(None);
    }
    let word = |at: usize| {
        let word = bytes[4 * at..4 * at + 4].try_into();
        word.map_or(0, u32::from_ne_bytes)
    };
    let ask = Ask {
        magic: word(0),
        version: word(1),
        slot: word(2),
        turn: word(3),
    };
    Ok(Some((ask, fds)))
}

/// Whether it could be sent.
fn answer(to: BorrowedFd<'_>, error: u32, fds: &[BorrowedFd<'_>]) -> bool {
    let bytes = [MAGIC, VERSION, error].map(u32::to_ne_bytes).concat();
    debug_assert_eq!(bytes.len(), size_of::<Answer>());
    let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(
        to.as_raw_fd(),
        &[IoSlice::new(&bytes)],
        control,
        flags,
        None,
    )
    .is_ok()
}
