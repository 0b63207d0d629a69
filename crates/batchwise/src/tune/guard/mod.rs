//! The dead man's switch: a process that does nothing but wait for the agent's end, and gives every socket
//! back then.
//!
//! Between them is a pipe to the guard, no more. It closes when the agent is gone, however it went. An agent
//! that is stopped or hangs sends no heartbeat, and slow is not dead: how long that lasts is measured in the
//! agent's own time (`own_time`). Heartbeats that stay in the pipe tell the agent that its guard hangs.
//!
//! It is a process of its own so that no death of the agent can take it along: it has its own
//! session, is never chosen when memory runs out, and has all its memory locked. All orderly
//! endings take the same way.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::{Actuator, GuardFds, Release};
use clap::Args;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll, ppoll};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::time::TimeSpec;
use nix::unistd::{getppid, read, setsid};
use own_time::OwnTime;
use rustix::io::ioctl_fionread;
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGTERM};

use super::lever;
use super::place::{Place, asked, strike};
use crate::frame::ticks::poll_timeout;

mod own_time;

/// Between heartbeats.
pub const BEAT: Duration = Duration::from_millis(100);
/// The agent is taken for dead after so much of its own time without a heartbeat. Sockets must be back within a
/// second.
const PATIENCE: Duration = Duration::from_millis(500);
/// A guard that leaves so many heartbeats unread is of no use.
const UNREAD: u64 = 10;
/// To give all sockets back, at the end.
const LAST: Duration = Duration::from_secs(5);

/// The agent's end.
pub struct Guard {
    /// Its standard input is the pipe.
    child: Child,
    /// When the last heartbeat was sent.
    last: Instant,
    gone: bool,
}

impl Guard {
    /// Starts the guard. It keeps the lock of our place as well: an agent that comes after us must not look at the
    /// sockets before they are given back.
    pub fn start(
        actuator: &Actuator,
        cgroup: Option<&Path>,
        place: &Place,
    ) -> anyhow::Result<Self> {
        let fds = actuator.guard_fds();
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("batchwise-guard")
            .args(["guard", "--walk", &fds.walk.to_string()])
            .args(["--owners", &fds.owners.to_string()])
            .args(["--released", &fds.released.to_string()])
            .arg("--record")
            .arg(place.record())
            .arg("--levers")
            .arg(place.levers())
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        if let Some(cgroup) = cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        let inherited = [
            fds.walk,
            fds.owners,
            fds.released,
            place.as_fd().as_raw_fd(),
        ];
        // SAFETY: between fork and exec only async-signal-safe calls are made (fcntl, setsid), on
        // descriptors that the agent keeps open.
        unsafe {
            command.pre_exec(move || {
                for fd in inherited {
                    let fd = BorrowedFd::borrow_raw(fd);
                    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
                }
                setsid()?;
                Ok(())
            });
        }
        Ok(Self {
            child: command.spawn().context("cannot start the guard process")?,
            last: Instant::now(),
            gone: false,
        })
    }

    /// We live. False: the guard took us for dead, and has given the sockets back, or is dead itself, or
    /// hangs, and was killed.
    pub fn beat(&mut self) -> bool {
        self.gone = self.gone || !self.is_there();
        !self.gone
    }

    /// A beat has found it gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    fn is_there(&mut self) -> bool {
        if self.last.elapsed() < BEAT {
            return true;
        }
        self.last = Instant::now();
        let Some(pipe) = &mut self.child.stdin else {
            return false;
        };
        if ioctl_fionread(&*pipe).is_ok_and(|unread| unread >= UNREAD) {
            // one that was killed already is what we want
            let _ = self.child.kill();
            return false;
        }
        // there is room for it
        pipe.write_all(b".").is_ok()
    }

    /// Sleeps, but not through a signal or the guard's end.
    pub fn wait(&self, time: Duration) -> anyhow::Result<()> {
        // ready (with an error) when nobody can read it any more
        let pipe = self.child.stdin.iter();
        let mut fds: Vec<_> = pipe
            .map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::empty()))
            .collect();
        match ppoll(&mut fds, Some(TimeSpec::from_duration(time)), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("waiting"),
        }
    }

    /// Has the sockets given back, and waits for that. False: it failed.
    pub fn finish(&mut self) -> bool {
        drop(self.child.stdin.take());
        let end = Instant::now() + LAST;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) | Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        false
    }
}

/// What the agent tells its guard.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Descriptor of the walk
    #[arg(long)]
    walk: RawFd,
    /// Descriptor of the walk over the descriptors of all processes
    #[arg(long)]
    owners: RawFd,
    /// Descriptor of the switch
    #[arg(long)]
    released: RawFd,
    /// What applications asked for
    #[arg(long)]
    record: PathBuf,
    /// What is set beyond sockets
    #[arg(long)]
    levers: PathBuf,
    /// The agent's cgroup
    #[arg(long)]
    cgroup: Option<PathBuf>,
}

/// Waits for the agent's end, and gives the sockets back.
pub fn run(args: GuardArgs) -> anyhow::Result<ExitCode> {
    outlive();
    let fds = GuardFds {
        walk: args.walk,
        owners: args.owners,
        released: args.released,
    };
    let release = Release::prepare(fds).context("cannot prepare to give the sockets back")?;
    await_end();
    let back = release
        .run(args.cgroup.as_deref(), || asked(&args.record))
        .context("cannot give the sockets back")
        .and_then(|back| strike(&args.record, &back));
    // whatever happened to the sockets
    lever::undo_all(&args.levers)?;
    back?;
    Ok(ExitCode::SUCCESS)
}

/// As far as we may: a guard without these still guards.
fn outlive() {
    // systemd stops a unit, and ends one that hangs (SIGABRT), by a signal to all its processes: the agent's
    // end is what we wait for
    for signal in [SIGABRT, SIGHUP, SIGINT, SIGTERM] {
        let noted = Arc::new(AtomicBool::new(false));
        if let Err(error) = signal_hook::flag::register(signal, noted) {
            tracing::debug!("the guard may be ended by signal {signal}: {error}");
        }
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        tracing::warn!(
            "the guard may be chosen when memory runs out: {error} (it needs CAP_SYS_RESOURCE)"
        );
    }
    if let Err(error) = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE) {
        tracing::warn!("the guard's memory is not locked: {error} (it needs CAP_IPC_LOCK)");
    }
    // last: locking reads in all that it may need, which takes milliseconds
    super::first_in_line();
}

/// Returns when the pipe is closed, or no heartbeat comes.
fn await_end() {
    let mut own_time = OwnTime::open(getppid());
    let pipe = io::stdin();
    let (mut silent, mut beats) = (Duration::ZERO, [0; 64]);
    while silent < PATIENCE {
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        let ready = match poll(&mut fds, poll_timeout(BEAT)) {
            // we may have been slow ourselves: only an empty pipe tells
            Ok(0) => {
                silent += own_time.of(BEAT);
                continue;
            }
            other => other.and_then(|_| read(&pipe, &mut beats)),
        };
        match ready {
            Ok(1..) => silent = Duration::ZERO,
            Err(nix::errno::Errno::EINTR) => {}
            Ok(0) | Err(_) => return,
        }
    }
}
