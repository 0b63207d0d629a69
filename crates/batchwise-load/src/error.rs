//! Everything that keeps a run from producing a report. What goes wrong *during* a measurement is
//! no error here: it is counted, and makes the report invalid.

use std::io;
use std::net::SocketAddr;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration makes no sense; the text says what to change.
    #[error("{0}")]
    Config(String),
    /// The server could not be reached.
    #[error("cannot connect to {addr}: {why} (is a server listening there?)")]
    Connect {
        /// The server.
        addr: SocketAddr,
        /// What the kernel said.
        why: io::Error,
    },
    /// The server was reached, but did not take part in the set-up.
    #[error("{addr} did not answer {what}: {why}")]
    Setup {
        /// The server.
        addr: SocketAddr,
        /// The command that was sent.
        what: &'static str,
        /// What happened.
        why: io::Error,
    },
    /// The server answered the set-up with an error.
    #[error(
        "{addr} refused {what}: {reply} (the server must accept SET and GET without a password, \
         and as many clients as --connections asks for)"
    )]
    Refused {
        /// The server.
        addr: SocketAddr,
        /// The command that was sent.
        what: &'static str,
        /// The server's words.
        reply: String,
    },
    /// All connections were lost before anything was measured.
    #[error("every connection was lost before the measurement began: {0}")]
    LostBeforeMeasuring(String),
    /// A call to the operating system failed.
    #[error("{what}: {why}")]
    System {
        /// What was attempted.
        what: String,
        /// What the kernel said.
        why: io::Error,
    },
    /// The consumer of the interval reports failed, for instance a closed pipe.
    #[error("cannot write the interval reports: {0}")]
    Progress(io::Error),
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, why: impl Into<io::Error>) -> Self {
        Self::System {
            what: what.into(),
            why: why.into(),
        }
    }
}
