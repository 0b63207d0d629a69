//! The truth log: a line of CSV for each answered request. A thread of its own writes it, so that
//! the load never waits for a disk.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::clock::Clock;

/// Records that are handed over at a time.
const CHUNK: usize = 8192;

/// An answered request. Times are ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of its connection.
    pub connection: u32,
    /// Just before it was written.
    pub sent: u64,
    /// When the last byte of the response had been read.
    pub response: u64,
    /// Just before the first request that this response caused was written.
    pub triggered: Option<u64>,
    pub request_bytes: u32,
    pub response_bytes: u64,
}

enum Chunk {
    /// One more than there were: the next number is its own.
    Connection(SocketAddr),
    Records(Vec<Record>),
}

pub(crate) struct TruthLog {
    path: PathBuf,
    chunk: Vec<Record>,
    chunks: Sender<Chunk>,
    writer: JoinHandle<io::Result<()>>,
}

impl TruthLog {
    /// `connections` are the clients' addresses as the network sees them.
    pub fn start(
        path: &Path,
        file: File,
        connections: Vec<SocketAddr>,
        clock: Clock,
    ) -> Result<Self> {
        let (chunks, received) = channel();
        let writer = std::thread::Builder::new()
            .name("truth-log".into())
            .spawn(move || write(BufWriter::new(file), &received, connections, &clock))?;
        Ok(Self {
            path: path.to_owned(),
            chunk: Vec::with_capacity(CHUNK),
            chunks,
            writer,
        })
    }

    /// There is another connection: the next record may be of it.
    pub fn connection(&mut self, local: SocketAddr) {
        let _ = self.chunks.send(Chunk::Connection(local));
    }

    pub fn push(&mut self, record: Record) {
        self.chunk.push(record);
        if self.chunk.len() == CHUNK {
            let full = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
            // A writer that is gone says why in `finish`.
            let _ = self.chunks.send(Chunk::Records(full));
        }
    }

    /// Waits until everything is written.
    pub fn finish(self) -> Result<()> {
        let _ = self.chunks.send(Chunk::Records(self.chunk));
        drop(self.chunks);
        let written = self
            .writer
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        written.with_context(|| cannot_write(&self.path))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the log {}", path.display())
}

/// Makes the file of a log.
pub(crate) fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| cannot_write(path))
}

fn write(
    mut out: impl Write,
    chunks: &Receiver<Chunk>,
    mut connections: Vec<SocketAddr>,
    clock: &Clock,
) -> io::Result<()> {
    writeln!(
        out,
        "connection,sent_ns,response_ns,triggered_ns,request_bytes,response_bytes"
    )?;
    for chunk in chunks {
        let records = match chunk {
            Chunk::Connection(local) => {
                connections.push(local);
                continue;
            }
            Chunk::Records(records) => records,
        };
        for record in records {
            let connection = connections[record.connection as usize];
            let (sent, response) = (clock.wall(record.sent), clock.wall(record.response));
            write!(out, "{connection},{sent},{response},")?;
            if let Some(triggered) = record.triggered {
                write!(out, "{}", clock.wall(triggered))?;
            }
            writeln!(out, ",{},{}", record.request_bytes, record.response_bytes)?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_request_in_wall_clock_time_and_nothing_for_no_trigger() {
        let clock = Clock::start();
        let (chunks, received) = channel();
        let record = Record {
            connection: 1,
            sent: 5,
            response: 7,
            triggered: Some(9),
            request_bytes: 100,
            response_bytes: 2000,
        };
        let last = Record {
            connection: 0,
            triggered: None,
            ..record
        };
        let second = "[::1]:7".parse().unwrap();
        chunks.send(Chunk::Connection(second)).unwrap();
        chunks.send(Chunk::Records(vec![record])).unwrap();
        chunks.send(Chunk::Records(vec![last])).unwrap();
        drop(chunks);
        let first = vec!["10.0.0.2:5555".parse().unwrap()];
        let mut out = Vec::new();
        write(&mut out, &received, first, &clock).unwrap();
        let [five, seven, nine] = [5, 7, 9].map(|ns| clock.wall(ns));
        let expected = format!(
            "connection,sent_ns,response_ns,triggered_ns,request_bytes,response_bytes\n\
             [::1]:7,{five},{seven},{nine},100,2000\n\
             10.0.0.2:5555,{five},{seven},,100,2000\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_log_that_cannot_be_made_is_an_error_that_names_it() {
        let made = create(Path::new("/nowhere/log.csv"));
        let why = made.expect_err("no such folder").to_string();
        assert!(why.contains("/nowhere/log.csv"), "{why}");
    }
}
