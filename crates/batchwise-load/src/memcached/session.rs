//! What a memcached client says on one connection.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Config;
use super::protocol::{Parser, Reply};
use crate::causal::distribution::Distribution;
use crate::causal::link::{Answer, Cause, Dialogue};
use crate::causal::pace::Pace;
use crate::setup::{no_answer, refused};

/// Sets in flight while the keys are set; their replies must fit into the socket buffers.
const PREFILL: u32 = 64;

pub(crate) struct Session {
    keys: u32,
    value_size: Distribution,
    get_ratio: f64,
    in_flight: usize,
    rng: SmallRng,
    pace: Option<Pace>,
    /// When the next request is due.
    due: u64,
    /// For each request in flight, oldest first, whether it is a get.
    asked: VecDeque<bool>,
    /// The last response made room where there was none.
    made_room: bool,
    parser: Parser,
}

impl Session {
    pub fn new(config: &Config, mut pace: Option<Pace>, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let due = pace.as_mut().map_or(0, |pace| pace.first(&mut rng));
        Self {
            keys: config.keys,
            value_size: config.value_size,
            get_ratio: config.get_ratio,
            in_flight: config.in_flight,
            rng,
            pace,
            due,
            asked: VecDeque::with_capacity(config.in_flight),
            made_room: false,
            parser: Parser::default(),
        }
    }
}

impl Dialogue for Session {
    fn next(&mut self, now: u64, out: &mut Vec<u8>) -> Option<Cause> {
        if self.asked.len() == self.in_flight || now < self.due {
            return None;
        }
        if let Some(pace) = &mut self.pace {
            self.due = pace.after(now, &mut self.rng);
        }
        let key = self.rng.random_range(0..self.keys);
        let get = self.rng.random::<f64>() < self.get_ratio;
        if get {
            push_get(out, key);
        } else {
            push_set(out, key, self.value_size.sample_whole(&mut self.rng));
        }
        self.asked.push_back(get);
        Some(match self.made_room {
            true => Cause::Response,
            false => Cause::Clock,
        })
    }

    fn take(&mut self, bytes: &[u8], _now: u64) -> Result<(usize, Option<Answer>), String> {
        let (taken, reply) = self.parser.take(bytes)?;
        let Some((reply, bytes)) = reply else {
            return Ok((taken, None));
        };
        self.made_room = self.asked.len() == self.in_flight;
        let get = self
            .asked
            .pop_front()
            .ok_or("a reply that nobody had asked for")?;
        let fault = match (get, reply) {
            (true, Reply::Value(_)) | (false, Reply::Stored) => None,
            (true, Reply::Miss) => Some(
                "a get found nothing: has the server too little memory for all keys (-m)?".into(),
            ),
            (_, Reply::Error(text)) => Some(text),
            (_, reply) => Some(format!("{reply:?} is no reply to that command")),
        };
        Ok((taken, Some(Answer { bytes, fault })))
    }

    fn due(&self) -> Option<u64> {
        (self.pace.is_some() && self.asked.len() < self.in_flight).then_some(self.due)
    }
}

fn push_get(out: &mut Vec<u8>, key: u32) {
    // Writing to memory cannot fail.
    let _ = write!(out, "get key:{key:012}\r\n");
}

fn push_set(out: &mut Vec<u8>, key: u32, size: u64) {
    let _ = write!(out, "set key:{key:012} 0 0 {size}\r\n");
    out.resize(out.len() + size as usize, b'x');
    out.extend_from_slice(b"\r\n");
}

/// Sets every key once.
pub(crate) fn prefill(config: &Config, stream: &mut TcpStream) -> Result<()> {
    let addr = config.options.addr;
    let failed = |why| no_answer(addr, "set", why);
    let mut rng = SmallRng::seed_from_u64(config.options.seed);
    let mut parser = Parser::default();
    let (mut out, mut buffer) = (Vec::new(), [0; 1024]);
    let mut key = 0;
    while key < config.keys {
        out.clear();
        let until = config.keys.min(key + PREFILL);
        (key..until).for_each(|key| {
            push_set(&mut out, key, config.value_size.sample_whole(&mut rng));
        });
        stream.write_all(&out).map_err(failed)?;
        while key < until {
            let length = stream.read(&mut buffer).map_err(failed)?;
            if length == 0 {
                return Err(failed(ErrorKind::UnexpectedEof.into()));
            }
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let taken = parser.take(rest);
                let (taken, reply) = taken.map_err(|why| failed(io::Error::other(why)))?;
                rest = &rest[taken..];
                match reply {
                    None => {}
                    Some((Reply::Stored, _)) => key += 1,
                    Some((Reply::Error(text), _)) => return Err(refused(addr, "set", &text)),
                    Some((other, _)) => return Err(refused(addr, "set", &format!("{other:?}"))),
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn session(pace: Option<Pace>) -> Session {
        let line = "memcached --addr 127.0.0.1:1 --in-flight 3 --get-ratio 0";
        Session::new(&Config::parse_from(line.split(' ')), pace, 1)
    }

    fn burst(session: &mut Session, now: u64) -> Vec<Cause> {
        let mut out = Vec::new();
        std::iter::from_fn(|| session.next(now, &mut out)).collect()
    }

    #[test]
    fn as_many_as_may_be_are_in_flight_and_each_reply_causes_one_more() {
        let mut session = session(None);
        assert_eq!(burst(&mut session, 0), [Cause::Clock; 3]);
        let (taken, answer) = session.take(b"STORED\r\nSTO", 5).unwrap();
        assert_eq!((taken, answer.unwrap().fault), (8, None));
        assert_eq!(burst(&mut session, 5), [Cause::Response]);
    }

    #[test]
    fn a_request_that_waited_for_its_time_was_not_caused_by_a_response() {
        let mut session = session(Some(Pace::rate(1e9, 1)));
        let due = session.due().unwrap();
        assert!(burst(&mut session, due.saturating_sub(1)).is_empty());
        let caused = burst(&mut session, 1_000);
        assert_eq!(caused, [Cause::Clock; 3], "the schedule was behind");
        assert_eq!(session.due(), None, "a response must come first");
        session.take(b"STORED\r\n", 2_000).unwrap();
        assert_eq!(burst(&mut session, 2_000), [Cause::Response]);
    }

    #[test]
    fn replies_that_do_not_fit_are_faults() {
        for reply in ["END\r\n", "SERVER_ERROR out of memory\r\n"] {
            let mut session = session(None);
            burst(&mut session, 0);
            let (_, answer) = session.take(reply.as_bytes(), 1).unwrap();
            assert!(answer.unwrap().fault.is_some(), "{reply}");
        }
    }
}
