//! A connection as one reading of the kernel's counters shows it: plain structs, filled by whoever
//! reads them.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::report::Side;
use super::sample::Sample;

/// What one reading holds.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// When it was made, ns, CLOCK_MONOTONIC.
    pub at: u64,
    /// Connections that are open. One whose record was being written all the while is missing, and
    /// so is one that closed during the reading.
    pub open: Vec<Connection>,
    /// Connections that are open and have had no event since the last reading: only where the sensor
    /// was asked for it.
    pub quiet: Vec<Quiet>,
    /// A connection that is not mentioned here has not changed since it was read last.
    pub news_only: bool,
    /// Cookies and births of connections whose records were being written all the while.
    pub torn: Vec<(u64, u64)>,
    /// Last states of connections that closed since the last reading.
    pub closed: Vec<Connection>,
    /// Events lost since the start: closed connections whose last state found no room.
    pub lost_events: u64,
}

/// A connection that has had no event since it was last read.
#[derive(Clone, Copy, Debug)]
pub struct Quiet {
    /// As in [`Connection`].
    pub cookie: u64,
    /// As in [`Connection`].
    pub born: u64,
    /// What the kernel knows without counting.
    pub vitals: Vitals,
    /// As in [`Connection`].
    pub nagle_off: bool,
    /// As in [`Connection`].
    pub app_nagle_off: bool,
}

/// A connection as it was when it was read.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The kernel's socket cookie: unique until reboot.
    pub cookie: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Inode of its network namespace.
    pub netns: u32,
    /// Which end this is.
    pub side: Side,
    /// When counting began, ns, CLOCK_MONOTONIC.
    pub born: u64,
    /// TCP_NODELAY is set.
    pub nagle_off: bool,
    /// The application asked for TCP_NODELAY.
    pub app_nagle_off: bool,
    /// When its counting last began or began again, as the sensor counts such beginnings.
    pub epoch: u32,
    /// [`Vitals::segments`] at its first event of the epoch.
    pub segments_before: u64,
    /// What the kernel knows without counting.
    pub vitals: Vitals,
    /// The peer speaks the exchange.
    pub exchanges: bool,
    /// Options of the exchange: sent, heard, refused.
    pub options: [u32; 3],
    /// Its counters.
    pub sample: Sample,
}

impl Connection {
    /// It has had no event in this epoch, which began at `began`: what was queued still is.
    pub fn hold(&mut self, epoch: u32, began: u64) {
        (self.epoch, self.segments_before) = (epoch, self.vitals.segments);
        for queue in self.sample.local.iter_mut().flatten() {
            queue.time = began;
        }
    }

    /// Which service it is of.
    pub fn service(&self) -> ServiceKey {
        ServiceKey {
            server: match self.side {
                Side::Server => self.local,
                Side::Client => self.remote,
            },
            netns: self.netns,
            side: self.side,
        }
    }
}

/// A service as it is reported and tuned: a server's address, in the network namespace of the sockets here, seen from
/// one side.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct ServiceKey {
    /// The server's end.
    pub server: SocketAddr,
    /// Inode of the network namespace.
    pub netns: u32,
    /// Which end its sockets here are.
    pub side: Side,
}

impl ServiceKey {
    /// What is found in its namespace at the address of a server's listener: its own, or else all. A client has none.
    pub fn at_its_listener<T>(
        &self,
        find: impl FnMut((u32, SocketAddr)) -> Option<T>,
    ) -> Option<T> {
        let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let at = |ip| (self.netns, SocketAddr::new(ip, self.server.port()));
        let own = (self.side == Side::Server).then(|| self.server.ip());
        let addresses = own.into_iter().flat_map(|own| [own].into_iter().chain(all));
        addresses.map(at).find_map(find)
    }
}

/// What takes a connection's data past the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bypass {
    /// It is part of an MPTCP connection.
    Mptcp,
    /// SMC uses its own transport.
    Smc,
    /// A sockmap's programs hand data from socket to socket.
    Sockmap,
    /// The kernel encrypts, and sends by another function.
    Ktls,
}

impl Bypass {
    /// What such connections are.
    pub fn words(self) -> &'static str {
        match self {
            Self::Mptcp => "of MPTCP",
            Self::Smc => "of SMC",
            Self::Sockmap => "in a sockmap",
            Self::Ktls => "of the kernel's TLS",
        }
    }
}

/// What the kernel itself keeps of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Bytes that the peer has acknowledged, and bytes received.
    pub bytes: u64,
    /// Of them, bytes that the peer has acknowledged.
    pub bytes_sent: u64,
    /// Segments with data, sent and received.
    pub segments: u64,
    /// Of them, sent.
    pub segments_sent: u64,
    /// Bytes handed over and not acknowledged.
    pub outstanding: u32,
    /// Bytes received and not yet read.
    pub unread: u32,
    /// Smoothed round trip, ns.
    pub rtt: u64,
    /// Bytes of a full segment.
    pub mss: u32,
    /// TCP_CORK is set: the application holds back itself.
    pub corked: bool,
    /// Nagle's algorithm holds something back now.
    pub held: bool,
    /// What was received is not acknowledged now.
    pub ack_due: bool,
    /// The agent has cut short how long acknowledgments wait.
    pub ack_soon: bool,
    /// Segments without data that were sent, free-running.
    pub acks: u16,
    /// Requests that are under way, as far as counting tells.
    pub under_way: u32,
    /// When the oldest of them began, ns, CLOCK_MONOTONIC; 0 when there is none.
    pub oldest: u64,
    /// Segments that were sent again, free-running.
    pub resent: u32,
    /// For how long the peer's window had no room for what waits, µs, free-running.
    pub window_full_us: u32,
    /// Nothing that is counted of it says anything.
    pub bypass: Option<Bypass>,
}
