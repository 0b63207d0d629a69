//! `batchwise watch`: reads the sensor every interval and shows what it says.

mod counting;
pub mod metrics;
mod parts;
mod rows;
#[cfg(test)]
mod samples;
mod services;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::{Config, Exchange, Hints, Sensor, Units};
use batchwise_core::sense::report::Unit;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use signal_hook::consts::{SIGUSR1, SIGUSR2};

use crate::frame::args::{
    Cost, PortArgs, parse_cost, parse_duration, parse_exchange_period, parse_interval,
};
use crate::frame::clock::wall_clock_ns;
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Format, Output, waiting};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn, sleep};
use crate::hints::{HintArgs, HintWindows};
use counting::Counting;
use metrics::WatchMetrics;
use rows::Interval;
use services::{Services, Span};

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise watch --port 6379
      live on a terminal, a table when the output is piped
  sudo batchwise watch --port 6379 --interval 1s --duration 10s --format jsonl
      ten lines of JSON for each service
  sudo batchwise watch --port 6379 --metrics 127.0.0.1:9464
      for Prometheus as well
  sudo batchwise watch --port 6379 --hints
      with the latency that clients which link batchwise-hint see themselves

An estimate says how it was made (`estimator`) and how far to trust it (`confidence`, 0 to 1).
What is not known is shown as –, and is null in JSON.";

/// Estimate the latency of a service from its TCP sockets.
///
/// For measuring what it costs: SIGUSR1 detaches what counts, SIGUSR2 lets it go on.
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
        value_parser = units(),
        default_value = "sends"
    )]
    #[arg(value_delimiter = ',')]
    units: Vec<Unit>,
    /// What sensing may cost, as a share of one CPU; `off`: count everything. Above the load at which
    /// counting everything stays inside it, requests are counted in windows at random times
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = parse_cost)]
    cost: Cost,
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
    #[arg(long, default_value = "1ms", value_parser = parse_exchange_period, requires = "exchange")]
    exchange_period: Duration,
    #[command(flatten)]
    hints: HintArgs,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
}

fn units() -> impl TypedValueParser<Value = Unit> {
    let unit = |name, help| PossibleValue::new(name).help(help);
    PossibleValuesParser::new([
        unit(
            "sends",
            "Calls of send, or their like: the closest thing to requests that the kernel sees",
        ),
        unit("bytes", "Bytes, as in the paper's prototype"),
        unit("packets", "Segments"),
    ])
    .try_map(|name| serde_json::from_value(name.into()))
}

/// Added to the niceness: 19 is the most that there is.
const LOWEST_PRIORITY: i32 = 19;

/// Runs until the duration is over, the user quits, or a signal comes.
pub fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let form = args.format.resolve()?;
    let config = Config {
        ports: args.ports.numbers.clone(),
        cgroup: args.cgroup.clone(),
        units: Units::of(&args.units),
        tails: true,
        brief: true,
    };
    let period = args.exchange_period;
    let exchange = args.exchange.then_some(Exchange { period });
    let hinting = (args.exchange && args.hints.are_wanted()).then_some(Hints);
    let pause = pause_flag()?;
    let (mut sensor, (_, advertiser)) = Sensor::open(&config, &(exchange, hinting))
        .context("cannot watch (`batchwise doctor` checks what is needed)")?;
    let mut hints = args.hints.listen(advertiser)?;
    if let Some(hints) = &mut hints {
        hints.see(&sensor.read()?.open);
    }
    let exporter = args
        .metrics
        .as_deref()
        .map(Exporter::<WatchMetrics>::bind)
        .transpose()?;
    let when_unread = WhenUnread::serving(exporter.is_some());
    let mut output = Output::open(form, when_unread, waiting(&args.ports.numbers))?;
    let mut services = Services::new(args.units, args.per_connection);
    let mut counting = Counting::begin(sensor, args.cost.0, args.interval)?;
    // prices are found; from now on whoever serves requests goes first, lest a window's beginning delay
    // those that it counts
    rustix::process::nice(LOWEST_PRIORITY).context("lowering the priority")?;

    let doorbell = args.exchange.then(|| counting.doorbell()).transpose()?;
    let mut ticks = Ticks::new(Arc::clone(&stop), args.interval, args.duration);
    loop {
        let hints_due = hints.as_ref().map(|hints| hints.due());
        let look_every = counting.due().min(hints_due.unwrap_or(Duration::MAX));
        let turn = ticks.turn(look_every, |time| {
            output.wait(time, doorbell.as_ref().map(AsFd::as_fd))
        })?;
        if pause.load(Ordering::Relaxed) == 1 {
            let counted = counting.pause()?;
            counted.iter().for_each(|counted| services.take(counted));
            let paused = hold(&mut counting, &mut ticks, exporter.as_ref(), &pause, &stop)?;
            ticks.delay(paused);
            services.skip(paused);
            continue;
        }
        let ended = counting.step()?;
        ended.iter().for_each(|counted| services.take(counted));
        match turn {
            Turn::Stopped => break,
            Turn::Look => {
                if let Some(hints) = hints.as_mut().filter(|hints| hints.due().is_zero()) {
                    hints.poll()?;
                }
                continue;
            }
            Turn::Interval | Turn::End => {}
        }
        let so_far = counting.look()?;
        so_far.iter().for_each(|counted| services.take(counted));
        // an interval without a window goes on until there was one
        if !services.is_empty() {
            let hinted = match &mut hints {
                Some(hints) => hints.read(&services.open())?,
                None => HintWindows::default(),
            };
            let span = Span {
                ts_ns: wall_clock_ns(),
                cost: counting.cost()?,
            };
            let latencies = counting.tails()?;
            let lines = services.lines(&hinted, &latencies, &span);
            if let Some(exporter) = &exporter {
                exporter.update(|metrics| metrics.interval(&lines, &latencies));
            }
            output.show(&Interval(lines))?;
        } else if let Some(exporter) = &exporter {
            // the heartbeat
            exporter.update(|_| ());
        }
        if turn == Turn::End {
            break;
        }
    }
    output.finish("")?;
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

/// Counts nothing any more while `pause` is 1; for how long that was.
fn hold(
    counting: &mut Counting,
    ticks: &mut Ticks,
    exporter: Option<&Exporter<WatchMetrics>>,
    pause: &AtomicUsize,
    stop: &AtomicBool,
) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    while pause.load(Ordering::Relaxed) == 1 && !stop.load(Ordering::Relaxed) {
        ticks.alive();
        if let Some(exporter) = exporter {
            exporter.update(|_| ());
        }
        // a signal that came just before is noticed after this time
        sleep(Duration::from_millis(50))?;
    }
    counting.resume()?;
    Ok(begin.elapsed())
}
