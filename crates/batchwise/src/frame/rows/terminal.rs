//! The terminal while the live view is on it: taken over at the start, redrawn every interval and
//! on every key, and put back at the end, on a panic and on signals.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::live::LiveTable;
use super::view::View;
use crate::frame::{messages, signals};

/// A signal is noticed after at most this long.
const SLICE: Duration = Duration::from_millis(100);

pub struct Terminal<V: View> {
    terminal: DefaultTerminal,
    table: LiveTable<V>,
    stopped: Arc<AtomicBool>,
    finished: bool,
}

impl<V: View> Terminal<V> {
    pub fn open(table: LiveTable<V>) -> anyhow::Result<Self> {
        let stopped = signals::flag(&[SIGINT, SIGTERM, SIGHUP])?;
        messages::hold();
        // Also makes a panic restore the terminal before it prints its message.
        let terminal = ratatui::try_init()
            .inspect_err(|_| messages::release())
            .context(
                "cannot take over the terminal; use --format text to do without the live view",
            )?;
        let mut live = Self {
            terminal,
            table,
            stopped,
            finished: false,
        };
        live.draw()?;
        Ok(live)
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        if !takes_text() {
            return Ok(());
        }
        self.table.set_note(messages::newest());
        self.terminal
            .draw(|frame| self.table.draw(frame))
            .context("cannot draw on the terminal")?;
        Ok(())
    }

    pub fn show(&mut self, view: &V) -> anyhow::Result<()> {
        self.table.show(view);
        self.draw()
    }

    /// Waits for at most `timeout`, and acts upon keys; true: the user quits, or a signal came.
    pub fn wait(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if event::poll(left.min(SLICE)).context("cannot wait for keys")? {
                match event::read().context("cannot read keys")? {
                    Event::Key(key) if quits(key) => return Ok(true),
                    Event::Key(key) => self.table.scroll(scroll(key)),
                    _ => {}
                }
                self.draw()?;
            } else if left.is_zero() {
                return Ok(false);
            }
        }
    }

    pub fn restore(&mut self) -> anyhow::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        // The panic hook has done it, and leaving the alternate screen twice would put the cursor
        // back on top of the panic's message.
        let restored = if std::thread::panicking() {
            Ok(())
        } else {
            ratatui::try_restore()
        };
        messages::release();
        restored.context("cannot put the terminal back; type `reset`")
    }
}

impl<V: View> Drop for Terminal<V> {
    fn drop(&mut self) {
        // Whoever wants to know about a failure calls `restore`.
        let _ = self.restore();
    }
}

/// A terminal that was stopped (Ctrl-S) takes nothing, and must not hold up the loop.
fn takes_text() -> bool {
    let out = io::stdout();
    let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO) != Ok(0)
}

fn quits(key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release
        && match key.code {
            KeyCode::Char('q') | KeyCode::Esc => true,
            KeyCode::Char('c') => control,
            _ => false,
        }
}

/// How many rows a key moves down.
fn scroll(key: KeyEvent) -> isize {
    match key.code {
        _ if key.kind == KeyEventKind::Release => 0,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::PageDown => 10,
        KeyCode::PageUp => -10,
        KeyCode::Home => isize::MIN,
        KeyCode::End => isize::MAX,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_quit_and_nothing_else_does() {
        let press = |code, modifiers| quits(KeyEvent::new(code, modifiers));
        assert!(press(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(press(KeyCode::Esc, KeyModifiers::NONE));
        assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!press(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!press(KeyCode::Enter, KeyModifiers::NONE));
    }
}
