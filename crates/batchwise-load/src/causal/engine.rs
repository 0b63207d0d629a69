//! The closed loop over TCP: one thread, non-blocking sockets. Reads a response, sends at once
//! what it caused, takes down when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::link::{Dialogue, Link};
use super::tally::Tally;
use super::truth_log::Record;
use crate::Error;
use crate::clock::Clock;
use crate::engine::DRAIN_NS;

/// The most that is read under one time stamp.
const BUFFER: usize = 64 << 10;
/// Sockets served between two looks at the timers.
const EVENTS: usize = 16;
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
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    /// The responses of one read, with whether they caused requests.
    batch: Vec<(Record, bool, Option<String>)>,
}

impl<D: Dialogue> Engine<D> {
    pub fn new(
        links: Vec<(TcpStream, D)>,
        coalesce: bool,
        tally: Tally,
        clock: Clock,
    ) -> Result<Self, Error> {
        let failed = |why| Error::system("cannot set up epoll", io::Error::from(why));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let alarm = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(failed)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, ALARM);
        epoll.add(&alarm, event).map_err(failed)?;
        for (index, (stream, _)) in links.iter().enumerate() {
            let blocking = |why| Error::system("cannot make a socket non-blocking", why);
            stream.set_nonblocking(true).map_err(blocking)?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
            epoll.add(stream, event).map_err(failed)?;
        }
        let new = |(stream, dialogue)| Link::new(stream, dialogue);
        let links: Vec<_> = links.into_iter().map(new).collect();
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
            buffer: vec![0; BUFFER],
            scratch: Vec::with_capacity(BUFFER),
            batch: Vec::with_capacity(64),
        })
    }

    /// Runs until the end of the window and waits for the last answers.
    pub fn run(&mut self) -> Result<(), Error> {
        let end = self.tally.end;
        let failed = |why| Error::system("epoll", io::Error::from(why));
        for index in 0..self.links.len() {
            self.speak(index);
        }
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            self.fire();
            let now = self.clock.now();
            let stop = if now < end { end } else { end + DRAIN_NS };
            if self.alive == 0 || now >= stop || (now >= end && self.outstanding == 0) {
                break;
            }
            self.arm(now).map_err(failed)?;
            let wait_ms = (stop - now).div_ceil(1_000_000).min(1000) as u16;
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(wait_ms)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(why) => return Err(failed(why)),
            };
            for event in &events[..ready] {
                self.serve(event.data(), event.events());
            }
        }
        self.tally.failed(self.outstanding, || {
            "no answer within a second after the end".to_owned()
        });
        Ok(())
    }

    fn serve(&mut self, data: u64, flags: EpollFlags) {
        if data == ALARM {
            // Only empties it: who is due is on the list.
            let _ = self.alarm.wait();
            return;
        }
        let index = data as usize;
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
                if let Err(why) = self.hear(index, &buffer[..length], received) {
                    self.lose(index, &why);
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
                connection: index as u32,
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
        if let Err(why) = self.epoll.modify(&self.links[index].stream, &mut event) {
            self.lose(index, &why.into());
        }
    }

    fn lose(&mut self, index: usize, why: &io::Error) {
        let total = self.links.len();
        let link = &mut self.links[index];
        if !std::mem::replace(&mut link.alive, false) {
            return;
        }
        // A socket that is not there any more is not watched either.
        let _ = self.epoll.delete(&link.stream);
        let requests = (link.flights.len() - link.gathered) as u64;
        link.flights.clear();
        link.gathered = 0;
        self.scratch.clear();
        self.outstanding -= requests;
        self.alive -= 1;
        let why = match why.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                "the server closed it, or went away (does it limit the requests of a connection, \
                 as nginx does with keepalive_requests?)"
                    .to_owned()
            }
            _ => why.to_string(),
        };
        let why = format!("connection {} of {total}: {why}", index + 1);
        self.tally.lost(requests, why);
    }
}
