//! A wire that loses, reorders and delays frames: a thread that forwards between two links of a
//! namespace through packet sockets. It needs nothing of the kernel's traffic control, whose netem
//! not every kernel has.

mod line;

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::errno::Errno;
use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;

pub use line::{Counts, Line, WireSpec};

use crate::host::{Namespace, veth};
use crate::process::lock;

/// Room of a socket for frames that the thread has not read yet, bytes.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;
/// How often the thread looks whether it should end, at least.
const LOOK: Duration = Duration::from_millis(50);
/// Longer than any frame of a link with offloads off.
const FRAME: usize = 9216;
/// The links of what is in the middle.
const ENDS: [&str; 2] = ["bw-a", "bw-b"];

/// Gives `middle` a link to each of two others, each in a namespace, and no address.
fn join(middle: &Namespace, others: [(&Namespace, &str); 2]) -> Result<()> {
    for device in ["all", "default"] {
        middle.set_sysctl(&format!("net/ipv6/conf/{device}/disable_ipv6"), "1")?;
    }
    for (end, link) in ENDS.into_iter().zip(others) {
        veth(link, (middle, end))?;
        middle.ip(&format!("link set {end} mtu 1500 up"))?;
    }
    Ok(())
}

/// A running wire. Dropping it ends it.
#[derive(Debug)]
pub struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug)]
struct Shared {
    line: Mutex<Line>,
    dropped: Mutex<u64>,
    end: AtomicBool,
}

impl Wire {
    /// Joins two links, each in a namespace, through `middle`, and treats what
    /// goes from `a` to `b` as `spec` says; the other direction passes at once. It runs on `cpu`.
    /// The sender's offloads must be off: frames are passed on as they are.
    pub fn between(
        middle: &Namespace,
        cpu: usize,
        spec: &WireSpec,
        a: (&Namespace, &str),
        b: (&Namespace, &str),
    ) -> Result<Self> {
        join(middle, [a, b])?;
        let sockets = middle.inside(|| Ok([packet_socket(ENDS[0])?, packet_socket(ENDS[1])?]))?;
        let shared = Arc::new(Shared {
            line: Mutex::new(Line::new(spec)),
            dropped: Mutex::new(0),
            end: AtomicBool::new(false),
        });
        let thread = std::thread::Builder::new().name("wire".into()).spawn({
            let shared = shared.clone();
            move || forward(&shared, &sockets, cpu)
        });
        Ok(Self {
            shared,
            thread: Some(thread.context("starting the thread of a wire")?),
        })
    }

    /// Changes what happens to frames that come from now on.
    pub fn set(&self, spec: &WireSpec) {
        lock(&self.shared.line).set(spec);
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        let mut counts = lock(&self.shared.line).counts();
        counts.overflowed += *lock(&self.shared.dropped);
        counts
    }

    /// Fails when it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            None => Ok(()),
            Some(thread) => match thread.join() {
                Ok(outcome) => outcome.and_then(|()| bail!("a wire ended unexpectedly")),
                Err(_) => bail!("the thread of a wire panicked"),
            },
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            tracing::warn!("{error:#}");
        }
    }
}

/// A socket that reads and sends whole frames at `link` of this thread's network namespace.
fn packet_socket(link: &str) -> Result<OwnedFd> {
    let index = if_nametoindex(link).with_context(|| format!("looking for {link}"))?;
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Protocol 0: nothing arrives before it is bound to its link.
    // SAFETY: a plain system call; the descriptor is new and owned by nobody else.
    let socket = unsafe {
        match libc::socket(libc::AF_PACKET, kind, 0) {
            -1 => return Err(io::Error::last_os_error()).context("opening a packet socket"),
            descriptor => OwnedFd::from_raw_fd(descriptor),
        }
    };
    // What the wire itself sends must not come back.
    set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    set(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_RCVBUFFORCE,
        RECEIVE_BUFFER,
    )?;
    // SAFETY: zeros are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address lives through the call, and its size is its own.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) } == -1 {
        return Err(io::Error::last_os_error()).with_context(|| format!("listening at {link}"));
    }
    Ok(socket)
}

/// Linux 4.20, `linux/if_packet.h`.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

fn set(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, to: libc::c_int) -> Result<()> {
    let size = size_of_val(&to) as libc::socklen_t;
    // SAFETY: the value lives through the call, and its size is its own.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const to).cast(),
            size,
        )
    };
    if set == -1 {
        let error = io::Error::last_os_error();
        return Err(anyhow!(error).context(format!("setting option {option} of a packet socket")));
    }
    Ok(())
}

fn forward(shared: &Shared, sockets: &[OwnedFd; 2], cpu: usize) -> Result<()> {
    be_prompt(cpu)?;
    let [a, b] = sockets;
    let began = Instant::now();
    let now = || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut buffer = vec![0; FRAME];
    while !shared.end.load(Ordering::Relaxed) {
        let next = {
            let mut line = lock(&shared.line);
            while let Some(length) = receive(a, &mut buffer)? {
                line.arrive(now(), buffer[..length].to_vec());
                while let Some(frame) = line.leave(now()) {
                    pass_on(b, &frame)?;
                }
            }
            while let Some(frame) = line.leave(now()) {
                pass_on(b, &frame)?;
            }
            line.next()
        };
        while let Some(length) = receive(b, &mut buffer)? {
            pass_on(a, &buffer[..length])?;
        }
        *lock(&shared.dropped) += dropped(a)? + dropped(b)?;
        let wait = next.map_or(LOOK, |next| {
            Duration::from_nanos(next.saturating_sub(now()))
        });
        let mut ready = [a, b].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        match ppoll(
            &mut ready,
            Some(TimeSpec::from_duration(wait.min(LOOK))),
            None,
        ) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("waiting for frames"),
        }
    }
    Ok(())
}

/// Puts this thread on `cpu`, ahead of the workload there: what a wire adds should be what it was
/// asked to add.
fn be_prompt(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &cpus).context("pinning a wire")?;
    prctl::set_timerslack(1).context("asking for exact timers")?;
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives through the call; 0 is this thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } == -1 {
        tracing::debug!(
            "no real-time priority for a wire: {}",
            io::Error::last_os_error()
        );
    }
    Ok(())
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<Option<usize>> {
    match recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC) {
        Ok(length) if length > buffer.len() => {
            bail!("a frame of {length} bytes reached a wire: the sender's offloads are not off")
        }
        Ok(length) => Ok(Some(length)),
        // The link was taken away: the lab is at its end.
        Err(Errno::EAGAIN | Errno::ENETDOWN) => Ok(None),
        Err(error) => Err(error).context("reading a frame"),
    }
}

fn pass_on(socket: &OwnedFd, frame: &[u8]) -> Result<()> {
    match send(socket.as_raw_fd(), frame, MsgFlags::empty()) {
        Ok(_) => Ok(()),
        // A receiver without room, or gone: what a network does is to lose the frame.
        Err(error @ (Errno::ENOBUFS | Errno::EAGAIN | Errno::ENETDOWN | Errno::ENXIO)) => {
            tracing::debug!("a wire could not pass a frame on: {error}");
            Ok(())
        }
        Err(error) => {
            Err(error).with_context(|| format!("sending a frame of {} bytes", frame.len()))
        }
    }
}

/// Frames that the kernel dropped since the last question because the thread was too slow.
fn dropped(socket: &OwnedFd) -> Result<u64> {
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut size = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the statistics live through the call, and their size is their own.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut size,
        )
    };
    if asked == -1 {
        return Err(io::Error::last_os_error()).context("asking a packet socket for its drops");
    }
    Ok(u64::from(statistics.tp_drops))
}
