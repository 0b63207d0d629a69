//! The Unix socket at which applications come to an agent, with descriptors in hand: hints and window
//! space. Any user may knock; who may come in, and with what, is the agent's to check.

use std::fs::{self, DirBuilder};
use std::io::IoSliceMut;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, socket,
};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use signal_hook::consts::SIGALRM;

/// Applications that wait to be accepted.
const BACKLOG: i32 = 256;
/// Descriptors that are to be closed, …
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// … beyond which nobody is accepted.
const MOST_WAITING: usize = 1_024;
/// Descriptors that one message can bring (the kernel's SCM_MAX_FD).
const MOST_DESCRIPTORS: usize = 253;

/// Listens until it is dropped; its file goes with it.
#[derive(Debug)]
pub struct Door {
    socket: ManuallyDrop<OwnedFd>,
    path: PathBuf,
    /// Device and inode of the socket's file: it may be another's by the time we end.
    file: (u64, u64),
}

impl Door {
    /// Listens at `path`, which the option `flag` gives; `what` comes in there, in the plural.
    pub fn open(path: &Path, flag: &str, what: &str) -> anyhow::Result<Self> {
        let shown = path.display();
        make_room(path, flag, what)?;
        let address = UnixAddr::new(path).with_context(|| format!("{flag} {shown}"))?;
        let socket = new().with_context(|| format!("a socket for {what}"))?;
        // the file lets everyone try; its mode is right from the first moment on
        let before = umask(Mode::from_bits_truncate(0o111));
        let bound = bind(socket.as_raw_fd(), &address);
        umask(before);
        bound.with_context(|| {
            format!("cannot listen for {what} at {shown}: run as root, or give a path with {flag}")
        })?;
        Backlog::new(BACKLOG)
            .and_then(|backlog| listen(&socket, backlog))
            .with_context(|| format!("listening for {what} at {shown}"))?;
        let file = fs::symlink_metadata(path).with_context(|| format!("reading {shown}"))?;
        Ok(Self {
            socket: ManuallyDrop::new(socket),
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
        })
    }

    /// The next one that waits.
    ///
    /// # Errors
    /// EAGAIN: nobody does. EBUSY: too much of those before waits to be closed.
    pub fn accept(&self) -> nix::Result<OwnedFd> {
        if is_behind() {
            return Err(Errno::EBUSY);
        }
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        loop {
            match accept4(self.socket.as_raw_fd(), flags) {
                // it left, or we were interrupted
                Err(Errno::ECONNABORTED | Errno::EINTR) => {}
                // SAFETY: the kernel just gave it to us.
                other => return other.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let ours = |m: fs::Metadata| (m.dev(), m.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // a file that stays is no harm: the next agent removes it
            let _ = fs::remove_file(&self.path);
        }
        // with it goes what those have sent who were not accepted
        // SAFETY: nobody uses it after this.
        let_go(vec![unsafe { ManuallyDrop::take(&mut self.socket) }]);
    }
}

fn new() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// Makes the directory, and removes the socket of an agent that is no more.
fn make_room(path: &Path, flag: &str, what: &str) -> anyhow::Result<()> {
    let shown = path.display();
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o755).create(parent);
        made.with_context(|| {
            format!("{flag} {shown}: making its directory: run as root, or give another path")
        })?;
    }
    let Ok(file) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !file.file_type().is_socket() {
        bail!("{flag} {shown}: there is something else; give another path");
    }
    match connect(new()?.as_raw_fd(), &UnixAddr::new(path)?) {
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => {}
        Err(error @ (Errno::EACCES | Errno::EPERM | Errno::EPROTOTYPE)) => {
            bail!("{flag} {shown}: the socket is another's ({error}); give another path")
        }
        _ => bail!(
            "another agent takes {what} at {shown}: stop it, or give another path with {flag}"
        ),
    }
    fs::remove_file(path).with_context(|| format!("removing the stale socket {shown}"))
}

/// The next message of an application: its bytes go to `bytes`; how many, and its descriptors. Does not
/// block.
///
/// # Errors
/// EAGAIN: there is none.
pub fn receive(from: BorrowedFd<'_>, bytes: &mut [u8]) -> nix::Result<(usize, Vec<OwnedFd>)> {
    // room for all that a message can bring: what does not fit would stay open and unknown
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(from, &mut parts, &mut control, flags)
        .map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    let rights = control.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((message.bytes, rights.flatten().collect()))
}

/// Closes what others handed over, elsewhere: to close a socket can take as long as its owner likes (SO_LINGER), and
/// a file as long as its file system does. Lingering ends at a signal (sk_stream_wait_close), so the thread that
/// closes has one each millisecond.
pub fn let_go(descriptors: Vec<OwnedFd>) {
    static CLOSER: LazyLock<Option<Sender<Vec<OwnedFd>>>> = LazyLock::new(|| {
        let (close, closed) = channel();
        let thread = std::thread::Builder::new().name("closer".to_owned());
        let spawned = thread.spawn(move || close_all(&closed));
        spawned.is_ok().then_some(close)
    });
    match &*CLOSER {
        // its end is never reached: it receives as long as we live
        Some(close) => {
            WAITING.fetch_add(descriptors.len(), Ordering::Relaxed);
            drop(close.send(descriptors));
        }
        None => drop(descriptors),
    }
}

/// Whether nothing more should be taken in, as so much waits to be closed.
pub fn is_behind() -> bool {
    WAITING.load(Ordering::Relaxed) > MOST_WAITING
}

fn close_all(closed: &Receiver<Vec<OwnedFd>>) {
    if let Err(error) = signal_hook::flag::register(SIGALRM, Arc::default()) {
        tracing::debug!("a socket that lingers delays others: {error}");
    }
    let signal = SigevNotify::SigevThreadId {
        signal: Signal::SIGALRM,
        thread_id: gettid().as_raw(),
        si_value: 0,
    };
    let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(signal)).ok();
    let mut every = |time: Duration| {
        let time = TimeSpec::from_duration(time);
        let set = |timer: &mut Timer| {
            timer.set(
                Expiration::IntervalDelayed(time, time),
                TimerSetTimeFlags::empty(),
            )
        };
        // without it a socket that lingers delays others
        timer.as_mut().map(set)
    };
    for descriptors in closed {
        let count = descriptors.len();
        every(Duration::from_millis(1));
        drop(descriptors);
        every(Duration::ZERO);
        WAITING.fetch_sub(count, Ordering::Relaxed);
    }
}
