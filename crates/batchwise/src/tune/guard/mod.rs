//! The dead man's switch: a process that does nothing but wait for the agent's heartbeat, and gives
//! every socket back when it stays away or the agent is gone, however it went.
//!
//! Slow is not dead: the pipe closes when the agent is gone, and how long the heartbeat of a stopped or
//! hung one stays away is measured in the agent's own time (`own_time`).
//!
//! It is a process of its own so that no death of the agent can take it along: it has its own
//! session, is never chosen when memory runs out, and has all its memory locked. All orderly
//! endings take the same way.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::{Actuator, GuardFds, Release};
use clap::Args;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll, ppoll};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::time::TimeSpec;
use nix::unistd::{getppid, setsid};
use own_time::{Accounts, OwnTime};
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGTERM};

use super::place::{Place, asked, strike};
use crate::frame::ticks::poll_timeout;

mod own_time;

/// Between heartbeats. The guard answers each.
pub const BEAT: Duration = Duration::from_millis(100);
/// A heartbeat that stays away for so long is looked into, …
const LATE: Duration = Duration::from_millis(200);
/// … and the agent is taken for dead after this much more of its own time. Sockets must be back within a
/// second.
const PATIENCE: Duration = Duration::from_millis(300);
/// A guard that has not answered for so long is of no use.
const ANSWER: Duration = Duration::from_millis(1_000);
/// To give all sockets back, at the end.
const LAST: Duration = Duration::from_secs(5);

/// The agent's end.
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
    answers: Option<ChildStdout>,
    last: Instant,
    answered: Instant,
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
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
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
        let mut child = command.spawn().context("cannot start the guard process")?;
        let (pipe, answers) = (child.stdin.take(), child.stdout.take());
        // a guard that hangs must not have us hang
        pipe.as_ref().map(never_blocks).transpose()?;
        answers.as_ref().map(never_blocks).transpose()?;
        let now = Instant::now();
        Ok(Self {
            child,
            pipe,
            answers,
            last: now,
            answered: now,
            gone: false,
        })
    }

    /// We live. False: the guard took us for dead, and has given the sockets back, or is dead itself, or
    /// does not answer, and was killed.
    pub fn beat(&mut self) -> bool {
        self.gone = self.gone || !self.is_there();
        !self.gone
    }

    /// A beat has found it gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    fn is_there(&mut self) -> bool {
        let since = self.last.elapsed();
        if since < BEAT {
            return true;
        }
        self.last = Instant::now();
        let sent = self.pipe.as_mut().map(|p| p.write_all(b"."));
        let answers = self.answers.as_mut().map(|a| a.read(&mut [0; 64]));
        // what was not asked while we were late ourselves could not be answered
        if since > ANSWER / 2 || matches!(answers, Some(Ok(1..))) {
            self.answered = Instant::now();
        }
        if self.answered.elapsed() > ANSWER {
            // one that was killed already is what we want
            let _ = self.child.kill();
            return false;
        }
        matches!(sent, Some(Ok(())))
    }

    /// Sleeps, but not through a signal or the guard's end.
    pub fn wait(&self, time: Duration) -> anyhow::Result<()> {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::empty())];
        match ppoll(&mut fds, Some(TimeSpec::from_duration(time)), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("waiting"),
        }
    }

    /// Has the sockets given back, and waits for that. False: it failed.
    pub fn finish(&mut self) -> bool {
        drop(self.pipe.take());
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

impl AsFd for Guard {
    /// Becomes ready (with an error) when the guard is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.pipe {
            Some(pipe) => pipe.as_fd(),
            // SAFETY: standard error stays open for the life of the process.
            None => unsafe { BorrowedFd::borrow_raw(2) },
        }
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
        .context("cannot give the sockets back")?;
    strike(&args.record, &back)?;
    Ok(ExitCode::SUCCESS)
}

fn never_blocks(pipe: &impl AsFd) -> anyhow::Result<()> {
    let done = fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
    done.map(drop).context("cannot set up the guard's pipes")
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

/// Returns when the heartbeat stays away or its pipe is closed.
fn await_end() {
    let agent = Accounts::open(getppid());
    let (mut stdin, mut stdout) = (io::stdin(), io::stdout());
    if let Err(error) = never_blocks(&stdout) {
        tracing::warn!("{error:#}");
    }
    let mut beats = [0; 64];
    let mut late: Option<OwnTime<'_>> = None;
    loop {
        let own_time = late.as_ref().map(OwnTime::passed);
        let left = own_time.map_or(LATE, |passed| PATIENCE.saturating_sub(passed));
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, poll_timeout(left)) {
            // we may have been slow ourselves: only an empty pipe tells
            Ok(0) if left.is_zero() => return,
            Ok(0) => {
                late.get_or_insert_with(|| OwnTime::begin(&agent));
                continue;
            }
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return,
            Ok(_) => {}
        }
        match stdin.read(&mut beats) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            Ok(_) => {
                late = None;
                // an agent that is stopped reads no answers: it needs none
                let _ = stdout.write(b".").and_then(|_| stdout.flush());
            }
        }
    }
}
