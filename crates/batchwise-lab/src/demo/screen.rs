//! The terminal while the demo is on it: taken over at the start, put back at the end, on Ctrl-C,
//! on a panic, and when a failure drops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::stop::Stop;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::display::{Display, Story};
use super::view::View;

/// How long one wait for keys takes.
const WAIT: Duration = Duration::from_millis(100);

/// The live screen on standard output.
pub struct Screen {
    terminal: DefaultTerminal,
    view: View,
    keys: Option<JoinHandle<()>>,
    finished: Arc<AtomicBool>,
}

impl Screen {
    /// Takes over the terminal. A key that quits sets `stop`, as a signal does.
    pub fn open(view: View, stop: Stop) -> Result<Self> {
        // Also makes a panic restore the terminal before it prints its message.
        let terminal = ratatui::try_init()
            .context("cannot take over the terminal; pipe the output to do without the screen")?;
        let finished = Arc::new(AtomicBool::new(false));
        let mut screen = Self {
            terminal,
            view,
            keys: None,
            finished: finished.clone(),
        };
        screen.draw()?;
        // A thread of its own: attaching programs takes seconds in which nobody asks for keys.
        screen.keys = Some(std::thread::spawn(move || watch_keys(&finished, &stop)));
        Ok(screen)
    }

    fn draw(&mut self) -> Result<()> {
        self.terminal
            .draw(|frame| self.view.draw(frame))
            .context("cannot draw on the terminal")?;
        Ok(())
    }
}

impl Display for Screen {
    fn status(&mut self, what: &str) -> Result<()> {
        self.view.set_status(what);
        self.draw()
    }

    fn show(&mut self, story: &Story<'_>) -> Result<()> {
        self.view.set_story(story);
        self.draw()
    }

    fn finish(&mut self) -> Result<()> {
        let before = self.finished.swap(true, Ordering::Relaxed);
        if let Some(keys) = self.keys.take() {
            // A panic in it was printed there already.
            let _ = keys.join();
        }
        if before || std::thread::panicking() {
            // The panic hook has done it; leaving the alternate screen twice would put the cursor
            // back on top of the panic's message.
            return Ok(());
        }
        ratatui::try_restore().context("cannot put the terminal back; type `reset`")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whoever wants to know about a failure calls `finish`.
        let _ = self.finish();
    }
}

fn watch_keys(finished: &AtomicBool, stop: &Stop) {
    while !finished.load(Ordering::Relaxed) {
        // Without keys there are still signals.
        let Ok(pressed) = event::poll(WAIT) else {
            return;
        };
        if pressed && matches!(event::read(), Ok(Event::Key(key)) if quits(key)) {
            stop.set();
        }
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
    }
}
