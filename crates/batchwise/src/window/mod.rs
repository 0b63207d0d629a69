//! `batchwise window`: the agent for applications that want to know when TCP can send on their sockets.

mod apps;
mod report;

use std::fs;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use batchwise_bpf::window::Window;
use batchwise_window::DEFAULT_SOCKET;
use clap::Args;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, connect, listen, socket,
};

use crate::frame::args::parse_duration;
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Format, Output};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn, poll_timeout};
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
/// Applications that wait to be accepted.
const BACKLOG: i32 = 128;

/// Runs until the duration is over or a signal comes.
pub fn run(args: WindowArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let exporter = args.metrics.as_deref().map(Exporter::<WindowMetrics>::bind);
    let exporter = exporter.transpose()?;
    let cgroup = match &args.cgroup {
        Some(dir) => dir.clone(),
        None => batchwise_bpf::cgroup_mount_point()?,
    };
    let window = Window::attach(&cgroup).context(
        "cannot tell of window space (`batchwise doctor --for window` checks what is needed)",
    )?;
    let listener = Listener::bind(&args.socket)?;
    let mut output = Output::open(args.format.resolve()?, WhenUnread::GoOn, String::new())?;
    let mut apps = Apps::default();
    let mut ticks = Ticks::new(stop, EVERY, args.duration);
    loop {
        let turn = ticks.turn(Duration::MAX, |time| {
            listener.wait(&window, &mut apps, time)?;
            Ok(false)
        })?;
        if turn == Turn::Look {
            continue;
        }
        let report = Report::of(apps.read(), apps.refused);
        if let Some(exporter) = &exporter {
            exporter.update(|metrics| metrics.take(&report));
        }
        output.show(&report)?;
        if turn != Turn::Interval {
            break;
        }
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The socket at which applications connect; its file goes with it.
struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    fn bind(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let new = || socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
        let address = UnixAddr::new(path).with_context(|| format!("--socket {shown}"))?;
        if let Some(folder) = path.parent() {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o755).create(folder);
            made.with_context(|| {
                format!(
                    "cannot make {}: run as root, or give another --socket",
                    folder.display()
                )
            })?;
        }
        let probe = new().context("a socket")?;
        match connect(probe.as_raw_fd(), &address) {
            Err(Errno::ENOENT) => {}
            // of an agent that is no more
            Err(Errno::ECONNREFUSED) => {
                fs::remove_file(path).with_context(|| format!("removing {shown}"))?;
            }
            _ => anyhow::bail!(
                "another `batchwise window` listens at {shown}: stop it first, or give another --socket"
            ),
        }
        let socket = new().context("a socket")?;
        bind(socket.as_raw_fd(), &address).with_context(|| {
            format!("cannot listen at {shown}: run as root, or give another --socket")
        })?;
        // every user's applications may ask: what they get is theirs alone
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))
            .and_then(|()| Ok(listen(&socket, Backlog::new(BACKLOG)?)?))
            .with_context(|| format!("listening at {shown}"))?;
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }

    /// Serves for at most this time.
    fn wait(&self, window: &Window, apps: &mut Apps, time: Duration) -> anyhow::Result<()> {
        let fds = std::iter::once(self.socket.as_fd()).chain(apps.fds());
        let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, poll_timeout(time)) {
            Ok(0) | Err(Errno::EINTR) => return Ok(()),
            other => other.context("waiting for applications")?,
        };
        let asked: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(fds);
        apps.serve(window, &asked[1..]);
        if asked[0] {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            match accept4(self.socket.as_raw_fd(), flags) {
                // SAFETY: the kernel just gave it to us.
                Ok(fd) => apps.add(unsafe { OwnedFd::from_raw_fd(fd) })?,
                Err(Errno::EAGAIN | Errno::ECONNABORTED | Errno::EINTR) => {}
                Err(error) => tracing::warn!("an application cannot connect: {error}"),
            }
        }
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // a file that stays is no harm: the next agent removes it
        let _ = fs::remove_file(&self.path);
    }
}
