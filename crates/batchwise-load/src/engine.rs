//! What the open and the closed loop share: sending on, receiving from and losing connections,
//! and the counting that goes with it.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;

use crate::clock::Clock;
use crate::config::Config;
use crate::conn::{Conn, Entry, Sent};
use crate::payload::{Request, Requests};
use crate::recorder::Recorder;
use crate::resp::Reply;

/// Requests that may be unanswered at a time; those beyond it count as failed. It bounds the
/// memory of a run against a server that stands still (100 MB).
const MAX_OUTSTANDING: usize = 4 << 20;
/// Room for requests that is made in advance, over all connections.
const PREALLOCATED: usize = 1 << 18;
/// The receive buffer: also the most that is read under one time stamp.
const BUFFER: usize = 256 << 10;
/// Sockets served between two looks at the schedule.
const EVENTS: usize = 16;
/// How long after the end answers are waited for, ns.
const DRAIN_NS: u64 = 1_000_000_000;

/// Until when answers are waited for. That counts from when the generator sees that the end has
/// come: one that did not run at the end has not read either what had come by then.
#[derive(Debug, Default)]
pub(crate) struct Drain(Option<u64>);

impl Drain {
    /// When the next thing ends: the window, or from its `end` on the wait for the last answers.
    pub fn stop(&mut self, now: u64, end: u64) -> u64 {
        if now < end {
            return end;
        }
        *self.0.get_or_insert(now + DRAIN_NS)
    }
}

pub(crate) struct Engine {
    pub clock: Clock,
    pub recorder: Recorder,
    /// Why the first connection was lost.
    pub lost: Option<String>,
    /// What was wrong with the first request that failed otherwise.
    pub first_error: Option<String>,
    pub outstanding: usize,
    pub alive: usize,
    conns: Vec<Conn>,
    requests: Requests,
    buffer: Vec<u8>,
    busy_ns: u64,
    epoll: Option<Epoll>,
    events: [EpollEvent; EVENTS],
}

impl Engine {
    /// `poll`: find the sockets to serve with epoll, rather than by trying the only one.
    pub fn new(
        config: &Config,
        mut conns: Vec<Conn>,
        requests: Requests,
        clock: Clock,
        recorder: Recorder,
        poll: bool,
    ) -> Result<Self> {
        let per_connection = (PREALLOCATED / conns.len()).max(64);
        let epoll = poll.then(|| Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC));
        let epoll = epoll.transpose().context("cannot set up epoll")?;
        for (index, conn) in conns.iter_mut().enumerate() {
            conn.reserve(per_connection);
            let stream = &conn.stream;
            stream
                .set_nonblocking(true)
                .context("cannot make a socket non-blocking")?;
            if let Some(epoll) = &epoll {
                let flags = EpollFlags::EPOLLIN
                    | EpollFlags::EPOLLOUT
                    | EpollFlags::EPOLLRDHUP
                    | EpollFlags::EPOLLET;
                let event = EpollEvent::new(flags, index as u64);
                epoll.add(stream, event).context("cannot set up epoll")?;
            }
        }
        Ok(Self {
            clock,
            recorder,
            lost: None,
            first_error: None,
            outstanding: 0,
            alive: conns.len(),
            conns,
            requests,
            buffer: vec![0; BUFFER],
            busy_ns: config.busy_per_response.as_nanos() as u64,
            epoll,
            events: [EpollEvent::empty(); EVENTS],
        })
    }

    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// A request that was due at `intended` goes out on a connection, now or as soon as the
    /// socket takes it.
    pub fn offer(&mut self, index: usize, intended: u64, request: Request) {
        let conn = &mut self.conns[index];
        if !conn.alive {
            self.recorder.failed(intended);
            return;
        }
        if self.outstanding >= MAX_OUTSTANDING {
            self.fail(intended, || {
                format!("{MAX_OUTSTANDING} requests were waiting already")
            });
            return;
        }
        let waiting = conn.blocked();
        conn.push(intended, request);
        self.outstanding += 1;
        if waiting || self.send_one(index) == Sent::Blocked {
            self.recorder.held_back(intended);
        }
    }

    /// Sends what waits on a connection, as far as the socket takes it.
    pub fn flush(&mut self, index: usize) {
        while self.conns[index].blocked() && self.send_one(index) == Sent::Whole {}
    }

    fn send_one(&mut self, index: usize) -> Sent {
        let recorder = &mut self.recorder;
        let conn = &mut self.conns[index];
        let on_first = |entry: &Entry, after| recorder.sent(entry, after);
        match conn.send_one(&mut self.requests, &self.clock, on_first) {
            Ok(sent) => sent,
            Err(why) => {
                self.lose(index, &why);
                Sent::Blocked
            }
        }
    }

    /// Receives once from a connection; returns the number of replies and whether there may be
    /// more to read.
    pub fn receive(&mut self, index: usize) -> (usize, bool) {
        let Self {
            conns,
            clock,
            recorder,
            buffer,
            first_error,
            busy_ns,
            requests,
            ..
        } = self;
        let conn = &mut conns[index];
        let (mut replies, mut refused) = (0, false);
        let received = conn.receive(buffer, clock, |entry, reply, received| {
            replies += 1;
            let now = if *busy_ns == 0 {
                received
            } else {
                spin(clock, *busy_ns)
            };
            let wrong = match (entry.request.get, reply) {
                (false, Reply::Simple) => None,
                (true, Reply::Bulk(length)) if length == requests.value_size(entry.request) => None,
                (_, Reply::Error) => {
                    refused = true;
                    Some("the server replied with an error")
                }
                (true, Reply::Nil | Reply::Bulk(_)) => Some("a GET did not find the value"),
                _ => Some("a reply did not fit its request"),
            };
            match wrong {
                None => recorder.answered(&entry, now),
                Some(_) if refused => recorder.failed(entry.intended),
                Some(why) => {
                    recorder.failed(entry.intended);
                    first_error.get_or_insert_with(|| why.to_owned());
                }
            }
        });
        if refused && first_error.is_none() {
            first_error.clone_from(&conn.parser.first_error);
        }
        self.outstanding -= replies;
        match received {
            Ok(length) => (replies, length == self.buffer.len()),
            Err(why) => {
                self.lose(index, &why);
                (replies, false)
            }
        }
    }

    /// Waits for up to `timeout_ms` (0: not at all) until sockets can be served, and serves them.
    /// `on_replies` learns how many replies came on which connection.
    pub fn poll(&mut self, timeout_ms: u16, mut on_replies: impl FnMut(&mut Self, usize, usize)) {
        let Some(epoll) = &self.epoll else { return };
        let ready = match epoll.wait(&mut self.events, EpollTimeout::from(timeout_ms)) {
            Ok(ready) => ready,
            Err(Errno::EINTR) => return,
            Err(why) => {
                self.lost.get_or_insert_with(|| format!("epoll: {why}"));
                self.alive = 0;
                return;
            }
        };
        for event in 0..ready {
            let (index, flags) = (
                self.events[event].data() as usize,
                self.events[event].events(),
            );
            if flags.contains(EpollFlags::EPOLLOUT) {
                self.flush(index);
            }
            let gone = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
            if !flags.intersects(EpollFlags::EPOLLIN | gone) {
                continue;
            }
            // Edge-triggered: read until nothing is left, or the end of the stream.
            while self.conns[index].alive {
                let (replies, more) = self.receive(index);
                if replies > 0 {
                    on_replies(self, index, replies);
                }
                if !more && !flags.intersects(gone) {
                    break;
                }
            }
        }
    }

    /// Sleeps until this time, or until a socket can be served.
    pub fn sleep_until(&self, due: u64) -> Result<()> {
        let Some(left) = due.checked_sub(self.clock.now()).filter(|ns| *ns > 0) else {
            return Ok(());
        };
        let stream = &self.conns[0].stream;
        let fd = self
            .epoll
            .as_ref()
            .map_or(stream.as_fd(), |epoll| epoll.0.as_fd());
        let mut wanted = PollFlags::POLLIN;
        wanted.set(
            PollFlags::POLLOUT,
            self.epoll.is_none() && self.conns[0].blocked(),
        );
        let timeout = TimeSpec::from_duration(Duration::from_nanos(left));
        match ppoll(&mut [PollFd::new(fd, wanted)], Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for the sockets"),
        }
    }

    /// Counts a request as failed for a reason of the generator's own.
    pub fn fail(&mut self, intended: u64, why: impl FnOnce() -> String) {
        self.recorder.failed(intended);
        self.first_error.get_or_insert_with(why);
    }

    /// Counts everything that is still unanswered as failed.
    pub fn give_up(&mut self) {
        if self.outstanding > 0 {
            let text = "no answer within a second after the end of the window";
            self.first_error.get_or_insert_with(|| text.to_owned());
        }
        for conn in &mut self.conns {
            conn.abandon()
                .for_each(|entry| self.recorder.failed(entry.intended));
        }
        self.outstanding = 0;
    }

    fn lose(&mut self, index: usize, why: &io::Error) {
        let conn = &mut self.conns[index];
        if !std::mem::replace(&mut conn.alive, false) {
            return;
        }
        for entry in conn.abandon() {
            self.recorder.failed(entry.intended);
            self.outstanding -= 1;
        }
        self.alive -= 1;
        let total = self.conns.len();
        self.lost.get_or_insert_with(|| {
            let why = match why.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                    "the server closed it, or went away".to_owned()
                }
                _ => why.to_string(),
            };
            format!("connection {} of {total}: {why}", index + 1)
        });
    }
}

/// The client's own work on a response: keeps the CPU busy and returns the time at its end.
fn spin(clock: &Clock, busy_ns: u64) -> u64 {
    let until = clock.now() + busy_ns;
    loop {
        let now = clock.now();
        if now >= until {
            return now;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_the_last_answers_begins_when_the_end_is_seen() {
        let mut drain = Drain::default();
        assert_eq!(drain.stop(10, 100), 100);
        assert_eq!(drain.stop(5_000, 100), 5_000 + DRAIN_NS);
        assert_eq!(drain.stop(6_000, 100), 5_000 + DRAIN_NS);
    }
}
