//! `batchwise window`: the agent for applications that want to know when TCP can send on their sockets.

pub mod apps;
mod report;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_bpf::find_cgroup;
use batchwise_bpf::window::{MOST_GATES, Window};
use batchwise_window::DEFAULT_SOCKET;
use clap::Args;
use nix::errno::Errno;

use crate::frame::args::StayArgs;
use crate::frame::door::Door;
use crate::frame::messages::Complaints;
use crate::frame::run::{Agent, Runner};
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};
use apps::Apps;
#[cfg(test)]
pub use report::Line;
use report::Report;
pub use report::WindowMetrics;

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise window
      applications that link batchwise-window are woken when TCP can send on their sockets
  sudo batchwise window --cgroup /sys/fs/cgroup/system.slice/relay.service --format jsonl
      only for sockets made in this cgroup; a line of JSON each second
  sudo batchwise window --gate 8080
      an unmodified server at port 8080 is told that a connection is writable only while nothing of it waits

Any user's applications may connect: they hand over the sockets that they mean, and get memory of their
own. When the agent ends they fall back to TCP_NOTSENT_LOWAT, and come back to the next one.";

/// Wake applications when TCP can send on their sockets, and say how much.
#[derive(Debug, Args)]
pub struct WindowArgs {
    /// Only for sockets made by processes in this cgroup v2 directory or below it (default: the whole
    /// machine)
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Where applications connect; they look here unless BATCHWISE_WINDOW_SOCKET says otherwise
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Applications that do not ask: connections made to or from this port from now on are writable only
    /// while nothing of them waits in the kernel (may be repeated)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    gate: Vec<u16>,
    #[command(flatten)]
    stay: StayArgs,
}

/// Lines are written so often.
const EVERY: Duration = Duration::from_secs(1);

/// After an application could not be taken in.
const CALM: Duration = Duration::from_millis(50);

/// Between two applications that connect, in the long run: one that comes and goes as fast as it can must not
/// cost a CPU.
const APART: Duration = Duration::from_millis(100);
/// So many may come at once.
const AT_ONCE: u32 = 256;

/// Runs until the duration is over or a signal comes.
pub fn run(args: WindowArgs) -> anyhow::Result<ExitCode> {
    let form = args.stay.format.resolve()?;
    let every = args.stay.every(EVERY);
    let runner = Runner::open(&every, form, WhenUnread::GoOn, String::new())?;
    let cgroup = find_cgroup(args.cgroup.as_deref())?;
    if args.gate.len() > MOST_GATES {
        bail!("--gate: at most {MOST_GATES} ports");
    }
    let door = Door::open(&args.socket, "--socket", "applications")?;
    let window = Window::attach(&cgroup, &args.gate).context(
        "cannot tell of window space (`batchwise doctor --for window` checks what is needed)",
    )?;
    runner.run(&mut Reception {
        door,
        apps: Apps::new(window),
        pace: Pace::new(),
        complaints: Complaints::default(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where applications come in.
struct Reception {
    door: Door,
    apps: Apps,
    pace: Pace,
    complaints: Complaints,
}

impl Agent for Reception {
    type View = Report;
    type Metrics = WindowMetrics;

    fn due(&self) -> Duration {
        self.pace.pause().unwrap_or(Duration::MAX)
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.pace.pause().is_none().then(|| self.door.as_fd())
    }

    /// Takes in an application, if one has come.
    fn look(&mut self, _turn: Turn, _ticks: &mut Ticks) -> anyhow::Result<()> {
        if self.pace.pause().is_some() {
            return Ok(());
        }
        let taken = match self.door.accept() {
            Ok(socket) => self.apps.add(socket),
            Err(Errno::EAGAIN) => return Ok(()),
            Err(error) => Err(error.into()),
        };
        self.pace.took_one();
        if let Err(error) = taken {
            let complaint = format!("an application cannot connect: {error:#}");
            self.complaints.say(&complaint);
            // it may still wait: were it asked for at once, we would do nothing else
            self.pace.calm();
        }
        Ok(())
    }

    fn close(&mut self, _turn: Turn) -> anyhow::Result<Option<Report>> {
        self.apps.check()?;
        let (seen, refused, gated) = (self.apps.read(), self.apps.refused(), self.apps.gated());
        Ok(Some(Report::of(seen, refused, gated)))
    }

    fn serve(&mut self, report: &Report, metrics: &mut WindowMetrics) {
        metrics.take(report);
    }

    fn end(&mut self) -> anyhow::Result<String> {
        self.apps.end();
        Ok(String::new())
    }
}

/// How often applications may connect.
struct Pace {
    /// When as many may come at once again as ever.
    free_at: Instant,
    /// Nobody may before.
    calm_until: Instant,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            free_at: now,
            calm_until: now,
        }
    }

    fn took_one(&mut self) {
        self.free_at = self.free_at.max(Instant::now()) + APART;
    }

    fn calm(&mut self) {
        self.calm_until = Instant::now() + CALM;
    }

    /// Until the next may come.
    fn pause(&self) -> Option<Duration> {
        let now = Instant::now();
        let ahead = self.free_at.saturating_duration_since(now);
        let pause = ahead.saturating_sub(APART * AT_ONCE);
        let pause = pause.max(self.calm_until.saturating_duration_since(now));
        (!pause.is_zero()).then_some(pause)
    }
}
