//! The link to the agent: one thread a process, which sleeps, hands every segment to the agent over
//! a Unix socket, and looks for another agent once a second when there is none.

use std::env;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg, socket,
};

use crate::layout::{Identity, Registration};
use crate::segment::{Segment, TIMED_BY};
use crate::{clock, threads};

/// Where the agent listens, unless [`SOCKET_VARIABLE`] says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/batchwise/hint/hint.sock";
/// The environment variable with the path of the agent's socket.
pub const SOCKET_VARIABLE: &str = "BATCHWISE_HINT_SOCKET";

/// How often an agent is looked for.
const RETRY: Duration = Duration::from_secs(1);
/// How soon a full socket is tried again.
const FULL_RETRY_MS: u16 = 50;
/// New segments that wait for the thread; more than that is handed over at the next agent's start.
const MOST_WAITING: usize = 1 << 14;
/// The thread's stack, bytes: what glibc demands and some.
const STACK: usize = 128 << 10;

/// What the application's threads and the link's share.
struct Link {
    open: Mutex<Open>,
    opened: Condvar,
    /// Wakes the thread while it waits for the agent to hang up.
    wake: EventFd,
}

#[derive(Default)]
struct Open {
    segments: Vec<Weak<Segment>>,
    /// Opened while an agent listens; kept until handed over, however short their handle lived.
    waiting: Vec<Arc<Segment>>,
}

/// Makes the segment of a handle and brings it to the agent's knowledge.
pub fn open(identity: Identity) -> Option<Arc<Segment>> {
    if threads::is_forked() {
        return None;
    }
    threads::notice_forks();
    let link = link()?;
    let segment = Arc::new(Segment::new(identity).ok()?);
    let mut open = link.lock();
    open.segments.push(Arc::downgrade(&segment));
    if TIMED_BY.load(Ordering::Relaxed) != 0 && open.waiting.len() < MOST_WAITING {
        open.waiting.push(Arc::clone(&segment));
        // a full counter wakes as well
        let _ = link.wake.write(1);
    }
    drop(open);
    link.opened.notify_one();
    Some(segment)
}

/// The process's link; the first call starts its thread.
fn link() -> Option<&'static Link> {
    static LINK: OnceLock<Option<&'static Link>> = OnceLock::new();
    *LINK.get_or_init(|| {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let link: &'static Link = Box::leak(Box::new(Link {
            open: Mutex::default(),
            opened: Condvar::new(),
            wake: EventFd::from_flags(flags).ok()?,
        }));
        let path = env::var_os(SOCKET_VARIABLE).unwrap_or_else(|| DEFAULT_SOCKET.into());
        // the application's signals are its own threads' business
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let builder = thread::Builder::new().name("batchwise-hint".to_owned());
        let thread = builder.stack_size(STACK).spawn(|| link.run(&path.into()));
        if let Ok(mask) = mask {
            // it was in force before
            let _ = mask.thread_set_mask();
        }
        thread.ok().map(|_| link)
    })
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, path: &PathBuf) -> ! {
        loop {
            self.wait_for_handles();
            if let Ok(agent) = reach(path) {
                TIMED_BY.store(clock::kind(), Ordering::Relaxed);
                self.serve(&agent);
                TIMED_BY.store(0, Ordering::Relaxed);
            }
            thread::sleep(RETRY);
        }
    }

    fn wait_for_handles(&self) {
        let mut open = self.lock();
        loop {
            open.waiting.clear();
            open.segments.retain(|s| s.strong_count() > 0);
            if !open.segments.is_empty() {
                return;
            }
            let woken = self.opened.wait(open);
            open = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Until the agent hangs up.
    fn serve(&self, agent: &OwnedFd) {
        let all: Vec<_> = self.lock().segments.iter().map(Weak::clone).collect();
        let mut queue: Vec<Arc<Segment>> = all.iter().rev().filter_map(Weak::upgrade).collect();
        loop {
            while let Some(segment) = queue.last() {
                match hand_over(agent, segment) {
                    Ok(()) => {
                        segment.fresh.store(false, Ordering::Relaxed);
                        queue.pop();
                    }
                    Err(Errno::EAGAIN | Errno::EINTR | Errno::ETOOMANYREFS) => break,
                    Err(_) => return,
                }
            }
            let timeout = if queue.is_empty() {
                PollTimeout::NONE
            } else {
                FULL_RETRY_MS.into()
            };
            let mut events = [
                PollFd::new(agent.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut events, timeout) {
                // the agent says nothing: that it can be read means that it hung up
                Ok(_) if events[0].any() == Some(true) => return,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
            // empty when the timeout woke us
            let _ = self.wake.read();
            let mut open = self.lock();
            let new = std::mem::take(&mut open.waiting);
            if !new.is_empty() {
                open.segments.retain(|s| s.strong_count() > 0);
            }
            drop(open);
            let known = |s: &Arc<Segment>| queue.iter().any(|q| Arc::ptr_eq(q, s));
            let new: Vec<_> = new.into_iter().filter(|s| !known(s)).collect();
            queue.splice(0..0, new.into_iter().rev());
        }
    }
}

fn reach(path: &PathBuf) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let agent = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect(agent.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(agent)
}

fn hand_over(agent: &OwnedFd, segment: &Segment) -> nix::Result<()> {
    let message = Registration {
        identity: segment.identity,
        fresh: segment.fresh.load(Ordering::Relaxed),
    }
    .encode();
    let memory = [segment.as_fd().as_raw_fd()];
    sendmsg::<()>(
        agent.as_raw_fd(),
        &[IoSlice::new(&message)],
        &[ControlMessage::ScmRights(&memory)],
        MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        None,
    )
    .map(drop)
}
