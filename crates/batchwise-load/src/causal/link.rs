//! One TCP connection of a closed loop: its socket, the requests in flight on it, and what the
//! socket would not take yet.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Why a request may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The response that came last: it named the object, or made room among the requests in
    /// flight.
    Response,
    /// Its time has come.
    Clock,
}

/// A complete response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its length with all headers.
    pub bytes: u64,
    /// What is wrong with it.
    pub fault: Option<String>,
}

/// What a client says on one connection, and what depends on what: the protocol.
pub(crate) trait Dialogue {
    /// Appends the next request to `out` if one may be sent at `now`, and says why.
    fn next(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Cause>;

    /// Takes in received bytes, up to the end of the response to the oldest request in flight.
    /// Returns how many it took, and the response if it is complete at `now`. What cannot be
    /// understood ends the connection.
    fn take(&mut self, bytes: &[u8], now: u64) -> Result<(usize, Option<Answer>), String>;

    /// When a request will be due without any response; `None` if that depends on responses.
    fn due(&self) -> Option<u64>;

    /// Whether the connection has served its time: nothing is in flight on it, and what comes
    /// next goes over another one.
    fn parts(&self) -> bool {
        false
    }

    /// Whether there is another connection after one that was lost.
    fn renews(&self) -> bool {
        false
    }

    /// The connection is gone, and there will be another one. If it was lost, and not given up,
    /// so is what was in flight, and nothing more is due until `lost`.
    fn start_over(&mut self, _lost: Option<u64>) {}
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub sent: u64,
    pub bytes: u32,
}

/// A connection's socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Open(TcpStream),
    /// It is being opened, until then at most.
    Opening(TcpStream, u64),
    /// There is none; the next request opens one.
    Closed,
}

impl Socket {
    /// The open one.
    fn stream(&mut self) -> io::Result<&mut TcpStream> {
        match self {
            Self::Open(stream) => Ok(stream),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }
}

pub(crate) struct Link<D> {
    pub socket: Socket,
    /// Whom the connection is to.
    pub peer: SocketAddr,
    /// The number of the connection.
    pub number: u32,
    pub dialogue: D,
    pub alive: bool,
    /// The time for which it was put on the list of timers.
    pub timer: Option<u64>,
    /// Oldest first; the last `gathered` were not written yet.
    pub flights: VecDeque<Flight>,
    pub gathered: usize,
    unsent: VecDeque<u8>,
}

impl<D: Dialogue> Link<D> {
    pub fn new(stream: TcpStream, peer: SocketAddr, number: u32, dialogue: D) -> Self {
        Self {
            socket: Socket::Open(stream),
            peer,
            number,
            dialogue,
            alive: true,
            timer: None,
            flights: VecDeque::with_capacity(64),
            gathered: 0,
            unsent: VecDeque::new(),
        }
    }

    /// Forgets what was in flight; returns how many requests had been written.
    pub fn forget(&mut self) -> u64 {
        let requests = self.flights.len() - self.gathered;
        self.flights.clear();
        self.gathered = 0;
        self.unsent.clear();
        requests as u64
    }

    /// The oldest request that a response can be for.
    pub fn oldest(&self) -> Option<Flight> {
        let written = self.flights.len() - self.gathered;
        self.flights.front().copied().filter(|_| written > 0)
    }

    /// Puts requests at the end of those in flight that are to be written together: at most
    /// `limit`, their bytes appended to `out`. Returns whether a response caused any.
    pub fn gather(&mut self, limit: usize, now: u64, out: &mut Vec<u8>) -> bool {
        let mut caused = false;
        for _ in 0..limit {
            let before = out.len();
            let Some(cause) = self.dialogue.next(now, out) else {
                break;
            };
            caused |= cause == Cause::Response;
            let bytes = (out.len() - before) as u32;
            self.flights.push_back(Flight { sent: 0, bytes });
            self.gathered += 1;
        }
        caused
    }

    /// Writes what was gathered, at `now`. Returns whether the socket took it whole.
    pub fn write(&mut self, bytes: &[u8], now: u64) -> io::Result<bool> {
        let first = self.flights.len() - self.gathered;
        let fresh = self.flights.range_mut(first..);
        fresh.for_each(|flight| flight.sent = now);
        self.gathered = 0;
        let taken = match self.unsent.is_empty() {
            true => taken(self.socket.stream()?.write(bytes))?,
            false => 0,
        };
        self.unsent.extend(&bytes[taken..]);
        Ok(taken == bytes.len())
    }

    /// Writes what the socket would not take before. Returns whether nothing is left.
    pub fn flush(&mut self) -> io::Result<bool> {
        while !self.unsent.is_empty() {
            let taken = taken(self.socket.stream()?.write(self.unsent.as_slices().0))?;
            if taken == 0 {
                return Ok(false);
            }
            self.unsent.drain(..taken);
        }
        Ok(true)
    }

    /// Reads once; 0 if there is nothing to read.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.socket.stream()?.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            read => taken(read),
        }
    }
}

/// How much was moved; a socket that is not ready moves nothing.
fn taken(moved: io::Result<usize>) -> io::Result<usize> {
    match moved {
        Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        moved => moved,
    }
}
