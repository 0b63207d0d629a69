//! The senders: one thread, one epoll, any number of connections.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_window::Info;
use clap::Parser;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{Backlog, listen};

use super::{SENT_AGAIN, WORD};
use crate::units::{parse_addr, parse_duration};

/// The senders of an incast.
#[derive(Clone, Debug, Parser)]
pub struct AnswerConfig {
    /// Where to listen, such as 0.0.0.0:7090: each address of the host is a sender
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Answer when so many questions are there, all at once: one CPU that plays many senders is slow to hear them
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub gather: usize,
    /// For how long
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
}

const BACKLOG: i32 = 1024;
const LISTENER: u64 = u64::MAX;

struct Sender {
    socket: TcpStream,
    question: [u8; WORD],
    /// Bytes of the question that have come.
    heard: usize,
    /// Bytes of the answer that TCP has not taken yet.
    left: usize,
    /// It waits until the others have heard their questions.
    waits: bool,
}

/// Answers until the time is over.
pub fn answer(config: &AnswerConfig) -> Result<()> {
    let listener =
        TcpListener::bind(config.addr).with_context(|| format!("listening at {}", config.addr))?;
    listener.set_nonblocking(true)?;
    listen(&listener, Backlog::new(BACKLOG)?)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut senders = HashMap::new();
    let mut events = [EpollEvent::empty(); 64];
    let end = Instant::now() + config.duration;
    while Instant::now() < end {
        let ready = epoll.wait(&mut events, 100_u8)?;
        for event in &events[..ready] {
            if event.data() == LISTENER {
                accept(&listener, &epoll, &mut senders)?;
            } else {
                go(&mut senders, event.data());
            }
        }
        let wait: Vec<_> = senders.iter().filter(|(_, s)| s.waits).collect();
        if wait.len() >= config.gather.max(1) {
            let all: Vec<_> = wait.into_iter().map(|(&id, _)| id).collect();
            for id in all {
                senders.entry(id).and_modify(|sender| sender.waits = false);
                go(&mut senders, id);
            }
        }
    }
    Ok(())
}

/// This one goes on; one that has ended is forgotten.
fn go(senders: &mut HashMap<u64, Sender>, id: u64) {
    let ended = senders.get_mut(&id).is_some_and(|s| s.go().is_err());
    if ended {
        // closing it takes it out of epoll
        senders.remove(&id);
    }
}

fn accept(listener: &TcpListener, epoll: &Epoll, senders: &mut HashMap<u64, Sender>) -> Result<()> {
    while let Ok((socket, _)) = listener.accept() {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let id = socket.as_raw_fd() as u64;
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        epoll.add(&socket, EpollEvent::new(both, id))?;
        let sender = Sender {
            socket,
            question: [0; WORD],
            heard: 0,
            left: 0,
            waits: false,
        };
        senders.insert(id, sender);
    }
    Ok(())
}

impl Sender {
    /// Goes on as far as it can. An error: the connection has ended.
    fn go(&mut self) -> io::Result<()> {
        while !self.waits {
            let done = if self.left > 0 {
                self.write()
            } else {
                self.read()
            };
            match done {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => done?,
            }
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        match self.socket.read(&mut self.question[self.heard..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            bytes => self.heard += bytes,
        }
        if self.heard < WORD {
            return Ok(());
        }
        self.heard = 0;
        match u64::from_le_bytes(self.question) {
            SENT_AGAIN => {
                let count = Info::of(self.socket.as_fd())?.retransmitted();
                self.socket.write_all(&u64::from(count).to_le_bytes())
            }
            bytes => {
                self.left = bytes as usize;
                self.waits = true;
                Ok(())
            }
        }
    }

    /// All in one call, as far as TCP takes it: what is sent at once is known at its first packet.
    fn write(&mut self) -> io::Result<()> {
        const CHUNK: usize = 256 << 10;
        static NOTHING: [u8; CHUNK] = [0; CHUNK];
        let bytes = self.socket.write(&NOTHING[..self.left.min(CHUNK)])?;
        self.left -= bytes;
        Ok(())
    }
}
