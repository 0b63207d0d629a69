//! Options of sockets: what the kernel says of a connection's sending side, TCP_INFO (`tcp_get_info()`,
//! net/ipv4/tcp.c) and SO_MEMINFO, and what it is told, TCP_NOTSENT_LOWAT.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use batchwise_core::window::{Sender, device_room};

/// TCP_ESTABLISHED and TCP_CLOSE_WAIT of `include/net/tcp_states.h`: data can be sent.
const SENDING: [u8; 2] = [1, 8];

/// TCP_CLOSE and TCP_LISTEN: nothing was connected, or nothing is any more.
const UNCONNECTED: [u8; 2] = [7, 10];

/// SK_MEMINFO_* of `include/uapi/linux/sock_diag.h`: what the device has of the socket, …
const WMEM_ALLOC: usize = 2;
/// … the size of its send buffer, …
const SNDBUF: usize = 3;
/// … what that holds, …
const WMEM_QUEUED: usize = 5;
/// … and how many there are.
const MEMORY: usize = 9;

/// Bytes that TCP would send at once on the socket if it were handed them. On one that is closed or was
/// reset there is any space: a write tells what is the matter.
///
/// # Errors
/// When the socket is not TCP's, or the kernel is older than 5.4.
pub fn space(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(Info::of(socket)?.space(0))
}

/// A connection as of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    sender: Sender,
    sending: bool,
    connected: bool,
    round_trip: u64,
    retransmitted: u32,
}

impl Info {
    /// Asks the kernel: two system calls.
    ///
    /// # Errors
    /// As [`space`].
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let place = (info.as_mut_ptr().cast(), size_of::<libc::tcp_info>());
        // SAFETY: the place is `info`.
        let length = unsafe { option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, place)? };
        // SAFETY: it was zeroed, and the kernel wrote integers.
        let i = unsafe { info.assume_init() };
        let needed = std::mem::offset_of!(libc::tcp_info, tcpi_snd_wnd) + size_of::<u32>();
        if length < needed {
            let why = "the kernel does not tell the peer's window: Linux 5.4 does";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut memory = [0_u32; MEMORY];
        let place = (memory.as_mut_ptr().cast(), size_of_val(&memory));
        // SAFETY: the place is `memory`.
        unsafe { option(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, place)? };
        let left = i.tcpi_bytes_sent.wrapping_sub(i.tcpi_bytes_retrans);
        Ok(Self {
            sender: Sender {
                cwnd: i.tcpi_snd_cwnd,
                mss: i.tcpi_snd_mss,
                unacked: i.tcpi_unacked,
                sacked: i.tcpi_sacked,
                lost: i.tcpi_lost,
                retrans: i.tcpi_retrans,
                // a SYN is acknowledged as a byte that was not sent
                flight: left.saturating_sub(i.tcpi_bytes_acked) as u32,
                peer: i.tcpi_snd_wnd,
                unsent: i.tcpi_notsent_bytes,
                buffer: memory[SNDBUF].saturating_sub(memory[WMEM_QUEUED]),
                device: device_room(i.tcpi_pacing_rate, i.tcpi_snd_mss, memory[WMEM_ALLOC]),
            },
            sending: SENDING.contains(&i.tcpi_state),
            connected: !UNCONNECTED.contains(&i.tcpi_state),
            round_trip: u64::from(i.tcpi_rtt) * 1_000,
            retransmitted: i.tcpi_total_retrans,
        })
    }

    /// As [`space`], if `slack` bytes may wait in the kernel.
    pub fn space(&self, slack: u32) -> u32 {
        match self.sending {
            true => self.sender.space(slack),
            false => u32::MAX,
        }
    }

    /// As [`Sender::allowed`].
    pub(crate) fn allowed(&self) -> u32 {
        match self.sending {
            true => self.sender.allowed(),
            false => u32::MAX,
        }
    }

    /// Data can be sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending
    }

    /// It has a peer.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Bytes that wait in the kernel.
    pub fn unsent(&self) -> u32 {
        self.sender.unsent
    }

    /// Congestion window, segments.
    pub fn window(&self) -> u32 {
        self.sender.cwnd
    }

    /// Segments sent and not acknowledged.
    pub fn unacked(&self) -> u32 {
        self.sender.unacked
    }

    /// Bytes of a full segment.
    pub fn segment(&self) -> u32 {
        self.sender.mss
    }

    /// Smoothed round trip, ns.
    pub fn round_trip(&self) -> u64 {
        self.round_trip
    }

    /// Segments that were sent again so far.
    pub fn retransmitted(&self) -> u32 {
        self.retransmitted
    }
}

/// TCP_NOTSENT_LOWAT: poll tells that a socket is writable when fewer bytes wait in the kernel.
///
/// # Errors
/// When the socket is not TCP's.
pub fn not_sent_low_water(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // SAFETY: the kernel reads so many bytes, which are there.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// TCP_NOTSENT_LOWAT as it is; 0: the namespace's.
pub(crate) fn low_water(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes = 0_u32;
    let place = ((&raw mut bytes).cast(), size_of::<u32>());
    // SAFETY: the place is `bytes`.
    unsafe { option(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, place)? };
    Ok(bytes)
}

/// Reads a socket option into a place of so many bytes; gives how many the kernel wrote.
///
/// # Safety
/// The place is the caller's, and takes any bytes.
unsafe fn option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    (place, bytes): (*mut libc::c_void, usize),
) -> io::Result<usize> {
    let mut length = bytes as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which the caller has.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, place, &raw mut length) };
    match done {
        0 => Ok(length as usize),
        _ => Err(io::Error::last_os_error()),
    }
}
