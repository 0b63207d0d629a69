//! The clients: one thread, one epoll. They download, pause, and download again; one more asks for a record
//! now and then.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rand::Rng as _;
use serde::Serialize;

use super::{RECORD, WORD, allow_descriptors, now};
use crate::causal::dial::dial;
use crate::experiments::reset_at_close;
use crate::report::LatencySummary;
use crate::samples::Samples;
use crate::units::{parse_addr, parse_duration};

/// Clients of `load downloads-server`.
#[derive(Clone, Debug, Parser)]
pub struct FetchConfig {
    /// The server's address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Clients, each with a connection
    #[arg(long, default_value_t = 25, value_name = "N")]
    pub clients: usize,
    /// Bytes of a download
    #[arg(long, default_value_t = 10 << 20, value_name = "BYTES")]
    pub size: u64,
    /// The shortest pause between two downloads of a client
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub pause: Duration,
    /// The longest
    #[arg(long, default_value = "3s", value_parser = parse_duration)]
    pub longest_pause: Duration,
    /// How often the client that pings asks for a record
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    pub ping: Duration,
    /// Length of the measurement, after the warm-up
    #[arg(long, default_value = "8s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Before the measurement
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    pub warmup: Duration,
}

/// What the clients saw in the measured window.
#[derive(Clone, Debug, Serialize)]
pub struct FetchReport {
    /// Bytes a second, of all clients.
    pub bytes_per_s: f64,
    /// Downloads that ended.
    pub downloads: u64,
    /// How old records were when they arrived: the time through the server's kernel and the network.
    pub age_ns: LatencySummary,
    /// From the ping's request to its record.
    pub ping_ns: LatencySummary,
    /// Mean age by 100 ms, ns; none: nothing arrived.
    pub age_series_ns: Vec<Option<u64>>,
    /// What 0 %, 1 %, … 100 % of the ages do not exceed, ns.
    pub age_percentiles_ns: Vec<u64>,
}

const STEP: Duration = Duration::from_millis(100);
const PING: u64 = u64::MAX;
/// So many clients connect at once.
const CROWD: u64 = 64;
/// ms.
const CONNECTING: u16 = 10_000;

struct Client {
    socket: TcpStream,
    size: u64,
    /// Bytes that the download has brought; `None`: it pauses until …
    done: Option<u64>,
    /// … then.
    next: u64,
    asked: u64,
    stamp: [u8; WORD],
}

/// Runs the clients.
pub fn fetch(config: &FetchConfig) -> Result<FetchReport> {
    allow_descriptors()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut rng = rand::rng();
    let connect = |size: u64, id: u64, next: u64| -> Result<Client> {
        let socket = dial(config.addr)?;
        reset_at_close(&socket)?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, id))?;
        Ok(Client {
            socket,
            size,
            done: None,
            next,
            asked: 0,
            stamp: [0; WORD],
        })
    };
    let begin = now();
    let mut clients = Vec::new();
    for id in 0..config.clients as u64 {
        // not all at once: a listener has room for some
        if id % CROWD == CROWD - 1 {
            thread::sleep(Duration::from_millis(10));
        }
        let next = begin + rng.random_range(0..=config.warmup.as_nanos() as u64 / 2);
        clients.push(connect(config.size, id, next)?);
    }
    let mut ping = connect(RECORD, PING, begin)?;
    for client in clients.iter().chain([&ping]) {
        let mut writable = [PollFd::new(client.socket.as_fd(), PollFlags::POLLOUT)];
        poll(&mut writable, PollTimeout::from(CONNECTING))?;
        let failed = client.socket.take_error()?;
        failed
            .map_or(Ok(()), Err)
            .with_context(|| format!("connecting to {}", config.addr))?;
    }
    let from = begin + config.warmup.as_nanos() as u64;
    let end = from + config.duration.as_nanos() as u64;
    let (mut age, mut rtt, mut step) = (Samples::default(), Samples::default(), Samples::default());
    let (mut bytes, mut downloads, mut series) = (0, 0, Vec::new());
    let mut events = [EpollEvent::empty(); 64];
    let mut buffer = vec![0; 1 << 18];
    let pauses = config.pause.as_nanos() as u64..=config.longest_pause.as_nanos() as u64;
    let begun = Instant::now();
    while now() < end {
        let count = match epoll.wait(&mut events, EpollTimeout::from(1_u8)) {
            Err(nix::errno::Errno::EINTR) => 0,
            other => other?,
        };
        for event in &events[..count] {
            let of_ping = event.data() == PING;
            let client = match of_ping {
                true => &mut ping,
                false => &mut clients[event.data() as usize],
            };
            let got = client.take(&mut buffer, |stamp| {
                let at = now();
                if !of_ping && at >= from {
                    age.record(at.saturating_sub(stamp));
                    step.record(at.saturating_sub(stamp));
                }
            })?;
            let at = now();
            if at >= from && !of_ping {
                bytes += got;
            }
            if client.done == Some(client.size) {
                client.done = None;
                if of_ping {
                    client.next = client.asked + config.ping.as_nanos() as u64;
                    if client.asked >= from {
                        rtt.record(at - client.asked);
                    }
                } else {
                    client.next = at + rng.random_range(pauses.clone());
                    downloads += u64::from(at >= from);
                }
            }
        }
        let at = now();
        for client in clients.iter_mut().chain([&mut ping]) {
            client.ask(at)?;
        }
        let steps = begun.elapsed().saturating_sub(config.warmup).as_nanos() / STEP.as_nanos();
        if at >= from && series.len() < steps as usize {
            series.push(step.mean());
            step.reset();
        }
    }
    Ok(FetchReport {
        bytes_per_s: bytes as f64 / config.duration.as_secs_f64(),
        downloads,
        age_ns: age.latency(),
        ping_ns: rtt.latency(),
        age_series_ns: series,
        age_percentiles_ns: age.percentiles(),
    })
}

impl Client {
    /// The next download, if it is time.
    fn ask(&mut self, at: u64) -> Result<()> {
        if self.done.is_some() || at < self.next {
            return Ok(());
        }
        self.socket
            .write_all(&self.size.to_ne_bytes())
            .context("asking")?;
        (self.done, self.asked) = (Some(0), at);
        Ok(())
    }

    /// What has arrived: bytes; `each` is told the stamps.
    fn take(&mut self, buffer: &mut [u8], mut each: impl FnMut(u64)) -> Result<u64> {
        let count = match self.socket.read(buffer) {
            Ok(0) => anyhow::bail!("the server has closed a connection"),
            Ok(count) => count as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error).context("reading"),
        };
        let done = self.done.unwrap_or(0);
        let end = done + count;
        let mut record = done - done % RECORD;
        while record < end {
            for (at, place) in (record..).zip(&mut self.stamp) {
                if at >= done && at < end {
                    *place = buffer[(at - done) as usize];
                }
            }
            let last = record + WORD as u64;
            if last > done && last <= end {
                each(u64::from_ne_bytes(self.stamp));
            }
            record += RECORD;
        }
        self.done = Some(end);
        Ok(count)
    }
}
