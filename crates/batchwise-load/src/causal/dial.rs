//! Opening a TCP connection without waiting for it.

use std::io;
use std::net::{SocketAddr, TcpStream};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, setsockopt, socket,
    sockopt,
};

/// Begins to connect; the socket is writable once it is known how that ended, which
/// [`TcpStream::take_error`] tells then.
pub(crate) fn dial(addr: SocketAddr) -> io::Result<TcpStream> {
    use std::os::fd::AsRawFd;

    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(addr)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket.into()),
        Err(why) => Err(why.into()),
    }
}
