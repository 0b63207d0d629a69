//! The server: one thread, one epoll.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_window::{Info, Key};
use clap::Parser;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::socket::{Backlog, listen};
use serde::Serialize;

use super::policy::{CHUNK, Policy, Writer};
use super::{RECORD, WORD, allow_descriptors, now};
use crate::units::{parse_addr, parse_duration};

/// A server of downloads.
#[derive(Clone, Debug, Parser)]
pub struct ServeConfig {
    /// Where to listen, such as 127.0.0.1:7070
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// What it writes by: default, lowat:BYTES, kist:TIME, kist:TIME:WINDOWS, h2o, window or window:BYTES
    #[arg(long, default_value = "default")]
    pub policy: Policy,
    /// Sample what waits in the kernel every 10 ms: two system calls for each connection with a download
    #[arg(long)]
    pub unsent: bool,
    /// For how long
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
}

/// What the server did.
#[derive(Clone, Debug, Serialize)]
pub struct ServeReport {
    /// What was written by: `agent`, or why the set has fallen back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// Bytes handed over.
    pub bytes: u64,
    /// Calls to write.
    pub writes: u64,
    /// Times that the policy asked the kernel: TCP_INFO.
    pub asked: u64,
    /// 99 of 100 events of window space were heard in so many ns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_p99_ns: Option<u64>,
    /// Waits for events.
    pub waits: u64,
    /// CPU time of the process, ns.
    pub cpu_ns: u64,
    /// Bytes that waited in the kernel, a connection with a download in the mean, as sampled every 10 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsent_bytes: Option<f64>,
}

struct Peer {
    socket: TcpStream,
    key: Option<Key>,
    /// Bytes that the download goes on for, …
    left: u64,
    /// … and those that were written.
    done: u64,
    /// Of the record that was begun last.
    stamp: u64,
    /// epoll says when it is writable.
    listens: bool,
}

const LISTENER: u64 = u64::MAX;
const SPACE: u64 = u64::MAX - 1;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
const SAMPLED: Duration = Duration::from_millis(10);

struct Server {
    epoll: Epoll,
    listener: TcpListener,
    writer: Writer,
    peers: HashMap<u64, Peer>,
    by_key: HashMap<Key, u64>,
    next: u64,
    /// What is written.
    data: Vec<u8>,
    report: ServeReport,
    /// Sum and number of samples.
    unsent: (u64, u64),
}

/// Serves until the time is over.
pub fn serve(config: &ServeConfig) -> Result<ServeReport> {
    allow_descriptors()?;
    let listener =
        TcpListener::bind(config.addr).with_context(|| format!("listening at {}", config.addr))?;
    listener.set_nonblocking(true)?;
    // std asks for room for 128
    listen(&listener, Backlog::new(BACKLOG)?)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let writer = Writer::new(config.policy).context("a set for window space")?;
    if let Some(set) = &writer.set {
        epoll.add(set, EpollEvent::new(EpollFlags::EPOLLIN, SPACE))?;
    }
    let report = ServeReport {
        window: writer.set.as_ref().map(|set| format!("{:?}", set.mode())),
        bytes: 0,
        writes: 0,
        asked: 0,
        lag_p99_ns: None,
        waits: 0,
        cpu_ns: 0,
        unsent_bytes: None,
    };
    let mut server = Server {
        epoll,
        listener,
        writer,
        peers: HashMap::new(),
        by_key: HashMap::new(),
        next: 0,
        data: vec![0; CHUNK],
        report,
        unsent: (0, 0),
    };
    server.run(config.duration, config.unsent)?;
    let used = getrusage(UsageWho::RUSAGE_SELF)?;
    let time =
        |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1_000;
    let (sum, samples) = server.unsent;
    let set = server.writer.set.as_ref();
    Ok(ServeReport {
        cpu_ns: time(used.user_time()) + time(used.system_time()),
        asked: server.writer.asked(),
        lag_p99_ns: set.and_then(|set| set.stats().lag(0.99)),
        unsent_bytes: (samples > 0).then(|| sum as f64 / samples as f64),
        ..server.report
    })
}

impl Server {
    fn run(&mut self, duration: Duration, samples: bool) -> Result<()> {
        let end = Instant::now() + duration;
        let (mut sample, mut tick) = (Instant::now(), Instant::now());
        let mut events = [EpollEvent::empty(); 256];
        let mut keys = Vec::new();
        while Instant::now() < end {
            let every = self.writer.tick();
            let mut next = every.map_or(end, |_| tick.min(end));
            if samples {
                next = next.min(sample);
            }
            let left = next.saturating_duration_since(Instant::now());
            let timeout = EpollTimeout::try_from(left + Duration::from_micros(999))?;
            self.report.waits += 1;
            let count = match self.epoll.wait(&mut events, timeout) {
                Err(nix::errno::Errno::EINTR) => 0,
                other => other?,
            };
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept()?,
                    SPACE => {
                        if let Some(set) = &self.writer.set {
                            set.ready(&mut keys)?;
                        }
                        for key in keys.drain(..) {
                            if let Some(&id) = self.by_key.get(&key) {
                                self.write(id);
                            }
                        }
                    }
                    id => {
                        if event.events().intersects(
                            EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR,
                        ) {
                            self.read(id);
                        }
                        if event.events().contains(EpollFlags::EPOLLOUT) {
                            self.write(id);
                        }
                    }
                }
            }
            let now = Instant::now();
            if every.is_some() && now >= tick {
                tick = now + every.unwrap_or_default();
                let waits = |(id, peer): (&u64, &Peer)| (peer.left > 0).then_some(*id);
                let waiting: Vec<u64> = self.peers.iter().filter_map(waits).collect();
                waiting.into_iter().for_each(|id| self.write(id));
            }
            if samples && now >= sample {
                sample = now + SAMPLED;
                self.sample();
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        while let Ok((socket, _)) = self.listener.accept() {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            let key = self.writer.begin(&socket)?;
            let id = self.next;
            self.next += 1;
            self.epoll
                .add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, id))?;
            if let Some(key) = key {
                self.by_key.insert(key, id);
            }
            self.peers.insert(
                id,
                Peer {
                    socket,
                    key,
                    left: 0,
                    done: 0,
                    stamp: 0,
                    listens: false,
                },
            );
        }
        Ok(())
    }

    /// A request, or the end.
    fn read(&mut self, id: u64) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let mut request = [0; WORD];
        match peer.socket.read(&mut request) {
            Ok(WORD) => {
                (peer.left, peer.done) = (u64::from_ne_bytes(request), 0);
                self.write(id);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.forget(id),
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        if let (Some(set), Some(key)) = (&self.writer.set, peer.key) {
            set.remove(key);
            self.by_key.remove(&key);
        }
    }

    /// Writes what the policy allows.
    fn write(&mut self, id: u64) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let (data, mut blocked) = (&mut self.data, false);
        while peer.left > 0 {
            let budget = match self.writer.budget(&peer.socket, peer.key) {
                Ok(budget) => budget,
                Err(_) => return self.forget(id),
            };
            let count = budget.min(CHUNK).min(peer.left as usize);
            if count == 0 {
                break;
            }
            let stamp = now();
            fill(&mut data[..count], peer.done, peer.stamp, stamp);
            self.report.writes += 1;
            match peer.socket.write(&data[..count]) {
                Ok(written) => {
                    let before = peer.done;
                    peer.done += written as u64;
                    peer.left -= written as u64;
                    self.report.bytes += written as u64;
                    if let (Some(set), Some(key)) = (&self.writer.set, peer.key) {
                        set.wrote(key, written);
                    }
                    if peer.done.div_ceil(RECORD) > before.div_ceil(RECORD) {
                        peer.stamp = stamp;
                    }
                    // one write for an event: others have their turn
                    if self.writer.wants_writable() {
                        break;
                    }
                }
                // the buffer is full, whatever TCP can send
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    blocked = true;
                    break;
                }
                Err(_) => return self.forget(id),
            }
        }
        let listens = peer.left > 0 && (self.writer.wants_writable() || blocked);
        if listens != peer.listens {
            peer.listens = listens;
            let out = if listens {
                EpollFlags::EPOLLOUT
            } else {
                EpollFlags::empty()
            };
            let mut event = EpollEvent::new(EpollFlags::EPOLLIN | out, id);
            if self.epoll.modify(&peer.socket, &mut event).is_err() {
                self.forget(id);
            }
        }
    }

    fn sample(&mut self) {
        for peer in self.peers.values().filter(|peer| peer.left > 0) {
            if let Ok(info) = Info::of(peer.socket.as_fd()) {
                self.unsent.0 += u64::from(info.unsent());
                self.unsent.1 += 1;
            }
        }
    }
}

/// The bytes of a download from `done` on; records that begin here bear `stamp`, one that was begun bears
/// `begun`.
fn fill(data: &mut [u8], done: u64, begun: u64, stamp: u64) {
    let end = done + data.len() as u64;
    let mut record = done - done % RECORD;
    while record < end {
        let bytes = if record < done { begun } else { stamp }.to_ne_bytes();
        for (at, byte) in (record..).zip(bytes) {
            if at >= done && at < end {
                data[(at - done) as usize] = byte;
            }
        }
        record += RECORD;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_bear_when_their_first_byte_was_written_however_writes_cut_them() {
        let mut whole = vec![0; 4096];
        let (mut done, mut begun) = (0, 0);
        for (stamp, size) in [(1_u64 << 40, 1027), (2 << 40, 1000), (3 << 40, 2069)] {
            let end = done + size;
            fill(&mut whole[done as usize..end as usize], done, begun, stamp);
            if end.div_ceil(RECORD) > done.div_ceil(RECORD) {
                begun = stamp;
            }
            done = end;
        }
        let stamp = |record: usize| {
            let at = record * RECORD as usize;
            u64::from_ne_bytes(whole[at..at + WORD].try_into().unwrap()) >> 40
        };
        assert_eq!([stamp(0), stamp(1), stamp(2), stamp(3)], [1, 1, 3, 3]);
    }
}
