//! The receiver: a thread a connection, which reads, pauses, or goes away as its seed says.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};
use rand::Rng as _;
use serde::Serialize;

use super::{HEAD, Habits, WORD, byte};
use crate::experiments::reset_at_close;
use crate::units::{parse_addr, parse_duration};

/// A receiver of lives.
#[derive(Clone, Debug, Parser)]
pub struct ReceiveConfig {
    /// Where to listen, such as 127.0.0.1:7072
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// For how long at most
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
}

/// What the receiver saw.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ReceiveReport {
    /// Connections.
    pub lives: u64,
}

const BACKLOG: i32 = 1024;

/// Receives until the time is over.
pub fn receive(config: &ReceiveConfig) -> Result<ReceiveReport> {
    let listener =
        TcpListener::bind(config.addr).with_context(|| format!("listening at {}", config.addr))?;
    listener.set_nonblocking(true)?;
    listen(&listener, Backlog::new(BACKLOG)?)?;
    let end = Instant::now() + config.duration;
    let mut lives = 0;
    while Instant::now() < end {
        let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::from(100_u8))?;
        while let Ok((stream, _)) = listener.accept() {
            lives += 1;
            stream.set_nonblocking(false)?;
            thread::Builder::new().stack_size(1 << 17).spawn(|| {
                // whoever sends notices, too
                let _ = live(stream);
            })?;
        }
    }
    Ok(ReceiveReport { lives })
}

/// One connection: the word at its end is how many bytes came, or 0 if they were not those that were sent.
fn live(mut stream: TcpStream) -> io::Result<()> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let word = |at: usize| u64::from_ne_bytes(head[at..at + WORD].try_into().unwrap_or_default());
    let (size, seed) = (word(0), word(WORD));
    let mut habits = Habits::of(seed, size);
    if let Some(bytes) = habits.buffer {
        setsockopt(&stream, sockopt::RcvBuf, &bytes)?;
    }
    let mut buffer = [0; 16_384];
    let (mut done, mut right) = (0, true);
    while done < size {
        if habits.reset_at.is_some_and(|at| done >= at) {
            return Ok(reset_at_close(&stream)?);
        }
        let rng = &mut habits.rng;
        if rng.random_bool(0.1) {
            let longest = if rng.random_bool(0.1) { 300 } else { 20 };
            thread::sleep(Duration::from_millis(rng.random_range(0..longest)));
        }
        let most = rng.random_range(1..=buffer.len());
        let count = stream.read(&mut buffer[..most])?;
        if count == 0 {
            return Ok(());
        }
        let is_sent = |(at, got): (u64, &u8)| *got == byte(seed, at);
        right &= (done..).zip(&buffer[..count]).all(is_sent);
        done += count as u64;
    }
    let word = if right { done } else { 0 };
    stream.write_all(&word.to_ne_bytes())?;
    // the other end closes first
    stream.read(&mut buffer).map(drop)
}
