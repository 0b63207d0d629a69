//! The handle that applications hold.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};

use crate::layout::{Event, Identity};
use crate::link;
use crate::segment::Segment;

/// Counts the outstanding requests of one connection, or of one service over all its connections.
/// Clones count in the same place; the last one that is dropped ends the hint.
///
/// Do not count one request both for its connection and for its service.
#[derive(Clone, Debug)]
pub struct Hints {
    segment: Option<Arc<Segment>>,
}

impl Hints {
    /// Counts the requests on a connected TCP socket. The agent knows the connection by the
    /// kernel's cookie, so the socket may be closed or handed on freely.
    ///
    /// For a socket that is not connected over IP this is a handle that does nothing.
    pub fn for_connection(socket: &impl AsFd) -> Self {
        Self::open(connection(socket.as_fd()).ok())
    }

    /// Counts the requests to a service: the server's address as this client sees it.
    pub fn for_service(address: SocketAddr) -> Self {
        Self::open(Some(Identity {
            cookie: None,
            local: None,
            service: address,
        }))
    }

    fn open(identity: Option<Identity>) -> Self {
        Self {
            segment: identity.and_then(link::open),
        }
    }

    /// Whether it counts: false for a handle that could not be opened (not a TCP connection, no
    /// descriptors left, a forked process).
    pub fn is_open(&self) -> bool {
        self.segment.is_some()
    }

    /// `n` requests were issued.
    #[inline]
    pub fn create(&self, n: u32) {
        if let Some(segment) = &self.segment {
            segment.count(Event::Created, n);
        }
    }

    /// The responses of `n` requests are there, or are no longer waited for.
    #[inline]
    pub fn complete(&self, n: u32) {
        if let Some(segment) = &self.segment {
            segment.count(Event::Completed, n);
        }
    }

    /// One request, until what is returned is dropped.
    pub fn request(&self) -> Request {
        self.create(1);
        Request {
            hints: self.clone(),
        }
    }
}

/// An outstanding request; dropping it completes it.
#[derive(Debug)]
#[must_use = "dropping it completes the request"]
pub struct Request {
    hints: Hints,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.hints.complete(1);
    }
}

fn connection(socket: BorrowedFd) -> io::Result<Identity> {
    let fd = socket.as_raw_fd();
    let address = |a: SockaddrStorage| ip_address(&a).ok_or(io::ErrorKind::Unsupported);
    Ok(Identity {
        cookie: Some(cookie(socket)?),
        local: Some(address(getsockname(fd)?)?),
        service: address(getpeername(fd)?)?,
    })
}

fn ip_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|a| SocketAddr::V4((*a).into()));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|a| SocketAddr::V6((*a).into()))
    })
}

fn cookie(socket: BorrowedFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the option is a u64, and the pointers are to one and to its length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(cookie)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The IP address in a C `sockaddr`.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
pub(crate) unsafe fn from_c(
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> Option<SocketAddr> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let length = (length as usize).min(size_of::<libc::sockaddr_storage>());
    if address.is_null() || length < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: `length` bytes are readable by the caller's promise, and fit.
    unsafe {
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut storage).cast(), length);
    }
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: an AF_INET address is a sockaddr_in, which sockaddr_storage can hold.
            let v4 = unsafe { *(&raw const storage).cast::<libc::sockaddr_in>() };
            let ip = v4.sin_addr.s_addr.to_ne_bytes();
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: an AF_INET6 address is a sockaddr_in6, which sockaddr_storage can hold.
            let v6 = unsafe { *(&raw const storage).cast::<libc::sockaddr_in6>() };
            Some((v6.sin6_addr.s6_addr, u16::from_be(v6.sin6_port)).into())
        }
        _ => None,
    }
}
