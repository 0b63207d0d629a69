//! The TCP ports that are listened on in a network namespace: sock_diag(7), which passes over the listeners alone,
//! where /proc/net/tcp passes over all connections.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

// <linux/netlink.h>, <linux/sock_diag.h>, <linux/inet_diag.h>
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
const TCPF_LISTEN: u32 = 1 << 10;
/// Bytes of a `struct nlmsghdr`, and of it with a `struct inet_diag_req_v2`.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
/// Where a `struct inet_diag_msg` has the port.
const PORT: usize = HEADER + 4;

/// Those of the namespace that the calling thread is in.
pub(crate) fn ports() -> io::Result<BTreeSet<u16>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let mut ports = BTreeSet::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        send(
            socket.as_raw_fd(),
            &request(family as u8),
            MsgFlags::empty(),
        )?;
        while take(&socket, &mut ports)? {}
    }
    Ok(ports)
}

fn request(family: u8) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    request[HEADER..HEADER + 2].copy_from_slice(&[family, IPPROTO_TCP]);
    request[HEADER + 4..HEADER + 8].copy_from_slice(&TCPF_LISTEN.to_ne_bytes());
    request
}

/// Takes in some of the answer; whether more is to come.
fn take(socket: &OwnedFd, ports: &mut BTreeSet<u16>) -> io::Result<bool> {
    let mut buffer = vec![0; 32 << 10];
    let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    let mut rest = &buffer[..length];
    while let Some(header) = rest.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let message = rest.get(..length.max(HEADER));
        let message = message.ok_or(io::ErrorKind::InvalidData)?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => return Err(io::ErrorKind::Unsupported.into()),
            _ => {}
        }
        if let Some(&[high, low]) = message.get(PORT..PORT + 2) {
            ports.insert(u16::from_be_bytes([high, low]));
        }
        let next = message.len().next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ports_that_are_listened_on_are_found_in_both_families_and_others_are_not() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).expect("a listener");
            let port = listener.local_addr().expect("its address").port();
            assert!(ports().expect("told").contains(&port), "{address}");
            drop(listener);
            assert!(!ports().expect("told").contains(&port), "{address}");
        }
    }
}
