//! The terminal while the live view is on it: taken over at the start, redrawn every interval and on every key, and
//! put back at the end and on a panic. It may take nothing for a while, or be gone: neither holds up the loop.

use std::cell::RefCell;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{TerminalOptions, Viewport};
use rustix::termios::tcgetwinsize;
use signal_hook::consts::SIGWINCH;

use super::keys::{Key, Keyboard};
use super::live::LiveTable;
use super::view::View;
use crate::frame::background::BackgroundWriter;
use crate::frame::ticks::poll_timeout;
use crate::frame::{messages, signals};

/// What is drawn, until it is handed to whoever writes it.
#[derive(Clone, Default)]
struct Picture(Rc<RefCell<Vec<u8>>>);

impl Picture {
    fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for Picture {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Terminal<V: View> {
    table: LiveTable<V>,
    area: Rect,
    screen: ratatui::Terminal<CrosstermBackend<Picture>>,
    picture: Picture,
    /// None: the terminal was put back.
    out: Option<BackgroundWriter>,
    /// None: there is no keyboard any more.
    keyboard: Option<Keyboard>,
    /// The size has changed.
    resized: Arc<AtomicBool>,
    /// SIGHUP came, and means nothing else.
    hung_up: Arc<AtomicBool>,
    /// The terminal still writes an older picture.
    is_behind: bool,
    is_gone: bool,
}

impl<V: View> Terminal<V> {
    pub fn open(table: LiveTable<V>) -> anyhow::Result<Self> {
        let (resized, hung_up) = (signals::flag(&[SIGWINCH])?, signals::ending_hangup_flag()?);
        let area = area().and_then(|area| enable_raw_mode().map(|()| area));
        let area = area.context(
            "cannot take over the terminal; use --format text to do without the live view",
        )?;
        put_back_before_panics();
        messages::hold();
        let mut picture = Picture::default();
        let entered = queue!(picture, EnterAlternateScreen);
        let mut live = Self {
            table,
            area,
            screen: screen(&picture, area)?,
            picture,
            out: Some(BackgroundWriter::new("the terminal", io::stdout())),
            keyboard: Some(Keyboard::default()),
            resized,
            hung_up,
            is_behind: false,
            is_gone: false,
        };
        entered.context(DRAW)?;
        live.draw()?;
        Ok(live)
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        // a picture is the difference to the last one, which must not be dropped
        self.is_behind = !out.is_idle();
        if self.is_behind {
            return Ok(());
        }
        // where there is no size there is no terminal, which a wait finds
        let area = area().unwrap_or(self.area);
        if area != self.area {
            self.area = area;
            self.screen = screen(&self.picture, area)?;
            queue!(self.picture, Clear(ClearType::All)).context(DRAW)?;
        }
        self.table.set_note(messages::newest());
        let table = &mut self.table;
        self.screen.draw(|frame| table.draw(frame)).context(DRAW)?;
        self.is_gone |= out.write(self.picture.take()).is_err();
        Ok(())
    }

    pub fn show(&mut self, view: &V) -> anyhow::Result<()> {
        self.table.show(view);
        self.draw()
    }

    /// Waits for at most `time`, or until `wake` is readable, and acts upon keys; true: the user quits, or the terminal
    /// is gone.
    pub fn wait(&mut self, time: Duration, wake: Option<BorrowedFd<'_>>) -> anyhow::Result<bool> {
        if self.is_behind {
            self.draw()?;
        }
        let (stdin, stdout) = (io::stdin(), io::stdout());
        // without events that are asked for: it has hung up
        let mut fds = vec![PollFd::new(stdout.as_fd(), PollFlags::empty())];
        if self.keyboard.is_some() {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        let ours = fds.len();
        fds.extend(wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)));
        let ready = match poll(&mut fds, poll_timeout(time)) {
            Ok(ready) => ready > 0,
            Err(Errno::EINTR) => false,
            Err(error) => return Err(error).context("cannot wait for the terminal"),
        };
        let mut told = fds[..ours]
            .iter()
            .map(|fd| ready && fd.any() != Some(false));
        self.is_gone |= told.next() == Some(true);
        let typed = told.next() == Some(true);
        let quits = typed && self.read_keys()?;
        if self.resized.swap(false, Ordering::Relaxed) {
            self.draw()?;
        }
        Ok(quits || self.is_gone || self.hung_up.load(Ordering::Relaxed))
    }

    /// Acts upon what was typed; true: the user quits. At end-of-file and errors there is no keyboard any more.
    fn read_keys(&mut self) -> anyhow::Result<bool> {
        let Some(keyboard) = &mut self.keyboard else {
            return Ok(false);
        };
        let mut bytes = [0; 256];
        match read(io::stdin(), &mut bytes) {
            Ok(length @ 1..) => {
                for key in keyboard.read(&bytes[..length]) {
                    match key {
                        Key::Quit => return Ok(true),
                        Key::Scroll(by) => self.table.scroll(by),
                        Key::Open => self.table.toggle(),
                        Key::Back if self.table.is_open() => self.table.toggle(),
                        Key::Back => return Ok(true),
                        Key::Order(letter) => self.table.order(letter),
                    }
                }
                self.draw()?;
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Ok(_) | Err(_) => self.keyboard = None,
        }
        Ok(false)
    }

    /// Puts the terminal back, where `last` is said then.
    pub fn finish(&mut self, last: &str) -> anyhow::Result<()> {
        let Some(mut out) = self.out.take() else {
            return Ok(());
        };
        let mut restored = Ok(());
        // The panic hook has done it, and leaving the alternate screen twice would put the cursor
        // back on top of the panic's message.
        if !std::thread::panicking() {
            restored = disable_raw_mode();
            restored = restored.and(queue!(self.picture, Show, LeaveAlternateScreen));
            let mut text = self.picture.take();
            text.extend_from_slice(last.as_bytes());
            restored = restored.and(out.write(text));
        }
        // it has its time to write that
        drop(out);
        messages::release();
        match restored {
            Err(error) if area().is_ok() => {
                Err(error).context("cannot put the terminal back; type `reset`")
            }
            // one that is gone needs nothing
            _ => Ok(()),
        }
    }
}

impl<V: View> Drop for Terminal<V> {
    fn drop(&mut self) {
        // Whoever wants to know about a failure calls `finish`.
        let _ = self.finish("");
    }
}

const DRAW: &str = "cannot draw on the terminal";

/// All of the terminal.
fn area() -> io::Result<Rect> {
    let size = tcgetwinsize(io::stdout())?;
    Ok(Rect::new(0, 0, size.ws_col, size.ws_row))
}

/// An empty one. Its size is ours to follow: the library asks other programs when the terminal does not tell.
fn screen(
    picture: &Picture,
    area: Rect,
) -> anyhow::Result<ratatui::Terminal<CrosstermBackend<Picture>>> {
    let options = TerminalOptions {
        viewport: Viewport::Fixed(area),
    };
    let backend = CrosstermBackend::new(picture.clone());
    ratatui::Terminal::with_options(backend, options).context(DRAW)
}

/// A panic's message is to be read.
fn put_back_before_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let _ = disable_raw_mode();
        if takes_text() {
            let _ = queue!(io::stdout(), Show, LeaveAlternateScreen);
            let _ = io::stdout().flush();
        }
        hook(info);
    }));
}

fn takes_text() -> bool {
    let out = io::stdout();
    let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO) != Ok(0)
}
