//! An application that asks `window`: its message and its descriptors. The bits of the first byte say which.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use batchwise::fuzzing::{window, window_check};
use batchwise_window::MOST_SLOTS;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use crate::send::send;

/// A connection, and what is none.
static KINDS: LazyLock<Vec<OwnedFd>> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let peer = || TcpStream::connect(at).expect("it listens");
    let (unix, _) = UnixStream::pair().expect("a pair");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let pipe = std::io::pipe().expect("a pipe").0;
    let connection = peer();
    vec![
        connection.into(),
        listener.into(),
        unix.into(),
        udp.into(),
        pipe.into(),
    ]
});

pub fn run(data: &[u8]) {
    let (how, message) = data.split_first().unwrap_or((&0, &[]));
    let kinds = KINDS.iter().enumerate().filter(|(i, _)| how >> i & 1 != 0);
    let fds: Vec<_> = kinds.map(|(_, fd)| fd.as_raw_fd()).collect();
    let flags = SockFlag::SOCK_CLOEXEC;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags);
    let (ours, theirs) = pair.expect("a pair");
    send(&ours, message, &fds);
    let Some((ask, given)) = window(theirs.as_fd()).expect("a message") else {
        return;
    };
    assert_eq!(given.len(), fds.len());
    for (i, socket) in given.iter().enumerate() {
        let connection = i == 0 && how & 1 != 0;
        let slot = (1..MOST_SLOTS).contains(&ask.slot) && ask.turn != 0;
        let taken = window_check(socket.as_fd(), &ask).is_ok();
        assert_eq!(taken, connection && slot);
    }
}
