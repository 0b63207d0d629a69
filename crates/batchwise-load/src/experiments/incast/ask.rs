//! The aggregator: connections that are opened anew for each question, so that each congestion window begins
//! where new ones do (10 segments, RFC 6928).

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::Serialize;

use super::{SENT_AGAIN, WORD};
use crate::causal::dial::dial;
use crate::experiments::reset_at_close;
use crate::units::{parse_addr, parse_duration};

/// One that asks many.
#[derive(Clone, Debug, Parser)]
pub struct AskConfig {
    /// The first sender's address; the others have those that follow it
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Senders, a connection each
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub senders: u16,
    /// Bytes of each answer
    #[arg(long, default_value_t = 14_480, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub bytes: u64,
    /// Questions, one after another
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub questions: u32,
    /// From the end of one to the next
    #[arg(long, default_value = "10ms", value_parser = parse_duration)]
    pub pause: Duration,
    /// No answer is waited for longer
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub patience: Duration,
}

/// When answers were there.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AskReport {
    /// From the question to the last byte of each answer, ns, the shortest first.
    pub completions_ns: Vec<u64>,
    /// Answers that did not come whole.
    pub incomplete: u64,
    /// Segments that the senders sent again, SYN-ACKs included.
    pub retransmissions: u64,
}

/// Asks, and waits for all answers, so many times.
pub fn ask(config: &AskConfig) -> Result<AskReport> {
    let mut report = AskReport::default();
    for _ in 0..config.questions {
        Question::open(config)?.ask(config, &mut report)?;
        thread::sleep(config.pause);
    }
    report.completions_ns.sort_unstable();
    Ok(report)
}

struct Question {
    epoll: Epoll,
    sockets: Vec<TcpStream>,
}

impl Question {
    /// Connections to all senders.
    fn open(config: &AskConfig) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut sockets = Vec::new();
        for number in 0..config.senders {
            let to = nth(config.addr, number)?;
            let socket = dial(to).with_context(|| format!("connecting to {to}"))?;
            let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
            epoll.add(&socket, EpollEvent::new(both, number.into()))?;
            sockets.push(socket);
        }
        let question = Self { epoll, sockets };
        let mut connected = vec![false; question.sockets.len()];
        let end = Instant::now() + config.patience;
        while connected.contains(&false) {
            ensure!(Instant::now() < end, "a sender does not answer");
            for number in question.ready()? {
                let socket = &question.sockets[number];
                if let Some(error) = socket.take_error()? {
                    return Err(error).context("connecting to a sender");
                }
                connected[number] = socket.peer_addr().is_ok();
            }
        }
        Ok(question)
    }

    /// Connections at which something has happened.
    fn ready(&self) -> Result<Vec<usize>> {
        let mut events = [EpollEvent::empty(); 64];
        let ready = self.epoll.wait(&mut events, EpollTimeout::from(100_u8))?;
        let numbers = events[..ready].iter().map(|event| event.data() as usize);
        Ok(numbers.collect())
    }

    fn ask(mut self, config: &AskConfig, report: &mut AskReport) -> Result<()> {
        let began = Instant::now();
        for socket in &mut self.sockets {
            socket.write_all(&config.bytes.to_le_bytes())?;
        }
        let mut left = vec![config.bytes; self.sockets.len()];
        let mut open = left.len();
        let mut buffer = vec![0; 64 << 10];
        while open > 0 && began.elapsed() < config.patience {
            for number in self.ready()? {
                if left[number] == 0 {
                    continue;
                }
                left[number] -= read_all(&mut self.sockets[number], &mut buffer)?;
                if left[number] == 0 {
                    let took = began.elapsed().as_nanos() as u64;
                    report.completions_ns.push(took);
                    open -= 1;
                }
            }
        }
        report.incomplete += open as u64;
        for (socket, left) in self.sockets.iter_mut().zip(left) {
            if left == 0 {
                report.retransmissions += sent_again(socket, config.patience)?;
            }
            reset_at_close(socket)?;
        }
        Ok(())
    }
}

/// Bytes that are there now.
fn read_all(socket: &mut TcpStream, buffer: &mut [u8]) -> Result<u64> {
    let mut sum = 0;
    loop {
        match socket.read(buffer) {
            Ok(0) => bail!("a sender closed its connection"),
            Ok(bytes) => sum += bytes as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sum),
            Err(error) => return Err(error).context("reading an answer"),
        }
    }
}

/// How many segments the sender sent again.
fn sent_again(socket: &mut TcpStream, patience: Duration) -> Result<u64> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(patience))?;
    socket.write_all(&SENT_AGAIN.to_le_bytes())?;
    let mut word = [0; WORD];
    socket.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}

/// The address so many behind this one.
fn nth(first: SocketAddr, number: u16) -> Result<SocketAddr> {
    let ip = match first.ip() {
        IpAddr::V4(ip) => u32::from(ip)
            .checked_add(number.into())
            .map(|ip| IpAddr::V4(ip.into())),
        IpAddr::V6(ip) => u128::from(ip)
            .checked_add(number.into())
            .map(|ip| IpAddr::V6(ip.into())),
    };
    let ip = ip.context("there are not so many addresses behind the first")?;
    Ok(SocketAddr::new(ip, first.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::incast::{AnswerConfig, answer};

    #[test]
    fn each_sender_answers_each_question_whole() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = free.local_addr().expect("an address");
        drop(free);
        let senders = AnswerConfig {
            addr: SocketAddr::from(([0, 0, 0, 0], addr.port())),
            gather: 3,
            duration: Duration::from_secs(60),
        };
        thread::spawn(move || answer(&senders));
        let args = format!("ask --addr {addr} --senders 3 --bytes 100000 --questions 2");
        let config = AskConfig::parse_from(args.split(' '));
        while TcpStream::connect(addr).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        let report = ask(&config).expect("answers");
        assert_eq!(report.completions_ns.len(), 6);
        assert!(report.completions_ns.is_sorted());
        assert_eq!(report.incomplete, 0);
    }

    #[test]
    fn senders_have_addresses_in_a_row() {
        let first = "10.0.0.255:80".parse().expect("an address");
        let second = nth(first, 1).expect("another");
        assert_eq!(second, "10.0.1.0:80".parse().expect("an address"));
        let last = "255.255.255.255:80".parse().expect("an address");
        assert!(nth(last, 1).is_err());
    }
}
