//! Who listens for TCP connections in a network namespace: sock_diag(7), which passes over the listeners alone, where
//! /proc/net/tcp passes over all connections.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
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
/// Where a `struct inet_diag_msg` has the port and the address, and where it ends.
const PORT: usize = HEADER + 4;
const ADDRESS: usize = HEADER + 8;
const ATTRIBUTES: usize = HEADER + 72;
/// INET_DIAG_SKMEMINFO, and where its numbers have SK_MEMINFO_DROPS.
const MEMINFO: u16 = 7;
const DROPS: usize = 8 * 4;

/// One that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub at: SocketAddr,
    /// Connections that it has dropped, free-running: its queue was full, mostly (tcp_listendrop()).
    pub drops: u32,
}

/// Those of the namespace that the calling thread is in.
pub(crate) fn all() -> io::Result<Vec<Listener>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkSockDiag,
    )?;
    let mut found = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        send(
            socket.as_raw_fd(),
            &request(family as u8),
            MsgFlags::empty(),
        )?;
        while take(&socket, &mut found)? {}
    }
    Ok(found)
}

fn request(family: u8) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    request[HEADER..HEADER + 3].copy_from_slice(&[family, IPPROTO_TCP, 1 << (MEMINFO - 1)]);
    request[HEADER + 4..HEADER + 8].copy_from_slice(&TCPF_LISTEN.to_ne_bytes());
    request
}

/// Takes in some of the answer; whether more is to come.
fn take(socket: &OwnedFd, found: &mut Vec<Listener>) -> io::Result<bool> {
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
        found.extend(listener(message));
        let next = message.len().next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    Ok(true)
}

fn listener(message: &[u8]) -> Option<Listener> {
    let port = u16::from_be_bytes(*message.get(PORT..)?.first_chunk()?);
    let address: [u8; 16] = *message.get(ADDRESS..)?.first_chunk()?;
    let ip = match message[HEADER] {
        family if family == AddressFamily::Inet as u8 => {
            IpAddr::from([address[0], address[1], address[2], address[3]])
        }
        _ => Ipv6Addr::from(address).to_canonical(),
    };
    let mut rest = message.get(ATTRIBUTES..).unwrap_or_default();
    let mut drops = 0;
    while let Some(&[l0, l1, t0, t1]) = rest.first_chunk() {
        let length = usize::from(u16::from_ne_bytes([l0, l1])).max(4);
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([t0, t1]) == MEMINFO
            && let Some(count) = value.get(DROPS..).and_then(|v| v.first_chunk())
        {
            drops = u32::from_ne_bytes(*count);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(Listener {
        at: SocketAddr::new(ip, port),
        drops,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_is_found_in_both_families_and_who_does_not_is_not() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = TcpListener::bind(address).expect("a listener");
            let at = socket.local_addr().expect("its address");
            let listener = Listener { at, drops: 0 };
            assert!(all().expect("told").contains(&listener), "{address}");
            drop(socket);
            assert!(!all().expect("told").contains(&listener), "{address}");
        }
    }
}
