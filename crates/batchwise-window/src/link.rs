//! The link to the agent: what it registers, and the memory that it has the kernel share with us.

use std::env;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect,
    recvmsg, sendmsg, shutdown, socket_with,
};

use crate::protocol::{Answer, Ask, MAGIC, MOST_SLOTS, VERSION};
use crate::slots::Slots;

/// Where the agent listens, unless [`SOCKET_VARIABLE`] says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/batchwise/window/window.sock";
/// The environment variable with the path of the agent's socket.
pub const SOCKET_VARIABLE: &str = "BATCHWISE_WINDOW_SOCKET";

/// An agent that does not answer in this time is none.
const PATIENCE: Duration = Duration::from_millis(100);

/// Why a socket is not registered.
pub enum Refusal {
    /// It is none that could be.
    Wrong(io::Error),
    /// It has no peer: it is connecting, or was reset.
    Unconnected,
    /// The agent cannot, for this reason.
    Cannot(String),
}

/// What the agent's answer to a question about a socket means.
fn refusal(errno: i32) -> Refusal {
    let error = io::Error::from_raw_os_error(errno);
    match Errno::from_raw_os_error(errno) {
        Errno::NOTCONN => Refusal::Unconnected,
        Errno::NOTSOCK | Errno::PROTONOSUPPORT | Errno::BADF => Refusal::Wrong(error),
        Errno::NOPROTOOPT => {
            Refusal::Cannot("the socket was not made in the agent's --cgroup".to_owned())
        }
        _ => Refusal::Cannot(format!("the agent cannot register the socket: {error}")),
    }
}

/// A connection to the agent, and what it gave.
pub struct Link {
    socket: OwnedFd,
    pub slots: Slots,
    /// One question at a time.
    asking: Mutex<()>,
}

impl Link {
    /// Finds the agent.
    pub fn reach() -> io::Result<Self> {
        let path = env::var_os(SOCKET_VARIABLE).unwrap_or_else(|| DEFAULT_SOCKET.into());
        let address = SocketAddrUnix::new(PathBuf::from(path))?;
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(PATIENCE))?;
        }
        connect(&socket, &address)?;
        let (_, fds) = ask(&socket, [MOST_SLOTS, 0], None)?;
        let Ok([slots]) = <[OwnedFd; 1]>::try_from(fds) else {
            return Err(io::Error::other("the agent gave no memory"));
        };
        Ok(Self {
            slots: Slots::map(slots.as_fd(), MOST_SLOTS)?,
            asking: Mutex::default(),
            socket,
        })
    }

    /// The agent has hung up, or we have.
    pub fn is_dead(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        Ok(retry_on_intr(|| poll(&mut fds, Some(&Timespec::default())))? > 0)
    }

    /// Has the agent register a socket for this turn of a slot.
    pub fn register(&self, socket: BorrowedFd<'_>, slot: u32, turn: u32) -> Result<(), Refusal> {
        let _one = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        match ask(&self.socket, [slot, turn], Some(socket)) {
            Ok((Answer { error: 0, .. }, _)) => Ok(()),
            Ok((answer, _)) => Err(refusal(answer.error as i32)),
            Err(_) => {
                // the agent is gone, or stands still: the set will hear that it has hung up
                let _ = shutdown(&self.socket, Shutdown::Both);
                Err(Refusal::Cannot("the agent does not answer".to_owned()))
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn ask(
    agent: &OwnedFd,
    [slot, turn]: [u32; 2],
    socket: Option<BorrowedFd<'_>>,
) -> io::Result<(Answer, Vec<OwnedFd>)> {
    let ask = [MAGIC, VERSION, slot, turn].map(u32::to_ne_bytes).concat();
    debug_assert_eq!(ask.len(), size_of::<Ask>());
    let fds: Vec<_> = socket.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let slices = [IoSlice::new(&ask)];
    // with a timeout a signal interrupts, whatever its handler asked for
    let sent = retry_on_intr(|| sendmsg(agent, &slices, &mut control, SendFlags::NOSIGNAL));
    match sent {
        // it hung up before it was asked, …
        Err(Errno::PIPE) => return Err(refused()),
        other => other?,
    };
    let mut answer = [0; size_of::<Answer>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut answer)];
    let receive = || recvmsg(agent, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC);
    let got = match retry_on_intr(receive) {
        // … or before it read the question
        Err(Errno::CONNRESET) => return Err(refused()),
        other => other?,
    };
    let given = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<OwnedFd> = given.flatten().collect();
    if got.bytes == 0 {
        return Err(refused());
    }
    let word = |at: usize| {
        let bytes = answer.get(4 * at..4 * at + 4).unwrap_or_default();
        bytes.try_into().map_or(0, u32::from_ne_bytes)
    };
    let answer = Answer {
        magic: word(0),
        version: word(1),
        error: word(2),
    };
    if (got.bytes, answer.magic, answer.version) != (size_of::<Answer>(), MAGIC, VERSION) {
        let why = format!("the agent speaks version {}, not {VERSION}", answer.version);
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok((answer, fds))
}

fn refused() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the agent refused: its quota for this user may be used up",
    )
}
