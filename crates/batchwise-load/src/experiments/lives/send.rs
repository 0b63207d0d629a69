//! The sender: one thread, one epoll, many connections at a time, each with the congestion control that its
//! turn brings.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use anyhow::{Context as _, Result};
use batchwise_window::{Info, Key, Mode, Set, patience};
use clap::Parser;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use super::{HEAD, Habits, WORD, byte};
use crate::causal::dial::dial;
use crate::experiments::downloads::now;
use crate::units::parse_addr;

/// A sender of lives.
#[derive(Clone, Debug, Parser)]
pub struct SendConfig {
    /// The receiver's address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Connections, one after another and many at a time
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub lives: u64,
    /// So many at a time
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub at_once: usize,
    /// Makes the same lives again
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// What became of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SendReport {
    /// Connections that were made.
    pub lives: u64,
    /// Those of which every byte arrived, …
    pub whole: u64,
    /// … that their receivers reset, as they were to, …
    pub reset: u64,
    /// … and that failed in any other way.
    pub failed: u64,
    /// What the matter was, for the first of them.
    pub why: Option<String>,
    /// Bytes that were handed over.
    pub bytes: u64,
    /// Times that a sender slept until there was space.
    pub waits: u64,
    /// Those of them that slept on for more than twice the fallback's time after there was space.
    pub late: u64,
    /// The longest that anybody slept on, as seen every 10 ms, ns.
    pub latest_ns: u64,
    /// Changes from the agent to the fallback.
    pub fallbacks: u64,
    /// Lives by congestion control.
    pub controls: HashMap<String, u64>,
}

struct Life {
    socket: TcpStream,
    key: Key,
    seed: u64,
    size: u64,
    resets: bool,
    rng: StdRng,
    connected: bool,
    /// Bytes that were written, head included.
    done: u64,
    /// It writes nothing until then, ns.
    rests: u64,
    /// It sleeps until there is space; …
    waits: bool,
    /// … there has been some since then, and it sleeps on; …
    since: Option<u64>,
    /// … for too long: that is counted.
    late: bool,
    /// The buffer was full whatever TCP can send: epoll tells.
    blocked: bool,
}

enum Ended {
    Whole,
    Reset,
    Failed(String),
}

const SPACE: u64 = u64::MAX;
/// Who sleeps is looked at so often.
const SAMPLED: u64 = 10_000_000;
/// At most so much in one call.
const CHUNK: usize = 32_768;

struct Sender<'a> {
    config: &'a SendConfig,
    epoll: Epoll,
    set: Set,
    lives: HashMap<u64, Life>,
    by_key: HashMap<Key, u64>,
    controls: Vec<String>,
    report: SendReport,
}

/// Sends until all lives are over.
pub fn send(config: &SendConfig) -> Result<SendReport> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let set = Set::new().context("a set for window space")?;
    epoll.add(&set, EpollEvent::new(EpollFlags::EPOLLIN, SPACE))?;
    let there = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    let mut sender = Sender {
        config,
        epoll,
        set,
        lives: HashMap::new(),
        by_key: HashMap::new(),
        controls: there.split_whitespace().map(str::to_owned).collect(),
        report: SendReport::default(),
    };
    sender.run()?;
    Ok(sender.report)
}

impl Sender<'_> {
    fn run(&mut self) -> Result<()> {
        let (mut events, mut keys) = ([EpollEvent::empty(); 256], Vec::new());
        let (mut sample, mut agent) = (now() + SAMPLED, self.set.mode() == Mode::Agent);
        while self.report.lives < self.config.lives || !self.lives.is_empty() {
            while self.lives.len() < self.config.at_once && self.report.lives < self.config.lives {
                self.begin()?;
            }
            let count = match self.epoll.wait(&mut events, EpollTimeout::from(1_u8)) {
                Err(nix::errno::Errno::EINTR) => 0,
                other => other?,
            };
            for event in &events[..count] {
                match event.data() {
                    SPACE => {
                        self.set.ready(&mut keys)?;
                        for key in keys.drain(..) {
                            if let Some(&id) = self.by_key.get(&key) {
                                self.woken(id);
                            }
                        }
                    }
                    id => self.happened(id, event.events()),
                }
            }
            let at = now();
            let rested =
                |(id, life): (&u64, &Life)| (life.rests > 0 && life.rests <= at).then_some(*id);
            let rested: Vec<u64> = self.lives.iter().filter_map(rested).collect();
            for id in rested {
                self.write(id);
            }
            if at >= sample {
                sample = at + SAMPLED;
                self.look(at);
                let before = std::mem::replace(&mut agent, self.set.mode() == Mode::Agent);
                self.report.fallbacks += u64::from(before && !agent);
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        let id = self.report.lives;
        let seed = self.config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ id;
        let mut rng = StdRng::seed_from_u64(!seed);
        let largest = 1 << rng.random_range(8..19);
        let size = rng.random_range(1..=largest);
        let socket = dial(self.config.addr)?;
        let control = &self.controls[id as usize % self.controls.len()];
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(control))
            .with_context(|| format!("congestion control {control}"))?;
        *self.report.controls.entry(control.clone()).or_default() += 1;
        let key = self.set.add(socket.as_fd(), 1)?;
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        self.epoll.add(&socket, EpollEvent::new(both, id))?;
        self.by_key.insert(key, id);
        let life = Life {
            socket,
            key,
            seed,
            size,
            resets: Habits::of(seed, size).reset_at.is_some(),
            rng,
            connected: false,
            done: 0,
            rests: 0,
            waits: false,
            since: None,
            late: false,
            blocked: true,
        };
        self.lives.insert(id, life);
        self.report.lives += 1;
        Ok(())
    }

    /// epoll says something of the connection.
    fn happened(&mut self, id: u64, events: EpollFlags) {
        let Some(life) = self.lives.get_mut(&id) else {
            return;
        };
        let error = life.socket.take_error();
        if let Ok(Some(error)) | Err(error) = error {
            return self.end(id, &error);
        }
        if events.contains(EpollFlags::EPOLLOUT) && life.blocked {
            (life.connected, life.blocked) = (true, false);
            let mut event = EpollEvent::new(EpollFlags::EPOLLIN, id);
            if let Err(error) = self.epoll.modify(&life.socket, &mut event) {
                return self.end(id, &error.into());
            }
            self.write(id);
        }
        if events.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP) {
            self.read(id);
        }
    }

    /// The receiver's word, or the end.
    fn read(&mut self, id: u64) {
        let Some(life) = self.lives.get_mut(&id) else {
            return;
        };
        let mut word = [0; WORD];
        match life.socket.read(&mut word) {
            Ok(WORD) if u64::from_ne_bytes(word) == life.size => self.over(id, Ended::Whole),
            Ok(bytes) => {
                let why = format!("{bytes} bytes for an answer, {} written", life.done);
                self.over(id, Ended::Failed(why));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.end(id, &error),
        }
    }

    /// The set names it.
    fn woken(&mut self, id: u64) {
        let Some(life) = self.lives.get_mut(&id) else {
            return;
        };
        (life.waits, life.late) = (false, false);
        if let Some(since) = life.since.take() {
            self.report.latest_ns = self.report.latest_ns.max(now() - since);
        }
        self.write(id);
    }

    /// Writes what TCP can send, with rests.
    fn write(&mut self, id: u64) {
        let Some(life) = self.lives.get_mut(&id) else {
            return;
        };
        life.rests = 0;
        let whole = life.size + HEAD as u64;
        let mut data = [0; CHUNK];
        while life.connected && life.done < whole && !life.blocked && !life.waits {
            if life.rng.random_bool(0.02) {
                life.rests = now() + life.rng.random_range(0..50_000_000);
                return;
            }
            let space = match self.set.wait(life.key, life.socket.as_fd()) {
                Ok(Some(space)) => space as usize,
                Ok(None) => {
                    self.report.waits += 1;
                    life.waits = true;
                    return;
                }
                Err(error) => return self.end(id, &error),
            };
            let count = space.min(CHUNK).min((whole - life.done) as usize);
            life.fill(&mut data[..count]);
            match life.socket.write(&data[..count]) {
                Ok(written) => {
                    self.set.wrote(life.key, written);
                    life.done += written as u64;
                    self.report.bytes += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    life.blocked = true;
                    let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
                    let mut event = EpollEvent::new(both, id);
                    if let Err(error) = self.epoll.modify(&life.socket, &mut event) {
                        return self.end(id, &error.into());
                    }
                }
                Err(error) => return self.end(id, &error),
            }
        }
    }

    /// Who sleeps although there is space?
    fn look(&mut self, at: u64) {
        for life in self.lives.values_mut().filter(|life| life.waits) {
            let Ok(info) = Info::of(life.socket.as_fd()) else {
                continue;
            };
            if info.space(0) == 0 {
                life.since = None;
                continue;
            }
            let slept_on = at - *life.since.get_or_insert(at);
            let most = 2 * patience(info.round_trip()) + SAMPLED;
            if slept_on > most && !life.late {
                life.late = true;
                self.report.late += 1;
            }
        }
    }

    fn end(&mut self, id: u64, error: &io::Error) {
        let resets = self.lives.get(&id).is_some_and(|life| life.resets);
        // the last: it was reset before the set took it in
        let gone = [
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::NotConnected,
        ];
        self.over(
            id,
            match resets && gone.contains(&error.kind()) {
                true => Ended::Reset,
                false => Ended::Failed(error.to_string()),
            },
        );
    }

    fn over(&mut self, id: u64, how: Ended) {
        let Some(life) = self.lives.remove(&id) else {
            return;
        };
        self.set.remove(life.key);
        self.by_key.remove(&life.key);
        match how {
            Ended::Whole => self.report.whole += 1,
            Ended::Reset => self.report.reset += 1,
            Ended::Failed(why) => {
                self.report.failed += 1;
                self.report.why.get_or_insert(why);
            }
        }
    }
}

impl Life {
    fn fill(&self, data: &mut [u8]) {
        let head = [self.size.to_ne_bytes(), self.seed.to_ne_bytes()].concat();
        for (at, place) in (self.done..).zip(data) {
            *place = match head.get(at as usize) {
                Some(byte) => *byte,
                None => byte(self.seed, at - HEAD as u64),
            };
        }
    }
}
