//! Connections, and threads that share them: one epoll each.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::StreamsReport;

/// Bytes of what a client says first: the size of its requests; 0: it writes without an end.
pub const WORD: usize = 8;
/// Bytes of a call, as iperf's.
const CHUNK: usize = 128 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Read,
    Write,
}

/// One end of a connection.
pub struct Peer {
    socket: TcpStream,
    /// 0: without an end.
    size: u64,
    turn: Turn,
    /// Bytes of this turn.
    left: u64,
    is_client: bool,
}

impl Peer {
    pub fn client(socket: TcpStream, size: u64) -> Self {
        Self {
            socket,
            size,
            turn: Turn::Write,
            left: size,
            is_client: true,
        }
    }

    pub fn server(socket: TcpStream, size: u64) -> Self {
        Self {
            turn: Turn::Read,
            is_client: false,
            ..Self::client(socket, size)
        }
    }

    /// What epoll is to tell. A flow is served a call at a time, so that others have their turn.
    fn interest(&self) -> EpollFlags {
        match (self.size, self.turn) {
            (0, Turn::Read) => EpollFlags::EPOLLIN,
            (0, Turn::Write) => EpollFlags::EPOLLOUT,
            _ => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET,
        }
    }

    /// Goes on as far as it can. False: the connection has ended.
    fn go(&mut self, buffer: &mut [u8], counts: &Counts) -> bool {
        loop {
            let most = match self.size {
                0 => buffer.len(),
                _ => buffer.len().min(self.left as usize),
            };
            let done = match self.turn {
                Turn::Read => self.socket.read(&mut buffer[..most]),
                Turn::Write => self.socket.write(&buffer[..most]),
            };
            let bytes = match done {
                Ok(0) => return false,
                Ok(bytes) => bytes as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let moved = match self.turn {
                Turn::Read => &counts.read,
                Turn::Write => &counts.written,
            };
            moved.fetch_add(bytes, Relaxed);
            if self.size == 0 {
                return true;
            }
            self.left -= bytes;
            if self.left == 0 {
                self.left = self.size;
                if self.is_client && self.turn == Turn::Read {
                    counts.requests.fetch_add(1, Relaxed);
                }
                self.turn = match self.turn {
                    Turn::Read => Turn::Write,
                    Turn::Write => Turn::Read,
                };
            }
        }
    }
}

/// What threads did so far.
#[derive(Default)]
pub struct Counts {
    written: AtomicU64,
    read: AtomicU64,
    requests: AtomicU64,
    pub broken: AtomicU64,
}

impl Counts {
    fn all(&self) -> [&AtomicU64; 4] {
        [&self.written, &self.read, &self.requests, &self.broken]
    }

    pub fn sum(pools: &[Pool]) -> Self {
        let sum = Self::default();
        for pool in pools {
            for (all, one) in sum.all().into_iter().zip(pool.counts.all()) {
                all.fetch_add(one.load(Relaxed), Relaxed);
            }
        }
        sum
    }

    pub fn since(self, before: &Self) -> Self {
        for (now, then) in self.all().into_iter().zip(before.all()) {
            now.fetch_sub(then.load(Relaxed), Relaxed);
        }
        self
    }

    pub fn report(&self, seconds: f64) -> StreamsReport {
        let rate = |count: &AtomicU64| count.load(Relaxed) as f64 / seconds;
        StreamsReport {
            written_per_s: rate(&self.written),
            read_per_s: rate(&self.read),
            requests_per_s: rate(&self.requests),
            broken: self.broken.load(Relaxed),
        }
    }
}

/// A thread and its connections.
pub struct Pool {
    epoll: Arc<Epoll>,
    peers: Arc<Mutex<HashMap<u64, Peer>>>,
    counts: Arc<Counts>,
}

impl Pool {
    /// So many, which run until the process ends.
    pub fn start(count: usize) -> io::Result<Vec<Self>> {
        let start = |_| {
            let pool = Self {
                epoll: Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?),
                peers: Arc::default(),
                counts: Arc::default(),
            };
            let (epoll, peers) = (Arc::clone(&pool.epoll), Arc::clone(&pool.peers));
            let counts = Arc::clone(&pool.counts);
            thread::Builder::new().spawn(move || run(&epoll, &peers, &counts))?;
            Ok(pool)
        };
        (0..count).map(start).collect()
    }

    /// Has the thread serve this connection, too.
    pub fn add(&self, peer: Peer) -> io::Result<()> {
        peer.socket.set_nonblocking(true)?;
        let id = peer.socket.as_raw_fd() as u64;
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let event = EpollEvent::new(peer.interest(), id);
        self.epoll.add(&peer.socket, event)?;
        peers.insert(id, peer);
        Ok(())
    }
}

fn run(epoll: &Epoll, peers: &Mutex<HashMap<u64, Peer>>, counts: &Counts) {
    let mut buffer = vec![0; CHUNK];
    let mut events = [EpollEvent::empty(); 64];
    loop {
        // an interruption is as good as no event
        let ready = epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        let mut peers = peers.lock().unwrap_or_else(PoisonError::into_inner);
        for event in &events[..ready] {
            let Some(peer) = peers.get_mut(&event.data()) else {
                continue;
            };
            if !peer.go(&mut buffer, counts) {
                // closing it takes it out of epoll
                peers.remove(&event.data());
                counts.broken.fetch_add(1, Relaxed);
            }
        }
    }
}
