//! The terminal while the demo is on it: taken over at the start, put back at the end, on Ctrl-C,
//! on a panic, and when a failure drops it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::display::{Display, Story};
use super::view::View;

/// How long one wait for keys takes.
const WAIT: Duration = Duration::from_millis(50);

/// The live screen on standard output.
pub struct Screen {
    terminal: DefaultTerminal,
    view: View,
    finished: bool,
}

impl Screen {
    /// Takes over the terminal. `note` is shown at the lower edge.
    pub fn open(note: Option<&'static str>) -> Result<Self> {
        // Also makes a panic restore the terminal before it prints its message.
        let terminal = ratatui::try_init()
            .context("cannot take over the terminal; pipe the output to do without the screen")?;
        let mut screen = Self {
            terminal,
            view: View::new(note),
            finished: false,
        };
        screen.draw()?;
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

    fn wait(&mut self) -> Result<bool> {
        let end = Instant::now() + WAIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if !event::poll(left).context("cannot wait for keys")? {
                return Ok(false);
            }
            match event::read().context("cannot read keys")? {
                Event::Key(key) if quits(key) => return Ok(true),
                Event::Resize(..) => self.draw()?,
                _ => {}
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.finished, true) || std::thread::panicking() {
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
