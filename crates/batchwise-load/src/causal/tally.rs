//! What is counted about the requests of a closed loop.

use std::net::SocketAddr;

use anyhow::Result;
use serde::Serialize;

use super::truth_log::{Record, TruthLog};
use crate::samples::Samples;

/// Broken connections that are told one by one, at most.
const MOST_BREAKS: usize = 1000;

/// A connection that broke, or that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Break {
    /// When, ns since the Unix epoch.
    pub ts_ns: u64,
    /// The client's address of it; `None` of one that could not be made.
    pub connection: Option<SocketAddr>,
    /// Requests that were lost with it.
    pub requests: u64,
    /// What happened.
    pub why: String,
}

#[derive(Default)]
pub(crate) struct Tally {
    /// From the write of a request to the end of its response.
    pub latency: Samples,
    /// From the write of a request to that of the first request that its response caused.
    pub triggered: Samples,
    /// The client's part of that: from the end of the response on.
    pub think: Samples,
    pub requests: u64,
    /// Answered without fault before the end of the window.
    pub in_window: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub lost: Option<String>,
    /// Connections, from the first on.
    pub connections: u32,
    /// Of these, what was reset, timed out, or ended with requests in flight.
    pub broken: u64,
    /// Attempts to open a connection that failed.
    pub connect_failures: u64,
    /// The first of both.
    pub breaks: Vec<Break>,
    /// Requests that a socket did not take whole at once.
    pub backpressure: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// The end of the window, ns since the start of the run.
    pub end: u64,
    log: Option<TruthLog>,
}

impl Tally {
    /// `connections` exist already.
    pub fn new(end: u64, connections: u32, log: Option<TruthLog>) -> Self {
        Self {
            connections,
            end,
            log,
            ..Self::default()
        }
    }

    pub fn sent(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes_sent += bytes as u64;
    }

    /// A response is complete, and what it caused has been sent.
    pub fn answered(&mut self, record: Record, fault: Option<String>) {
        self.bytes_received += record.response_bytes;
        if let Some(log) = &mut self.log {
            log.push(record);
        }
        if let Some(fault) = fault {
            return self.failed(1, || fault);
        }
        self.in_window += u64::from(record.response <= self.end);
        self.latency.record(record.response - record.sent);
        if let Some(triggered) = record.triggered {
            self.triggered.record(triggered - record.sent);
            self.think.record(triggered - record.response);
        }
    }

    pub fn failed(&mut self, requests: u64, why: impl FnOnce() -> String) {
        self.errors += requests;
        if requests > 0 {
            self.first_error.get_or_insert_with(why);
        }
    }

    /// A connection is gone that the load cannot do without.
    pub fn lost(&mut self, why: String) {
        self.lost.get_or_insert(why);
    }

    /// There is another connection, with this address at the client; returns its number.
    pub fn connected(&mut self, local: SocketAddr) -> u32 {
        if let Some(log) = &mut self.log {
            log.connection(local);
        }
        self.connections += 1;
        self.connections - 1
    }

    /// A connection broke while it was in use.
    pub fn broke(&mut self, what: Break) {
        self.broken += 1;
        self.failed(what.requests, || what.why.clone());
        self.keep(what);
    }

    /// A connection could not be opened.
    pub fn refused(&mut self, what: Break) {
        self.connect_failures += 1;
        self.keep(what);
    }

    fn keep(&mut self, what: Break) {
        if self.breaks.len() < MOST_BREAKS {
            self.breaks.push(what);
        }
    }

    /// Waits until the log is written.
    pub fn close_log(&mut self) -> Result<()> {
        self.log.take().map_or(Ok(()), TruthLog::finish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_the_trigger_and_the_clients_part_are_told_apart() {
        let mut tally = Tally::new(1_000, 1, None);
        let record = Record {
            connection: 0,
            sent: 100,
            response: 400,
            triggered: Some(420),
            request_bytes: 10,
            response_bytes: 50,
        };
        tally.answered(record, None);
        let late = Record {
            response: 1_100,
            triggered: None,
            ..record
        };
        tally.answered(late, None);
        tally.answered(record, Some("status 404".into()));
        assert_eq!(
            (tally.latency.count(), tally.in_window, tally.errors),
            (2, 1, 1)
        );
        assert_eq!(tally.latency.mean(), Some(650));
        assert_eq!(tally.triggered.mean(), Some(320));
        assert_eq!((tally.think.mean(), tally.think.count()), (Some(20), 1));
        assert_eq!(tally.first_error.as_deref(), Some("status 404"));
    }
}
