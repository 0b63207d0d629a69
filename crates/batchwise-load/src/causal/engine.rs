//! The closed loop over TCP: one thread, non-blocking sockets. Reads a response, sends at once
//! what it caused, takes down when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::dial::dial;
use super::link::{Dialogue, Link, Socket};
use super::tally::{Break, Tally};
use super::truth_log::Record;
use crate::clock::Clock;
use crate::engine::Drain;

/// The most that is read under one time stamp.
const BUFFER: usize = 64 << 10;
/// Sockets served between two looks at the timers.
const EVENTS: usize = 16;
/// How long a connection may take to be opened, and a response to come, where a lost connection is
/// replaced, ns.
const OPENING_NS: u64 = 3_000_000_000;
const RESPONSE_NS: u64 = 5_000_000_000;
/// Between two looks for what took too long, ns.
const LOOK_NS: u64 = 100_000_000;
/// Before the next attempt after a connection was lost, ns.
const RETRY_NS: u64 = 50_000_000;
/// What the alarm's events are marked with.
const ALARM: u64 = u64::MAX;

pub(crate) struct Engine<D> {
    pub tally: Tally,
    pub links: Vec<Link<D>>,
    clock: Clock,
    /// Write all requests that a read has made possible with one call.
    coalesce: bool,
    epoll: Epoll,
    alarm: TimerFd,
    /// When which connection has something to say of its own accord.
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    outstanding: u64,
    alive: usize,
    /// When to look for what took too long.
    look: u64,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    /// The responses of one read, with whether they caused requests.
    batch: Vec<(Record, bool, Option<String>)>,
}

impl<D: Dialogue> Engine<D> {
    pub fn new(
        peer: SocketAddr,
        links: Vec<(TcpStream, D)>,
        coalesce: bool,
        tally: Tally,
        clock: Clock,
    ) -> Result<Self> {
        let failed = "cannot set up epoll";
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context(failed)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let alarm = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).context(failed)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ALARM);
        epoll.add(&alarm, event).context(failed)?;
        for (index, (stream, _)) in links.iter().enumerate() {
            stream
                .set_nonblocking(true)
                .context("cannot make a socket non-blocking")?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
            epoll.add(stream, event).context(failed)?;
        }
        let new = |((stream, dialogue), number)| Link::new(stream, peer, number, dialogue);
        let links: Vec<_> = links.into_iter().zip(0..).map(new).collect();
        Ok(Self {
            tally,
            alive: links.len(),
            links,
            clock,
            coalesce,
            epoll,
            alarm,
            timers: BinaryHeap::new(),
            outstanding: 0,
            look: LOOK_NS,
            buffer: vec![0; BUFFER],
            scratch: Vec::with_capacity(BUFFER),
            batch: Vec::with_capacity(64),
        })
    }

    /// Runs until the end of the window and waits for the last answers.
    pub fn run(&mut self) -> Result<()> {
        let end = self.tally.end;
        for index in 0..self.links.len() {
            self.speak(index);
        }
        let mut events = [EpollEvent::empty(); EVENTS];
        let mut drain = Drain::default();
        loop {
            self.fire();
            let now = self.clock.now();
            let stop = drain.stop(now, end);
            if self.alive == 0 || now >= stop || (now >= end && self.outstanding == 0) {
                break;
            }
            if now >= self.look {
                self.give_up(now);
                self.look = now + LOOK_NS;
            }
            self.arm(now).context("epoll")?;
            let wait_ms = (stop - now).div_ceil(1_000_000).min(1000) as u16;
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(wait_ms)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(why) => return Err(why).context("epoll"),
            };
            for event in &events[..ready] {
                self.serve(event.data(), event.events());
            }
        }
        for index in 0..self.links.len() {
            if self.links[index].oldest().is_some() {
                let why = "no answer within a second after the end".to_owned();
                self.broken(index, why);
            }
        }
        Ok(())
    }

    /// Ends what took too long.
    fn give_up(&mut self, now: u64) {
        for index in 0..self.links.len() {
            let link = &self.links[index];
            let late = match &link.socket {
                Socket::Open(_) if link.dialogue.renews() => {
                    let asked = link.oldest().map(|flight| flight.sent + RESPONSE_NS);
                    asked.is_some_and(|until| now >= until)
                }
                Socket::Opening(_, until) => now >= *until,
                _ => false,
            };
            if late {
                self.lose(index, &ErrorKind::TimedOut.into());
            }
        }
    }

    fn serve(&mut self, data: u64, flags: EpollFlags) {
        if data == ALARM {
            // Only empties it: who is due is on the list.
            let _ = self.alarm.wait();
            return;
        }
        let index = data as usize;
        if let Socket::Opening(stream, _) = &self.links[index].socket {
            return match stream.take_error() {
                Ok(None) => self.opened(index),
                Ok(Some(why)) | Err(why) => self.lose(index, &why),
            };
        }
        if flags.contains(EpollFlags::EPOLLOUT) {
            match self.links[index].flush() {
                Ok(true) => self.watch(index, EpollFlags::EPOLLIN),
                Ok(false) => {}
                Err(why) => self.lose(index, &why),
            }
        }
        if self.links[index].alive && flags != EpollFlags::EPOLLOUT {
            self.receive(index);
        }
    }

    /// Lets those speak whose time has come.
    fn fire(&mut self) {
        let now = self.clock.now();
        while let Some(&Reverse((due, index))) = self.timers.peek() {
            if due > now || now >= self.tally.end {
                break;
            }
            self.timers.pop();
            if self.links[index].timer == Some(due) {
                self.links[index].timer = None;
            }
            self.speak(index);
        }
    }

    /// Sets the alarm for the next timer.
    fn arm(&mut self, now: u64) -> nix::Result<()> {
        let Some(&Reverse((due, _))) = self.timers.peek() else {
            return Ok(());
        };
        let wait = Duration::from_nanos(due.saturating_sub(now).max(1));
        let expiration = Expiration::OneShot(wait.into());
        self.alarm.set(expiration, TimerSetTimeFlags::empty())
    }

    /// Sends all that may be sent on a connection now. Returns when the first request was sent
    /// that a response has caused.
    fn speak(&mut self, index: usize) -> Option<u64> {
        if !self.is_open(index) {
            return None;
        }
        let limit = if self.coalesce { usize::MAX } else { 1 };
        let mut first = None;
        while self.links[index].alive {
            let caused = self.gather(index, limit);
            let Some(at) = self.post(index) else { break };
            if caused {
                first.get_or_insert(at);
            }
        }
        self.set_timer(index);
        first
    }

    /// Whether there is a connection to speak on; opens one if something is due and there is none.
    fn is_open(&mut self, index: usize) -> bool {
        let now = self.clock.now();
        let link = &mut self.links[index];
        match link.socket {
            Socket::Open(_) => return true,
            Socket::Opening(..) => return false,
            Socket::Closed => {}
        }
        if link.dialogue.due().is_none_or(|due| due > now) || now >= self.tally.end {
            self.set_timer(index);
            return false;
        }
        let opening = dial(link.peer).and_then(|stream| {
            let event = EpollEvent::new(EpollFlags::EPOLLOUT, index as u64);
            self.epoll.add(&stream, event)?;
            Ok(stream)
        });
        match opening {
            Ok(stream) => link.socket = Socket::Opening(stream, now + OPENING_NS),
            Err(why) => self.lose(index, &why),
        }
        false
    }

    /// A connection was opened.
    fn opened(&mut self, index: usize) {
        let link = &mut self.links[index];
        let Socket::Opening(stream, _) = std::mem::replace(&mut link.socket, Socket::Closed) else {
            return;
        };
        let local = stream.local_addr();
        link.socket = Socket::Open(stream);
        match local {
            Ok(local) => {
                link.number = self.tally.connected(local);
                self.watch(index, EpollFlags::EPOLLIN);
                self.speak(index);
            }
            Err(why) => self.lose(index, &why),
        }
    }

    /// Closes a connection that has served its time; the next one is opened when it is needed.
    fn part(&mut self, index: usize) {
        let link = &mut self.links[index];
        if link.alive && link.flights.is_empty() && link.dialogue.parts() {
            self.close(index);
            self.links[index].dialogue.start_over(None);
            self.speak(index);
        }
    }

    fn close(&mut self, index: usize) -> Option<SocketAddr> {
        let link = &mut self.links[index];
        match std::mem::replace(&mut link.socket, Socket::Closed) {
            Socket::Open(stream) | Socket::Opening(stream, _) => {
                // A socket that is not there any more is not watched either.
                let _ = self.epoll.delete(&stream);
                stream.local_addr().ok()
            }
            Socket::Closed => None,
        }
    }

    fn gather(&mut self, index: usize, limit: usize) -> bool {
        let now = self.clock.now();
        now < self.tally.end && self.links[index].gather(limit, now, &mut self.scratch)
    }

    /// Writes what was gathered; returns when, if anything was.
    fn post(&mut self, index: usize) -> Option<u64> {
        let link = &mut self.links[index];
        if link.gathered == 0 {
            return None;
        }
        self.outstanding += link.gathered as u64;
        let fresh = link.flights.len() - link.gathered;
        for flight in link.flights.range(fresh..) {
            self.tally.sent(flight.bytes as usize);
        }
        let now = self.clock.now();
        let written = link.write(&self.scratch, now);
        self.scratch.clear();
        match written {
            Ok(true) => {}
            Ok(false) => {
                self.tally.backpressure += 1;
                self.watch(index, EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT);
            }
            Err(why) => self.lose(index, &why),
        }
        Some(now)
    }

    fn set_timer(&mut self, index: usize) {
        let link = &mut self.links[index];
        if let Some(due) = link.dialogue.due().filter(|_| link.alive)
            && link.timer != Some(due)
        {
            link.timer = Some(due);
            self.timers.push(Reverse((due, index)));
        }
    }

    fn receive(&mut self, index: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        match self.links[index].read(&mut buffer) {
            Ok(length) => {
                let received = self.clock.now();
                match self.hear(index, &buffer[..length], received) {
                    Ok(()) => self.part(index),
                    Err(why) => self.lose(index, &why),
                }
            }
            Err(why) => self.lose(index, &why),
        }
        self.buffer = buffer;
    }

    /// Goes through what was read at `received`, and sends what it caused.
    fn hear(&mut self, index: usize, bytes: &[u8], received: u64) -> io::Result<()> {
        let heard = self.hear_each(index, bytes, received);
        if self.coalesce {
            let sent = self.post(index);
            self.set_timer(index);
            for (mut record, caused, fault) in self.batch.drain(..) {
                record.triggered = sent.filter(|_| caused);
                self.tally.answered(record, fault);
            }
        }
        heard
    }

    fn hear_each(&mut self, index: usize, mut bytes: &[u8], received: u64) -> io::Result<()> {
        let invalid = |why: String| io::Error::new(ErrorKind::InvalidData, why);
        while !bytes.is_empty() && self.links[index].alive {
            let link = &mut self.links[index];
            let Some(flight) = link.oldest() else {
                return Err(invalid("a response came that nobody had asked for".into()));
            };
            let (taken, answer) = link.dialogue.take(bytes, received).map_err(invalid)?;
            bytes = &bytes[taken..];
            let Some(answer) = answer else { continue };
            link.flights.pop_front();
            self.outstanding -= 1;
            let mut record = Record {
                connection: link.number,
                sent: flight.sent,
                response: received,
                triggered: None,
                request_bytes: flight.bytes,
                response_bytes: answer.bytes,
            };
            if self.coalesce {
                let caused = self.gather(index, usize::MAX);
                self.batch.push((record, caused, answer.fault));
            } else {
                record.triggered = self.speak(index);
                self.tally.answered(record, answer.fault);
            }
        }
        Ok(())
    }

    fn watch(&mut self, index: usize, flags: EpollFlags) {
        let mut event = EpollEvent::new(flags, index as u64);
        let Socket::Open(stream) = &self.links[index].socket else {
            return;
        };
        if let Err(why) = self.epoll.modify(stream, &mut event) {
            self.lose(index, &why.into());
        }
    }

    fn lose(&mut self, index: usize, why: &io::Error) {
        let total = self.links.len();
        let link = &mut self.links[index];
        if !link.alive {
            return;
        }
        self.scratch.clear();
        let text = match why.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                "the server closed it, or went away (does it limit the requests of a connection, \
                 as nginx does with keepalive_requests?)"
                    .to_owned()
            }
            ErrorKind::TimedOut => "timed out".to_owned(),
            _ => why.to_string(),
        };
        // Between two requests a server may close.
        let idle = link.oldest().is_none();
        let orderly = idle && why.kind() == ErrorKind::UnexpectedEof;
        let renews = link.dialogue.renews();
        if !renews {
            link.alive = false;
            self.alive -= 1;
            self.tally
                .lost(format!("connection {} of {total}: {text}", index + 1));
        }
        if orderly {
            self.links[index].forget();
            self.close(index);
        } else {
            self.broken(index, text);
        }
        if renews {
            let retry = (!orderly).then(|| self.clock.now() + RETRY_NS);
            self.links[index].dialogue.start_over(retry);
            self.set_timer(index);
        }
    }

    /// Counts a connection that is lost, if one is or was about to be, and what was in flight.
    fn broken(&mut self, index: usize, why: String) {
        let link = &mut self.links[index];
        let opening = matches!(link.socket, Socket::Opening(..));
        let requests = link.forget();
        self.outstanding -= requests;
        let connection = self.close(index);
        let what = Break {
            ts_ns: self.clock.wall(self.clock.now()),
            connection: connection.filter(|_| !opening),
            requests,
            why,
        };
        match opening {
            true => self.tally.refused(what),
            false => self.tally.broke(what),
        }
    }
}
