//! `batchwise window`: the agent for applications that want to know when TCP can send on their sockets.

pub mod apps;
mod report;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_bpf::window::{MOST_GATES, Window};
use batchwise_window::DEFAULT_SOCKET;
use clap::Args;
use nix::errno::Errno;

use crate::frame::args::parse_duration;
use crate::frame::door::Door;
use crate::frame::messages::Complaints;
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Format, Output};
use crate::frame::signals::stop_flag;
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
    /// Stop after this time; without it, at Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to show what the applications' sockets do
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
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
    let stop = stop_flag()?;
    let exporter = args.metrics.as_deref().map(Exporter::<WindowMetrics>::bind);
    let exporter = exporter.transpose()?;
    let cgroup = match &args.cgroup {
        Some(dir) => dir.clone(),
        None => batchwise_bpf::cgroup_mount_point()?,
    };
    if args.gate.len() > MOST_GATES {
        bail!("--gate: at most {MOST_GATES} ports");
    }
    let window = Window::attach(&cgroup, &args.gate).context(
        "cannot tell of window space (`batchwise doctor --for window` checks what is needed)",
    )?;
    let door = Door::open(&args.socket, "--socket", "applications")?;
    let mut output = Output::open(args.format.resolve()?, WhenUnread::GoOn, String::new())?;
    let (apps, mut complaints) = (Apps::new(window), Complaints::default());
    let mut pace = Pace::new();
    let mut ticks = Ticks::new(stop, EVERY, args.duration);
    loop {
        let pause = pace.pause();
        let knock = pause.is_none().then(|| door.as_fd());
        let turn = ticks.turn(pause.unwrap_or(Duration::MAX), |time| {
            output.wait(time, knock)
        })?;
        if pause.is_none() {
            welcome(&door, &apps, &mut pace, &mut complaints);
        }
        if turn == Turn::Look {
            continue;
        }
        apps.check()?;
        let report = Report::of(apps.read(), apps.refused(), apps.gated());
        if let Some(exporter) = &exporter {
            exporter.update(|metrics| metrics.take(&report));
        }
        output.show(&report)?;
        if turn != Turn::Interval {
            break;
        }
    }
    apps.end();
    output.finish("")?;
    Ok(ExitCode::SUCCESS)
}

/// Takes in an application, if one has come.
fn welcome(door: &Door, apps: &Apps, pace: &mut Pace, complaints: &mut Complaints) {
    let taken = match door.accept() {
        Ok(socket) => apps.add(socket),
        Err(Errno::EAGAIN) => return,
        Err(error) => Err(error.into()),
    };
    pace.took_one();
    if let Err(error) = taken {
        complaints.say(&format!("an application cannot connect: {error:#}"));
        // it may still wait: were it asked for at once, we would do nothing else
        pace.calm();
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
