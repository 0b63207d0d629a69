//! How much a server hands over, and when.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::time::Duration;

use batchwise_window::{Info, Key, Set, not_sent_low_water};

/// At most so much in one call.
pub const CHUNK: usize = 65_536;

/// What a server goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The socket's buffer has room: what most servers do.
    Default,
    /// The same with TCP_NOTSENT_LOWAT at so many bytes.
    Lowat(u32),
    /// Tor's KIST: every so often all sockets are asked (TCP_INFO); each gets what its congestion window has
    /// room for, and so many windows more (1 as published), less what waits.
    Kist(Duration, u32),
    /// h2o's: TCP_NOTSENT_LOWAT at 1, and then two segments more than the congestion window has room for.
    H2o,
    /// `batchwise-window`; woken when TCP can send so many bytes.
    Window(u32),
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "default, lowat:BYTES, kist:TIME, kist:TIME:WINDOWS, h2o, window or window:BYTES"
                .to_owned()
        };
        match (text, text.split_once(':')) {
            ("default", _) => Ok(Self::Default),
            ("h2o", _) => Ok(Self::H2o),
            ("window", _) => Ok(Self::Window(1)),
            (_, Some(("lowat", bytes))) => bytes.parse().map(Self::Lowat).map_err(|_| wrong()),
            (_, Some(("window", bytes))) => bytes.parse().map(Self::Window).map_err(|_| wrong()),
            (_, Some(("kist", how))) => {
                let (time, windows) = how.split_once(':').unwrap_or((how, "1"));
                let time = humantime::parse_duration(time).map_err(|_| wrong())?;
                Ok(Self::Kist(time, windows.parse().map_err(|_| wrong())?))
            }
            _ => Err(wrong()),
        }
    }
}

/// What a server has for its policy.
pub struct Writer {
    policy: Policy,
    pub set: Option<Set>,
    /// TCP_INFO, so far, where that is not the set's.
    asked: u64,
}

impl Writer {
    pub fn new(policy: Policy) -> io::Result<Self> {
        Ok(Self {
            policy,
            set: matches!(policy, Policy::Window(_))
                .then(Set::new)
                .transpose()?,
            asked: 0,
        })
    }

    /// Takes in a connection; a key where the policy has one.
    pub fn begin(&self, socket: &TcpStream) -> io::Result<Option<Key>> {
        let low_water = match self.policy {
            Policy::Lowat(bytes) => Some(bytes),
            Policy::H2o => Some(1),
            _ => None,
        };
        if let Some(bytes) = low_water {
            not_sent_low_water(socket.as_fd(), bytes)?;
        }
        match (self.policy, &self.set) {
            (Policy::Window(at_least), Some(set)) => set.add(socket.as_fd(), at_least).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether epoll is to say when the socket is writable.
    pub fn wants_writable(&self) -> bool {
        matches!(
            self.policy,
            Policy::Default | Policy::Lowat(_) | Policy::H2o
        )
    }

    /// Times that the kernel was asked, so far.
    pub fn asked(&self) -> u64 {
        self.asked + self.set.as_ref().map_or(0, |set| set.stats().asked)
    }

    /// How often all sockets are looked at.
    pub fn tick(&self) -> Option<Duration> {
        match self.policy {
            Policy::Kist(every, _) => Some(every),
            _ => None,
        }
    }

    /// How much may be written now.
    pub fn budget(&mut self, socket: &TcpStream, key: Option<Key>) -> io::Result<usize> {
        match (self.policy, &self.set, key) {
            (Policy::Default | Policy::Lowat(_), ..) => Ok(CHUNK),
            (Policy::Window(_), Some(set), Some(key)) => {
                Ok(set.wait(key, socket.as_fd())?.unwrap_or(0) as usize)
            }
            (Policy::Kist(_, slack), ..) => {
                self.asked += 1;
                let info = Info::of(socket.as_fd())?;
                let window = i64::from(info.window());
                let free = (window - i64::from(info.unacked())).max(0);
                let limit = (free + i64::from(slack) * window) * i64::from(info.segment());
                Ok((limit - i64::from(info.unsent())).max(0) as usize)
            }
            _ => {
                self.asked += 1;
                let info = Info::of(socket.as_fd())?;
                let free = i64::from(info.window()) - i64::from(info.unacked()) + 2;
                Ok((free.max(0) * i64::from(info.segment())) as usize)
            }
        }
    }
}
