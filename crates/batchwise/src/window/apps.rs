//! The applications that have connected: who they are, what they registered, and what became of it.

use std::collections::{BTreeSet, HashMap};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use anyhow::{Context, bail};
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

/// Stack of a thread that serves one of them.
const SMALL_STACK: usize = 128 * 1024;
/// Applications that one user may have at a time, and memories that are still somewhere.
const MOST_OF_A_USER: usize = 64;

/// All of them. Each is served by a thread of its own: what one hands over can take as long as it likes to
/// register (its lock is held) and to close (SO_LINGER, FUSE), and no other waits for that.
#[derive(Clone)]
pub struct Apps(Arc<Shared>);

struct Shared {
    table: Mutex<Table>,
    /// Sockets that were refused, since the start.
    refused: AtomicU64,
}

struct Table {
    /// `None`: the agent ends.
    window: Option<Window>,
    /// Also those that have hung up, until all that they handed over is closed.
    apps: Vec<Arc<App>>,
    /// What they were given, by the kernel's number, and whose it is: it stays for as long as they keep it.
    memories: HashMap<u32, u32>,
    complaints: Complaints,
}

/// One of them.
struct App {
    pid: i32,
    uid: u32,
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Its memory, once it has asked for it and until it hangs up.
    memory: Option<((u32, u32), Slots)>,
    /// Slots that were registered.
    registered: BTreeSet<u32>,
    /// As of the last reading.
    before: Sums,
    /// It has hung up.
    over: bool,
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
    pub fn new(window: Window) -> Self {
        let table = Table {
            window: Some(window),
            apps: Vec::new(),
            memories: HashMap::new(),
            complaints: Complaints::default(),
        };
        Self(Arc::new(Shared {
            table: Mutex::new(table),
            refused: AtomicU64::new(0),
        }))
    }

    /// Serves an application that has connected, if its user has not too many.
    pub fn add(&self, socket: OwnedFd) -> anyhow::Result<()> {
        let who = getsockopt(&socket, PeerCredentials).context("asking who connects")?;
        let (pid, uid) = (who.pid(), who.uid());
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let app = Arc::new(App {
            pid,
            uid,
            name: process_name(&name),
            state: Mutex::default(),
        });
        let mut table = self.table();
        let of_user = table.apps.iter().filter(|app| app.uid == uid).count();
        if of_user >= MOST_OF_A_USER || table.apps.len() >= MOST_APPS as usize {
            let what = format!("process {pid} refused: user {uid} has {of_user} applications here");
            table.complaints.say(&what);
            drop(table);
            door::let_go(vec![socket]);
            return Ok(());
        }
        table.apps.push(Arc::clone(&app));
        drop(table);
        let (apps, its) = (self.clone(), Arc::clone(&app));
        let thread = Builder::new()
            .name("application".to_owned())
            .stack_size(SMALL_STACK);
        let spawned = thread.spawn(move || apps.serve(&its, socket));
        if spawned.is_err() {
            self.forget(&app);
        }
        spawned.context("a thread for an application").map(drop)
    }

    /// Answers until it hangs up.
    fn serve(&self, app: &Arc<App>, socket: OwnedFd) {
        while self.answer(app, socket.as_fd()) {}
        {
            let mut table = self.table();
            let mut state = app.state();
            state.over = true;
            if let (Some(((number, _), _)), Some(window)) = (state.memory.take(), &mut table.window)
            {
                window.forget(number);
            }
        }
        // with all that is on the way in it
        drop(socket);
        self.forget(app);
    }

    fn forget(&self, app: &Arc<App>) {
        self.table().apps.retain(|other| !Arc::ptr_eq(other, app));
    }

    /// One question; false: it has hung up, or does not speak our language.
    fn answer(&self, app: &App, socket: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::new(socket, PollFlags::POLLIN)];
        // receiving says what is wrong
        let _ = poll(&mut fds, PollTimeout::NONE);
        let (ask, sockets) = match receive(socket) {
            Ok(Some(asked)) => asked,
            Err(Errno::EAGAIN | Errno::EINTR) => return true,
            _ => return false,
        };
        if (ask.magic, ask.version) != (MAGIC, VERSION) {
            let (pid, version) = (app.pid, ask.version);
            let what = format!("process {pid} speaks version {version}, not {VERSION}");
            self.table().complaints.say(&what);
            answer(socket, 0, &[]);
            return false;
        }
        let id = app.state().memory.as_ref().map(|(id, _)| *id);
        match (id, &sockets[..]) {
            (None, []) => self.begin(app, socket).unwrap_or_else(|error| {
                let what = format!("process {} gets no memory: {error:#}", app.pid);
                self.table().complaints.say(&what);
                false
            }),
            (Some(id), [its]) => {
                let error = match register(its.as_fd(), id, &ask) {
                    Ok(()) => {
                        app.state().registered.insert(ask.slot);
                        0
                    }
                    Err(errno) => {
                        self.0.refused.fetch_add(1, Ordering::Relaxed);
                        errno as u32
                    }
                };
                answer(socket, error, &[])
            }
            _ => false,
        }
    }

    /// Gives it its memory. False: it does not wait for that any more.
    fn begin(&self, app: &App, socket: BorrowedFd<'_>) -> anyhow::Result<bool> {
        let mut table = self.table();
        if has_hung_up(socket) {
            return Ok(false); // it would delay those that do wait
        }
        let number_of = |app: &Arc<App>| app.state().memory.as_ref().map(|((n, _), _)| *n);
        let taken: BTreeSet<u32> = table.apps.iter().filter_map(number_of).collect();
        let free = (0..MOST_APPS).find(|number| !taken.contains(number));
        let number = free.context("there are too many applications")?;
        let Table {
            window, memories, ..
        } = &mut *table;
        let window = window.as_mut().context("the agent ends")?;
        let there = window.memories()?;
        memories.retain(|memory, _| there.contains(memory));
        let of_user = memories.values().filter(|uid| **uid == app.uid).count();
        if of_user >= MOST_OF_A_USER || memories.len() >= MOST_APPS as usize {
            bail!(
                "{of_user} of {} that there are is kept by user {}",
                memories.len(),
                app.uid
            );
        }
        let memory = window.app(number, MOST_SLOTS)?;
        memories.insert(memory.memory, app.uid);
        let slots = Slots::map(memory.slots.as_fd(), MOST_SLOTS)?;
        app.state().memory = Some((memory.id, slots));
        Ok(answer(socket, 0, &[memory.slots.as_fd()]))
    }

    /// What each did since the last reading.
    pub fn read(&self) -> Vec<Seen> {
        let apps = self.table().apps.clone();
        apps.iter().filter_map(|app| app.read()).collect()
    }

    /// Sockets that were refused, since the start.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Connections that were gated, since the start.
    pub fn gated(&self) -> u64 {
        self.table().window.as_ref().map_or(0, Window::gated)
    }

    /// Fails when the cgroup is gone, or another one.
    pub fn check(&self) -> anyhow::Result<()> {
        let table = self.table();
        Ok(table.window.as_ref().map_or(Ok(()), Window::check)?)
    }

    /// Detaches the programs: a thread that waits for an application must not keep them.
    pub fn end(&self) {
        drop(self.table().window.take());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: it has hung up.
    fn read(&self) -> Option<Seen> {
        let mut state = self.state();
        if state.over {
            return None;
        }
        let mut seen = Seen {
            pid: self.pid,
            name: self.name.clone(),
            ..Seen::default()
        };
        let Some((_, slots)) = &state.memory else {
            return Some(seen);
        };
        let mut now = Sums::default();
        for slot in state.registered.iter().filter_map(|&slot| slots.get(slot)) {
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
        seen.events = now.events.wrapping_sub(state.before.events).into();
        seen.rung = now.rung.wrapping_sub(state.before.rung).into();
        seen.fallbacks = now.fallbacks.wrapping_sub(state.before.fallbacks).into();
        state.before = now;
        Some(seen)
    }
}

fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ended| ended > 0)
}

fn register(socket: BorrowedFd<'_>, app: (u32, u32), ask: &Ask) -> Result<(), Errno> {
    check(socket, ask)?;
    let registered = Window::register(socket, app, ask.slot, ask.turn);
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
