//! Standard output as a pipe: writing to it, and noticing that its reader has gone.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The reader of the output has gone: the program ends quietly.
#[derive(Debug)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for Closed {}

/// Writes `text` and flushes; a reader that has gone is [`Closed`].
pub fn write_all(out: &mut impl Write, text: &[u8]) -> anyhow::Result<()> {
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write the output")),
        Ok(()) => Ok(()),
    }
}

/// An output of which one can wait for the reader to leave.
pub trait Watched {
    /// Waits for at most `timeout`; true if the reader has gone. A signal ends the wait early.
    fn closed_within(&self, timeout: Duration) -> anyhow::Result<bool>;
}

impl Watched for io::Stdout {
    fn closed_within(&self, timeout: Duration) -> anyhow::Result<bool> {
        reader_left(self.as_fd(), timeout)
    }
}

fn reader_left(fd: BorrowedFd<'_>, timeout: Duration) -> anyhow::Result<bool> {
    // No events are asked for: poll then reports only POLLERR and POLLHUP, and unlike sleep it
    // returns when a signal arrives.
    let mut fds = [PollFd::new(fd, PollFlags::empty())];
    // One millisecond more than the rounded-down value: never a busy loop.
    let timeout =
        PollTimeout::try_from(timeout.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(fds[0].any().unwrap_or(false)),
        Err(error) => {
            Err(anyhow::Error::new(error).context(format!("cannot poll fd {}", fd.as_raw_fd())))
        }
    }
}

#[cfg(test)]
impl Watched for Vec<u8> {
    fn closed_within(&self, _timeout: Duration) -> anyhow::Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_pipe_without_a_reader_is_closed() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        let error = write_all(&mut writer, b"text").expect_err("nobody reads");
        assert!(error.is::<Closed>());
    }

    #[test]
    fn waiting_ends_when_the_reader_leaves_and_not_before() {
        let (reader, writer) = io::pipe().expect("a pipe");
        assert!(!reader_left(writer.as_fd(), Duration::ZERO).expect("poll"));
        drop(reader);
        assert!(reader_left(writer.as_fd(), Duration::from_secs(60)).expect("poll"));
    }
}
