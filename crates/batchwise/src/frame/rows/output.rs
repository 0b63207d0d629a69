//! Standard output of a subcommand, interval by interval: live, as text, or as JSON lines.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::format::Form;
use super::live::LiveTable;
use super::terminal::Terminal;
use super::text::TextTable;
use super::view::{JsonLines, View};
use crate::frame::stdout::{Stdout, WhenUnread, print};

/// Shows intervals on standard output. The caller alternates [`Output::show`] with
/// [`Output::wait`]; dropping it also puts the terminal back.
pub struct Output<V: View>(Screen<V>);

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
        Ok(Self(screen))
    }

    /// Shows the interval that just ended.
    ///
    /// # Errors
    /// [`crate::frame::stdout::Closed`] when nobody reads the output any more, which `main` takes for a
    /// quiet end.
    pub fn show(&mut self, view: &V) -> anyhow::Result<()> {
        match &mut self.0 {
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
        match &mut self.0 {
            Screen::Text(_, _, out) => out.write(text.as_bytes().to_vec()),
            Screen::Live(_) | Screen::Jsonl(_) => Ok(()),
        }
    }

    /// Waits for at most `time`, or until `wake` is readable. True means: stop, the user, the reader of the output or
    /// the terminal has left. It may return false early (a signal, a key).
    pub fn wait(&mut self, time: Duration, wake: Option<BorrowedFd<'_>>) -> anyhow::Result<bool> {
        match &mut self.0 {
            Screen::Live(terminal) => terminal.wait(time, wake),
            Screen::Text(_, _, out) | Screen::Jsonl(out) => out.wait(time, wake),
        }
    }

    /// Puts the terminal back, waits until all is written, and says this last where people read.
    pub fn finish(&mut self, last: &str) -> anyhow::Result<()> {
        match &mut self.0 {
            Screen::Live(terminal) => terminal.finish(last),
            Screen::Text(_, _, out) => {
                out.close();
                print(last)
            }
            Screen::Jsonl(out) => {
                out.close();
                Ok(())
            }
        }
    }
}
