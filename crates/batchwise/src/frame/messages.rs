//! Where log messages go: standard error, except while the terminal view owns the screen. Then
//! they are kept, the newest is shown in the view, and all of them are printed when it ends.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing_subscriber::fmt::MakeWriter;

use super::background::{BackgroundWriter, LAST_WORDS};
use super::ticks::poll_timeout;

/// Bytes of messages that are kept while the screen is taken; what comes after is dropped.
const ROOM: usize = 64 * 1024;

/// Different complaints that are remembered.
const MOST_COMPLAINTS: usize = 1024;

/// What is said of applications, each once, however often one comes back: no log is theirs to fill.
#[derive(Debug, Default)]
pub struct Complaints(HashSet<String>);

impl Complaints {
    pub fn say(&mut self, complaint: &str) {
        if self.0.len() < MOST_COMPLAINTS && self.0.insert(complaint.to_owned()) {
            tracing::warn!("{complaint}");
            if self.0.len() == MOST_COMPLAINTS {
                tracing::warn!(
                    "no more complaints about applications are printed: there are too many"
                );
            }
        }
    }
}

static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<Vec<u8>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps messages back from now on.
pub fn hold() {
    held().get_or_insert_default();
}

/// Prints what was kept, and lets messages through again.
pub fn release() {
    let text = held().take().filter(|text| !text.is_empty());
    // a terminal that takes nothing must not hold us up
    if let Some(text) = text
        && takes_more(io::stderr().as_fd(), PollTimeout::ZERO)
    {
        // There is nowhere to report that standard error itself fails.
        let _ = BackgroundWriter::new("standard error", io::stderr()).write(text);
    }
}

/// The newest message that was kept.
pub fn newest() -> Option<String> {
    let held = held();
    let text = String::from_utf8_lossy(held.as_deref()?);
    text.lines().next_back().map(str::to_owned)
}

/// Says something on standard error, wherever that leads: whoever read it may have left, or read no more.
pub fn say(text: &str) {
    if takes_more(io::stderr().as_fd(), poll_timeout(LAST_WORDS)) {
        let _ = writeln!(io::stderr(), "batchwise: {text}");
    }
}

/// Whether a line can be written without waiting (a pipe that is not full, a file) within this time.
fn takes_more(out: BorrowedFd<'_>, within: PollTimeout) -> bool {
    let mut fds = [PollFd::new(out, PollFlags::POLLOUT)];
    poll(&mut fds, within) != Ok(0)
}

/// Makes writers for `tracing_subscriber`.
pub struct Log;

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match held().as_mut() {
            Some(kept) => {
                if kept.len() + text.len() <= ROOM {
                    kept.extend_from_slice(text);
                }
                Ok(text.len())
            }
            // who does not read it must not hold us up
            None if !takes_more(io::stderr().as_fd(), PollTimeout::ZERO) => Ok(text.len()),
            // whoever read it has left: `tracing_subscriber` would say so on standard error, and panic
            None => Ok(io::stderr().write(text).unwrap_or(text.len())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_while_the_screen_is_taken_and_bounded() {
        hold();
        let mut log = Log.make_writer();
        log.write_all(b"first\n").expect("kept");
        log.write_all(b"second\n").expect("kept");
        assert_eq!(newest().as_deref(), Some("second"));
        log.write_all(&vec![b'x'; ROOM])
            .expect("dropped without an error");
        assert_eq!(newest().as_deref(), Some("second"));
        held().take();
        assert_eq!(newest(), None);
    }
}
