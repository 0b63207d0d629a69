//! `batchwise watch`: reads the sensor every interval and shows what it says.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::{Config, Exchange, Hints, Sensor, Units};
use batchwise_core::sense::report::{Line, Unit};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGUSR1, SIGUSR2};

use crate::agent::{PortArgs, parse_duration, stop_flag};
use crate::clock::{nanos, wall_clock_ns};
use crate::hints::{HintArgs, HintWindows};
use crate::output::exporter::Exporter;
use crate::output::{self, Format, metrics::WatchMetrics};
use crate::services::Services;

/// Estimate the latency of a service from its TCP sockets.
///
/// For measuring what it costs: SIGUSR1 detaches what counts, SIGUSR2 attaches it again; what was
/// counted before begins anew.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    ports: PortArgs,
    /// Only sockets made by processes in this cgroup v2 directory or below it
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// What is counted (may be repeated)
    #[arg(
        long = "unit",
        value_name = "UNIT",
        value_enum,
        default_value = "sends"
    )]
    #[arg(value_delimiter = ',')]
    units: Vec<UnitArg>,
    /// Time between two reports
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Stop after this time; without it, at Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// One line a connection rather than a service
    #[arg(long)]
    per_connection: bool,
    /// Exchange queue states with peers that also run batchwise, in TCP options. Covers
    /// connections that are made from now on, in --cgroup (default: the whole machine)
    #[arg(long)]
    exchange: bool,
    /// Least time between two options on a connection
    #[arg(long, default_value = "1ms", value_parser = parse_period, requires = "exchange")]
    exchange_period: Duration,
    #[command(flatten)]
    hints: HintArgs,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnitArg {
    /// Calls of send, or their like: the closest thing to requests that the kernel sees
    Sends,
    /// Bytes, as in the paper's prototype
    Bytes,
    /// Segments
    Packets,
}

impl From<UnitArg> for Unit {
    fn from(u: UnitArg) -> Self {
        match u {
            UnitArg::Sends => Self::Sends,
            UnitArg::Bytes => Self::Bytes,
            UnitArg::Packets => Self::Packets,
        }
    }
}

/// Peers look at hints at intervals of their own, and expect new ones in each.
const TELL_EVERY: Duration = Duration::from_millis(20);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < SHORTEST_INTERVAL {
        return Err("at least 10ms: every report reads all connections".to_owned());
    }
    Ok(interval)
}

pub fn parse_period(text: &str) -> Result<Duration, String> {
    let period = parse_duration(text)?;
    if period.is_zero() || period > Duration::from_secs(4) {
        return Err("between 1us and 4s".to_owned());
    }
    Ok(period)
}

/// Runs until the duration is over, the user quits, or a signal comes.
///
/// # Errors
/// The programs cannot be loaded, or the output is gone.
pub fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let units: Vec<Unit> = args.units.iter().map(|u| (*u).into()).collect();
    let config = Config {
        ports: args.ports.numbers().to_vec(),
        cgroup: args.cgroup.clone(),
        units: Units::of(&units),
    };
    let period = args.exchange_period;
    let exchange = args.exchange.then_some(Exchange { period });
    let hinting = (args.exchange && args.hints.are_wanted()).then_some(Hints);
    let pause = pause_flag()?;
    let (mut sensor, (_, advertiser)) = Sensor::open(&config, &(exchange, hinting))
        .context("cannot watch (`batchwise doctor` checks what is needed)")?;
    let mut hints = args.hints.listen(advertiser)?;
    let exporter = args.metrics.as_deref().map(Exporter::bind).transpose()?;
    let mut sink = output::open(args.format, args.ports.numbers())?;
    let mut services = Services::new(units, args.per_connection);

    // the connections that were open already start from here
    let reading = sensor.read()?;
    if let Some(hints) = &mut hints {
        hints.see(&reading.open);
    }
    services.lines(&reading, &HintWindows::default(), 0, 1);
    let start = Instant::now();
    let mut last = start;
    let end = args.duration.map(|d| start + d);
    let mut quit = false;
    while !quit {
        let mut next = last + args.interval;
        while !quit && Instant::now() < next {
            let mut wait = next.saturating_duration_since(Instant::now());
            if let Some(hints) = hints.as_mut().filter(|h| h.are_told()) {
                hints.poll()?;
                wait = wait.min(TELL_EVERY);
            }
            quit = stop.load(Ordering::Relaxed) || sink.poll_quit(wait)?;
            let paused = hold(&mut sensor, &pause, &stop)?;
            (last, next) = (last + paused, next + paused);
        }
        if quit {
            break;
        }
        let reading = sensor.read()?;
        let mut told = HintWindows::default();
        if let Some(hints) = &mut hints {
            hints.see(&reading.open);
            hints.poll()?;
            told = hints.take();
        }
        let now = Instant::now();
        let lines = services.lines(&reading, &told, wall_clock_ns(), nanos(now - last));
        last = now;
        show(&mut *sink, exporter.as_ref(), &lines)?;
        quit = end.is_some_and(|end| now >= end);
    }
    sink.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// A flag that SIGUSR1 makes 1 and SIGUSR2 makes 0.
fn pause_flag() -> anyhow::Result<Arc<AtomicUsize>> {
    let pause = Arc::new(AtomicUsize::new(0));
    for (signal, value) in [(SIGUSR1, 1), (SIGUSR2, 0)] {
        signal_hook::flag::register_usize(signal, Arc::clone(&pause), value)
            .context("catching signals")?;
    }
    Ok(pause)
}

/// Counts nothing while `pause` is 1; for how long that was.
fn hold(sensor: &mut Sensor, pause: &AtomicUsize, stop: &AtomicBool) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    if pause.load(Ordering::Relaxed) == 0 {
        return Ok(Duration::ZERO);
    }
    sensor.count(false)?;
    while pause.load(Ordering::Relaxed) == 1 && !stop.load(Ordering::Relaxed) {
        // A signal ends it; one that came just before is sent again, or waits this long.
        let _ = nix::poll::poll(&mut [], 50u8);
    }
    sensor.count(true)?;
    Ok(begin.elapsed())
}

fn show(
    sink: &mut dyn output::Sink,
    exporter: Option<&Exporter<WatchMetrics>>,
    lines: &[Line],
) -> anyhow::Result<()> {
    if let Some(exporter) = exporter {
        exporter.update(|metrics| metrics.interval(lines));
    }
    sink.interval(lines)
}
