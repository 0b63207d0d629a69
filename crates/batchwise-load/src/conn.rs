//! One connection: its non-blocking socket and its requests, first those in flight, then those
//! that the socket would not take yet, all with the times at which they were due.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::clock::Clock;
use crate::payload::{Request, Requests};
use crate::resp::{Parser, Reply};

/// One request on its way. Times are ns since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// When it was due.
    pub intended: u64,
    /// The clock just before the `send` that took its first byte.
    pub actual: u64,
    pub request: Request,
}

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Whole,
    /// The socket took nothing, or a part.
    Blocked,
}

pub(crate) struct Conn {
    pub stream: TcpStream,
    pub parser: Parser,
    pub alive: bool,
    queue: VecDeque<Entry>,
    /// The first `in_flight` entries of the queue were sent whole.
    in_flight: usize,
    /// Bytes of the next entry that the socket took already.
    offset: usize,
}

impl Conn {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            parser: Parser::default(),
            alive: true,
            queue: VecDeque::new(),
            in_flight: 0,
            offset: 0,
        }
    }

    /// Makes room for requests, so that the hot path need not allocate.
    pub fn reserve(&mut self, requests: usize) {
        self.queue.reserve(requests);
    }

    /// Whether requests wait to be sent.
    pub fn blocked(&self) -> bool {
        self.in_flight < self.queue.len()
    }

    /// Appends a request that was due at `intended`.
    pub fn push(&mut self, intended: u64, request: Request) {
        self.queue.push_back(Entry {
            intended,
            actual: 0,
            request,
        });
    }

    /// Tries to send the oldest waiting request, or what is left of it, with one system call.
    /// `on_first` is called when the first byte of it was taken, with the clock after the call.
    /// There must be one waiting.
    pub fn send_one(
        &mut self,
        requests: &mut Requests,
        clock: &Clock,
        on_first: impl FnOnce(&Entry, u64),
    ) -> io::Result<Sent> {
        let entry = &mut self.queue[self.in_flight];
        let bytes = requests.bytes(entry.request);
        let before = clock.now();
        let taken = match self.stream.write(&bytes[self.offset..]) {
            Ok(taken) => taken,
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(Sent::Blocked);
            }
            Err(why) => return Err(why),
        };
        if self.offset == 0 {
            entry.actual = before;
            on_first(entry, clock.now());
        }
        self.offset += taken;
        if self.offset < bytes.len() {
            return Ok(Sent::Blocked);
        }
        self.offset = 0;
        self.in_flight += 1;
        Ok(Sent::Whole)
    }

    /// Receives once into `buffer` and hands out the requests that were answered, with their
    /// replies and the clock right after the system call. Returns the number of bytes: fewer
    /// than the buffer holds means that nothing is left to read now.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        clock: &Clock,
        mut on_reply: impl FnMut(Entry, Reply, u64),
    ) -> io::Result<usize> {
        let length = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(0);
            }
            Err(why) => return Err(why),
        };
        let now = clock.now();
        let (queue, in_flight) = (&mut self.queue, &mut self.in_flight);
        let mut unexpected = false;
        let parsed = self.parser.feed(&buffer[..length], |reply| {
            match in_flight.checked_sub(1).zip(queue.front().copied()) {
                Some((left, entry)) => {
                    *in_flight = left;
                    queue.pop_front();
                    on_reply(entry, reply, now);
                }
                None => unexpected = true,
            }
        });
        parsed.map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?;
        if unexpected {
            let text = "a reply came that no request had asked for";
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        Ok(length)
    }

    /// Gives up all requests.
    pub fn abandon(&mut self) -> impl Iterator<Item = Entry> + '_ {
        self.in_flight = 0;
        self.offset = 0;
        self.queue.drain(..)
    }
}
