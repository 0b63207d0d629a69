//! A command at a terminal of its own, as a session by SSH gives it: it draws there and reads keys, until the
//! session breaks.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigHandler, Signal, signal};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::stdin;
use rustix::termios::{Action, Winsize, tcflow, tcsetwinsize};

use crate::process::Process;

/// What becomes of the command by itself when its terminal goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// SIGHUP reaches it.
    Told,
    /// It ignores SIGHUP, as below nohup(1): only the terminal itself tells.
    Ignored,
}

/// The command, and what it has drawn. It is killed when this is dropped.
#[derive(Debug)]
pub struct AtTerminal {
    /// The command, which leads the terminal's session.
    pub process: Process,
    /// Our end; none: it is closed.
    master: Option<File>,
    path: String,
    drawn: Vec<u8>,
}

impl AtTerminal {
    /// Starts `command`, which messages call `name`, in the network namespace of the calling thread.
    pub fn start(name: &str, mut command: Command, hangup: Hangup) -> Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).context("making a terminal")?;
        grantpt(&master).and_then(|()| unlockpt(&master))?;
        let size = Winsize {
            ws_row: 24,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).context("sizing a terminal")?;
        let path = ptsname(&master, Vec::new())?.into_string()?;
        let slave = open(&path)?;
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?);
        command.stderr(slave);
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                setsid()?;
                ioctl_tiocsctty(stdin())?;
                if hangup == Hangup::Ignored {
                    signal(Signal::SIGHUP, SigHandler::SigIgn)?;
                }
                Ok(())
            });
        }
        let process = Process::start(name, command)?;
        fcntl(&master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            process,
            master: Some(master.into()),
            path,
            drawn: Vec::new(),
        })
    }

    /// All that it has drawn, with the terminal's sequences. While nobody asks, the terminal takes little.
    pub fn drawn(&mut self) -> Result<String> {
        let mut some = [0; 4096];
        while let Some(master) = &mut self.master {
            match master.read(&mut some) {
                Ok(length) => self.drawn.extend_from_slice(&some[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // nobody has it open any more
                Err(error) if error.raw_os_error() == Some(nix::libc::EIO) => break,
                Err(error) => return Err(error).context("reading a terminal"),
            }
        }
        Ok(String::from_utf8_lossy(&self.drawn).into_owned())
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &[u8]) -> Result<()> {
        let master = self.master.as_mut().context("the terminal is closed")?;
        master.write_all(keys).context("pressing keys")
    }

    /// It takes no text from now on, as after Ctrl-S.
    pub fn stop(&self) -> Result<()> {
        tcflow(open(&self.path)?, Action::OOff).context("stopping a terminal")
    }

    /// The session breaks.
    pub fn close(&mut self) {
        self.master = None;
    }
}

/// The command's end.
fn open(path: &str) -> Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true);
    let opened = options.custom_flags(OFlag::O_NOCTTY.bits()).open(path);
    opened.with_context(|| format!("opening {path}"))
}
