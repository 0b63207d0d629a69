//! Standard output as a pipe: writing to it, and noticing that its reader has gone.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::background::{BackgroundWriter, Target};
use super::lines::Lines;
use super::ticks::poll_timeout;

/// The reader of the output has gone: a foreground command ends quietly.
#[derive(Debug)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for Closed {}

/// What a command does when nobody reads its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenUnread {
    /// All is written, however long that takes: the input waits.
    Wait,
    /// The command never waits for its output, and ends with it.
    End,
    /// The command never waits for its output, and goes on without it: it is an agent.
    GoOn,
}

impl WhenUnread {
    /// Of a command that is an agent if it serves metrics.
    pub fn serving(metrics: bool) -> Self {
        if metrics { Self::GoOn } else { Self::End }
    }
}

const NAME: &str = "standard output";

pub struct Stdout {
    when_unread: WhenUnread,
    /// None where it is written to at once, or is gone.
    background: Option<BackgroundWriter>,
    gone: bool,
}

impl Stdout {
    pub fn open(when_unread: WhenUnread) -> Self {
        let background = match when_unread {
            WhenUnread::Wait => None,
            WhenUnread::End => Some(BackgroundWriter::new(NAME, io::stdout())),
            WhenUnread::GoOn => Some(resuming()),
        };
        Self {
            when_unread,
            background,
            gone: false,
        }
    }

    /// Writes `text`.
    ///
    /// # Errors
    /// [`Closed`] when the reader has gone and the command ends with it.
    pub fn write(&mut self, text: Vec<u8>) -> anyhow::Result<()> {
        if text.is_empty() || self.gone {
            return Ok(());
        }
        let written = match &mut self.background {
            Some(background) => background.write(text),
            None => write_all(&mut io::stdout(), &text),
        };
        let Err(error) = written else {
            return Ok(());
        };
        if self.when_unread == WhenUnread::GoOn {
            self.give_up(&error.to_string());
            return Ok(());
        }
        Err(said(error))
    }

    /// Waits for at most `time`, or until a signal, or until `wake` is readable; true: the reader has left, the
    /// command is to end.
    pub fn wait(&mut self, time: Duration, wake: Option<BorrowedFd<'_>>) -> anyhow::Result<bool> {
        let out = io::stdout();
        let watched = (!self.gone).then(|| out.as_fd());
        let left = reader_left(watched, time, wake)?;
        if left && self.when_unread == WhenUnread::GoOn {
            self.give_up("its reader has left");
            return Ok(false);
        }
        Ok(left)
    }

    /// Waits until all is written, for as long as is decent; what comes now is not written any more.
    pub fn close(&mut self) {
        (self.gone, self.background) = (true, None);
    }

    fn give_up(&mut self, why: &str) {
        tracing::warn!("standard output is gone ({why}): this agent goes on without it");
        self.close();
    }
}

/// Of an agent, which may write into a file: there may be room on its disk again.
struct Resuming(Lines);

impl Target for Resuming {
    fn put(&mut self, text: &[u8]) -> io::Result<()> {
        match self.0.put(text) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

fn resuming() -> BackgroundWriter {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(copy) => {
            let lines = Lines::new(NAME.to_owned(), copy.into());
            BackgroundWriter::new(NAME, Resuming(lines))
        }
        // there is no descriptor left, or none at all: writing will say so
        Err(_) => BackgroundWriter::new(NAME, io::stdout()),
    }
}

/// Writes `text` to standard output at once; for commands that say one thing and end.
pub fn print(text: &str) -> anyhow::Result<()> {
    write_all(&mut io::stdout(), text.as_bytes()).map_err(said)
}

fn write_all(out: &mut impl Write, text: &[u8]) -> io::Result<()> {
    out.write_all(text).and_then(|()| out.flush())
}

fn said(error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Closed.into();
    }
    anyhow::Error::new(error).context("cannot write the output")
}

fn reader_left(
    out: Option<BorrowedFd<'_>>,
    time: Duration,
    wake: Option<BorrowedFd<'_>>,
) -> anyhow::Result<bool> {
    // No events are asked for: poll then reports only POLLERR and POLLHUP, and unlike sleep it
    // returns when a signal arrives.
    let out = out.map(|out| PollFd::new(out, PollFlags::empty()));
    let wake = wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN));
    let watched = out.iter().count();
    let mut fds: Vec<PollFd<'_>> = out.into_iter().chain(wake).collect();
    match poll(&mut fds, poll_timeout(time)) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(fds[..watched].iter().any(|out| out.any().unwrap_or(false))),
        Err(error) => Err(error).context("cannot wait for standard output"),
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
        assert!(said(error).is::<Closed>());
    }

    #[test]
    fn waiting_ends_when_the_reader_leaves_and_not_before() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let left = |time, wake| reader_left(Some(writer.as_fd()), time, wake).expect("poll");
        let long = Duration::from_secs(60);
        assert!(!left(Duration::ZERO, None));
        let (ready, mut ring) = io::pipe().expect("a pipe");
        ring.write_all(b"!").expect("there is room");
        assert!(!left(long, Some(ready.as_fd())));
        drop(reader);
        assert!(left(long, None) && left(long, Some(ready.as_fd())));
    }
}
