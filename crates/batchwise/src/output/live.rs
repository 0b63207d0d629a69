//! The terminal while the live view is on it: taken over at the start, redrawn every interval and
//! on every key, and put back at the end, on a panic and on signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{Sink, log};

/// A signal is noticed after at most this long.
const SLICE: Duration = Duration::from_millis(100);

/// What can be drawn on a terminal, interval by interval.
pub trait Picture {
    /// What an interval brings.
    type Interval: ?Sized;

    /// Takes the lines of an interval.
    fn interval(&mut self, lines: &Self::Interval);

    /// Moves down by so many entries, or up if negative.
    fn scroll(&mut self, by: isize);

    /// Shows a message in the footer.
    fn set_note(&mut self, note: Option<String>);

    /// Draws everything.
    fn draw(&mut self, frame: &mut Frame);
}

/// The live view on standard output.
pub struct Live<V: Picture> {
    terminal: DefaultTerminal,
    view: V,
    stopped: Arc<AtomicBool>,
    signals: Vec<SigId>,
    finished: bool,
}

impl<V: Picture> Live<V> {
    /// Takes over the terminal and draws `view` on it.
    pub fn open(view: V) -> anyhow::Result<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let signals = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .map(|signal| signal_hook::flag::register(signal, Arc::clone(&stopped)))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot handle signals")?;
        log::hold();
        // Also makes a panic restore the terminal before it prints its message.
        let terminal = ratatui::try_init()
            .inspect_err(|_| log::release())
            .context(
                "cannot take over the terminal; use --format text to do without the live view",
            )?;
        let mut live = Self {
            terminal,
            view,
            stopped,
            signals,
            finished: false,
        };
        live.draw()?;
        Ok(live)
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        self.view.set_note(log::newest());
        self.terminal
            .draw(|frame| self.view.draw(frame))
            .context("cannot draw on the terminal")?;
        Ok(())
    }
}

impl<V: Picture> Sink<V::Interval> for Live<V> {
    fn interval(&mut self, lines: &V::Interval) -> anyhow::Result<()> {
        self.view.interval(lines);
        self.draw()
    }

    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if event::poll(left.min(SLICE)).context("cannot wait for keys")? {
                match event::read().context("cannot read keys")? {
                    Event::Key(key) if quits(key) => return Ok(true),
                    Event::Key(key) => self.view.scroll(scroll(key)),
                    _ => {}
                }
                self.draw()?;
            } else if left.is_zero() {
                return Ok(false);
            }
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        self.restore()
    }
}

impl<V: Picture> Live<V> {
    fn restore(&mut self) -> anyhow::Result<()> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        for signal in self.signals.drain(..) {
            signal_hook::low_level::unregister(signal);
        }
        // The panic hook has done it, and leaving the alternate screen twice would put the cursor
        // back on top of the panic's message.
        let restored = if std::thread::panicking() {
            Ok(())
        } else {
            ratatui::try_restore()
        };
        log::release();
        restored.context("cannot put the terminal back; type `reset`")
    }
}

impl<V: Picture> Drop for Live<V> {
    fn drop(&mut self) {
        // Whoever wants to know about a failure calls `finish`.
        let _ = self.restore();
    }
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

/// How many services a key moves the view down.
fn scroll(key: KeyEvent) -> isize {
    match key.code {
        _ if key.kind == KeyEventKind::Release => 0,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::PageDown => 3,
        KeyCode::PageUp => -3,
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
