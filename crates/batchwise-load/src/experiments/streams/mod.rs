//! Long flows and remote procedure calls over plain TCP, spread over threads on both ends: the traffic
//! patterns of *Understanding Host Network Stack Overheads* (§3). No latency is measured.

mod peer;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use serde::Serialize;

use crate::units::{parse_addr, parse_duration};
use peer::{Counts, Peer, Pool, WORD};

/// Clients of `load streams-server`.
#[derive(Clone, Debug, Parser)]
pub struct SendConfig {
    /// The server's address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// Threads that share them
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
    /// Bytes of a request, and of its response; one is on the way at a time. Without it the connection is
    /// written to without an end
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub size: Option<u64>,
    /// Length of the measurement, after the warm-up
    #[arg(long, default_value = "8s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Before the measurement
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub warmup: Duration,
}

/// A server of long flows and remote procedure calls.
#[derive(Clone, Debug, Parser)]
pub struct ServeConfig {
    /// Where to listen, such as 127.0.0.1:7075
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Threads that connections are given to in turn
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
    /// For how long
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
}

/// What was carried in the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct StreamsReport {
    /// Bytes a second that this end wrote.
    pub written_per_s: f64,
    /// Bytes a second that this end read.
    pub read_per_s: f64,
    /// Responses a second that this end got whole.
    pub requests_per_s: f64,
    /// Connections that ended before their time.
    pub broken: u64,
}

const POLL: Duration = Duration::from_millis(5);

/// Runs the clients.
pub fn send(config: &SendConfig) -> Result<StreamsReport> {
    let size = config.size.unwrap_or(0);
    let pools = Pool::start(config.threads.into())?;
    for number in 0..config.connections {
        let mut socket = TcpStream::connect(config.addr)
            .with_context(|| format!("connecting to {}", config.addr))?;
        socket.set_nodelay(true)?;
        socket.write_all(&size.to_le_bytes())?;
        let pool = &pools[number % pools.len()];
        pool.add(Peer::client(socket, size))?;
    }
    thread::sleep(config.warmup);
    let (before, begin) = (Counts::sum(&pools), Instant::now());
    thread::sleep(config.duration);
    let counted = Counts::sum(&pools).since(&before);
    let seconds = begin.elapsed().as_secs_f64();
    Ok(counted.report(seconds))
}

/// Serves until the time is over.
pub fn serve(config: &ServeConfig) -> Result<StreamsReport> {
    let listener =
        TcpListener::bind(config.addr).with_context(|| format!("listening at {}", config.addr))?;
    listener.set_nonblocking(true)?;
    let pools = Pool::start(config.threads.into())?;
    let (begin, mut number) = (Instant::now(), 0);
    while begin.elapsed() < config.duration {
        let mut socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                thread::sleep(POLL);
                continue;
            }
            Err(error) => return Err(error).context("accepting a connection"),
        };
        let mut size = [0; WORD];
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        if socket.read_exact(&mut size).is_err() {
            bail!("a client did not say what it wants: it is none of `load streams`");
        }
        let pool = &pools[number % pools.len()];
        pool.add(Peer::server(socket, u64::from_le_bytes(size)))?;
        number += 1;
    }
    let counted = Counts::sum(&pools);
    // it is the clients that end connections here
    counted.broken.store(0, Relaxed);
    Ok(counted.report(begin.elapsed().as_secs_f64()))
}
