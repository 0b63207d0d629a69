//! Standard output of a subcommand, interval by interval: live, as text, or as JSON lines.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::format::Form;
use super::live::LiveTable;
use super::terminal::Terminal;
use super::text::TextTable;
use super::view::{JsonLines, View};
use crate::frame::stdout::{Stdout, WhenUnread};
use crate::frame::ticks::poll_timeout;

/// Shows intervals on standard output. The caller alternates [`Output::show`] with
/// [`Output::wait`]; dropping it also puts the terminal back.
pub struct Output<V: View> {
    screen: Screen<V>,
    wake: Option<OwnedFd>,
}

enum Screen<V: View> {
    Live(Box<Terminal<V>>),
    Text(Box<TextTable<V::Row>>, Option<String>, Stdout),
    Jsonl(Stdout),
}

impl<V: View> Output<V> {
    /// Opens standard output. `waiting` is said once while there are no rows; it may be empty.
    pub fn open(form: Form, when_unread: WhenUnread, waiting: String) -> anyhow::Result<Self> {
        let screen = match form {
            Form::Live => Screen::Live(Box::new(Terminal::open(LiveTable::new(waiting))?)),
            Form::Text => {
                let waiting = (!waiting.is_empty()).then_some(waiting + "\n");
                let table = TextTable::new(V::COLUMNS);
                Screen::Text(Box::new(table), waiting, Stdout::open(when_unread))
            }
            Form::Jsonl => Screen::Jsonl(Stdout::open(when_unread)),
        };
        Ok(Self { screen, wake: None })
    }

    /// Waiting ends as soon as `wake` is readable, too.
    pub fn wake_by(&mut self, wake: OwnedFd) {
        self.wake = Some(wake);
    }

    /// Shows the interval that just ended.
    ///
    /// # Errors
    /// [`crate::frame::stdout::Closed`] when nobody reads the output any more, which `main` takes for a
    /// quiet end.
    pub fn show(&mut self, view: &V) -> anyhow::Result<()> {
        match &mut self.screen {
            Screen::Live(terminal) => terminal.show(view),
            Screen::Text(table, waiting, out) => {
                let mut text = view.notes();
                if !view.is_waiting() {
                    *waiting = None;
                }
                text += &waiting.take().unwrap_or_default();
                text += &table.rows(&view.text_rows());
                out.write(text.into_bytes())
            }
            Screen::Jsonl(out) => {
                let mut lines = JsonLines::default();
                view.json(&mut lines)?;
                out.write(lines.0)
            }
        }
    }

    /// Writes text between intervals; only where people read.
    pub fn say(&mut self, text: &str) -> anyhow::Result<()> {
        match &mut self.screen {
            Screen::Text(_, _, out) => out.write(text.as_bytes().to_vec()),
            Screen::Live(_) | Screen::Jsonl(_) => Ok(()),
        }
    }

    /// Waits for at most `time`. True means: stop, the user or the reader of the output has left. It
    /// may return false early (a signal, a key).
    pub fn wait(&mut self, mut time: Duration) -> anyhow::Result<bool> {
        if let Some(wake) = &self.wake {
            let (stdin, stdout) = (io::stdin(), self.stdout());
            let mut fds = vec![PollFd::new(wake.as_fd(), PollFlags::POLLIN)];
            match &self.screen {
                Screen::Live(_) => fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN)),
                Screen::Text(..) | Screen::Jsonl(_) => {
                    let stdout = stdout.iter();
                    fds.extend(stdout.map(|out| PollFd::new(out.as_fd(), PollFlags::empty())));
                }
            }
            match poll(&mut fds, poll_timeout(time)) {
                Ok(_) | Err(Errno::EINTR) => time = Duration::ZERO,
                Err(error) => return Err(error.into()),
            }
        }
        match &mut self.screen {
            Screen::Live(terminal) => terminal.wait(time),
            Screen::Text(_, _, out) | Screen::Jsonl(out) => out.wait(time),
        }
    }

    fn stdout(&self) -> Option<io::Stdout> {
        match &self.screen {
            Screen::Live(_) => None,
            Screen::Text(_, _, out) | Screen::Jsonl(out) => out.watched(),
        }
    }

    /// Puts the terminal back, and waits until all is written.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        match &mut self.screen {
            Screen::Live(terminal) => terminal.restore(),
            Screen::Text(_, _, out) | Screen::Jsonl(out) => {
                out.close();
                Ok(())
            }
        }
    }
}
