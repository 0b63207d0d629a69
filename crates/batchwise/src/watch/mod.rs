//! `batchwise watch`: reads the sensor every interval and shows what it says.

mod both;
mod counting;
mod diagnosis;
mod drops;
mod kube;
pub mod metrics;
mod names;
pub mod parts;
mod record;
mod rows;
#[cfg(test)]
pub mod samples;
mod services;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_bpf::{self as bpf, Config, Exchange, Sensor, Units};
use batchwise_core::sense::report::Unit;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use signal_hook::consts::{SIGUSR1, SIGUSR2};

use crate::frame::args::{
    ALL_PORTS, Cost, Ports, RunArgs, names_of, parse_cost, parse_exchange_period, parse_ports,
};
use crate::frame::clock::wall_clock_ns;
use crate::frame::rows::{Form, waiting};
use crate::frame::run::{Agent, Runner};
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};
use crate::hints::{HintArgs, HintWindows, Hints};
use crate::unseen::Unseen;
use counting::{Counted, Counting, Histograms};
use drops::Drops;
use kube::{KUBELET, Kube};
use metrics::WatchMetrics;
use names::{Names, find_unit};
use record::Recorder;
use rows::Interval;
use services::{Peers, Services, Span};

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise watch
      all services of the machine: live on a terminal, a table when the output is piped
  sudo batchwise watch --port 6379,7000-7010
      only those
  sudo batchwise watch --port 6379 --interval 1s --duration 10s --format jsonl
      ten lines of JSON for each service
  sudo batchwise watch --port 6379 --metrics 127.0.0.1:9464
      for Prometheus as well
  sudo batchwise watch --record incident.jsonl.gz --duration 10m
      for `batchwise report`, which makes a page of it
  sudo batchwise watch --port 6379 --hints
      with the latency that clients which link batchwise-hint see themselves

An estimate says how it was made (`estimator`) and how far to trust it (`confidence`, 0 to 1).
What is not known is shown as –, and is null in JSON.";

/// Estimate the latency of a service from its TCP sockets.
///
/// For measuring what it costs: SIGUSR1 detaches what counts, SIGUSR2 lets it go on.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Only services at these ports: local at servers, remote at clients (may be repeated)
    #[arg(long = "port", value_name = "PORT[-PORT]", value_delimiter = ',', value_parser = parse_ports)]
    ports: Vec<Ports>,
    /// Only services of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Only services of this systemd unit
    #[arg(long, value_name = "NAME", conflicts_with = "cgroup")]
    unit: Option<String>,
    /// Only sockets made by processes in this cgroup v2 directory or below it
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Keep all lines in this file, compressed (.jsonl.gz): `batchwise report` makes a page of it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Do not find out whose services are: lines and labels have no process, unit, container or pod
    #[arg(long, conflicts_with = "pid")]
    no_names: bool,
    /// Ask the kubelet of this node what pods, namespaces and workloads are called
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = KUBELET, conflicts_with = "no_names")]
    kube: Option<String>,
    /// What is counted (may be repeated)
    #[arg(
        long = "count",
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
    #[command(flatten)]
    run: RunArgs,
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
    let stay = &args.run.stay;
    let form = stay.format.resolve()?;
    let mut hints = args.hints.listen()?;
    let when_unread = WhenUnread::serving(stay.metrics.is_some());
    let cgroup = match &args.unit {
        Some(unit) => Some(find_unit(unit)?),
        None => args.cgroup,
    };
    let kube = args.kube.as_deref().map(Kube::start).transpose()?;
    let recorder = args.record.as_deref().map(Recorder::create).transpose()?;
    let mut ports = args.ports;
    let runner = Runner::open(&args.run, form, when_unread, waiting(&names_of(&ports)))?;
    let unseen = Unseen::on(&ports);
    if ports.is_empty() {
        ports.push(ALL_PORTS);
    }
    let config = Config {
        ports,
        cgroup,
        units: Units::of(&args.units),
        tails: true,
        brief: true,
    };
    let period = args.exchange_period;
    let exchange = args.exchange.then_some(Exchange { period });
    let hinting = (args.exchange && hints.is_some()).then_some(bpf::Hints);
    let pause = pause_flag()?;
    let naming = bpf::Naming::here().filter(|_| !args.no_names);
    if naming.is_none() && args.pid.is_some() {
        bail!(
            "--pid needs the machine's PID namespace, which knows all processes: run there (--pid=host)"
        );
    }
    let (mut sensor, (walker, (_, advertiser))) =
        Sensor::open(&config, &(naming, (exchange, hinting)))
            .context("cannot watch (`batchwise doctor` checks what is needed)")?;
    if let (Some(hints), Some(advertiser)) = (&mut hints, advertiser) {
        hints.advertise(advertiser);
        hints.see(&sensor.read()?.open);
    }
    let counting = Counting::begin(sensor, args.cost.0, args.run.interval)?;
    // prices are found; from now on whoever serves requests goes first, lest a window's beginning delay
    // those that it counts
    rustix::process::nice(LOWEST_PRIORITY).context("lowering the priority")?;
    runner.run(&mut Watch {
        doorbell: args.exchange.then(|| counting.doorbell()).transpose()?,
        counting,
        services: Services::new(args.units, args.per_connection),
        names: walker.map(|walker| Names::new(walker, args.pid, kube)),
        drops: Drops::default(),
        unseen,
        hints,
        is_live: form == Form::Live,
        recorder,
        histograms: Histograms::new(),
        pause,
        paused: None,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What is watched.
struct Watch {
    counting: Counting,
    services: Services,
    /// None: processes cannot be told here.
    names: Option<Names>,
    drops: Drops,
    unseen: Unseen,
    hints: Option<Hints>,
    /// Rings when a peer's window begins.
    doorbell: Option<OwnedFd>,
    recorder: Option<Recorder>,
    /// Somebody may open a service, to see its connections.
    is_live: bool,
    /// Of the last interval.
    histograms: Histograms,
    /// 1: nothing is to be counted, …
    pause: Arc<AtomicUsize>,
    /// … which is so since then, when so much of the interval was left.
    paused: Option<(Instant, Duration)>,
}

impl Watch {
    fn take(&mut self, counted: Option<Counted>) {
        counted
            .iter()
            .for_each(|counted| self.services.take(counted));
    }

    /// Counts nothing any more, or goes on, when that is asked for.
    fn follow_pause(&mut self, ticks: &mut Ticks) -> anyhow::Result<()> {
        match self.paused {
            None => {
                self.paused = Some((Instant::now(), ticks.left()));
                let counted = self.counting.pause()?;
                self.take(counted);
            }
            Some((since, left)) => {
                self.paused = None;
                self.counting.resume()?;
                self.services.skip(since.elapsed());
                ticks.set_next(Instant::now() + left);
            }
        }
        Ok(())
    }

    /// Whether a signal has come that is not obeyed yet.
    fn is_called(&self) -> bool {
        (self.pause.load(Ordering::Relaxed) == 1) != self.paused.is_some()
    }
}

impl Agent for Watch {
    type View = Interval;
    type Metrics = WatchMetrics;

    fn due(&self) -> Duration {
        if self.is_called() {
            return Duration::ZERO;
        }
        if self.paused.is_some() {
            return Duration::MAX;
        }
        let hints = self.hints.as_ref().map_or(Duration::MAX, Hints::due);
        self.counting.due().min(hints)
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        let doorbell = self.doorbell.as_ref().map(AsFd::as_fd);
        doorbell.filter(|_| self.paused.is_none())
    }

    fn look(&mut self, turn: Turn, ticks: &mut Ticks) -> anyhow::Result<()> {
        if turn == Turn::Look && self.is_called() {
            self.follow_pause(ticks)?;
        }
        if self.paused.is_some() {
            return Ok(());
        }
        let ended = self.counting.step()?;
        self.take(ended);
        match self.hints.as_mut().filter(|hints| hints.due().is_zero()) {
            Some(hints) if turn == Turn::Look => hints.poll(),
            _ => Ok(()),
        }
    }

    fn close(&mut self, turn: Turn) -> anyhow::Result<Option<Interval>> {
        if turn == Turn::Stopped || self.paused.is_some() {
            return Ok(None);
        }
        let so_far = self.counting.look()?;
        self.take(so_far);
        // an interval without a window goes on until there was one
        if self.services.is_empty() {
            return Ok(None);
        }
        let hinted = match &mut self.hints {
            Some(hints) => {
                let open: Vec<_> = self.services.open().cloned().collect();
                hints.read(&open)?
            }
            None => HintWindows::default(),
        };
        let span = Span {
            ts_ns: wall_clock_ns(),
            cost: self.counting.cost()?,
        };
        let latencies = self.counting.tails()?;
        let (ports, bypassed) = self.services.met();
        self.unseen.look(&ports, &bypassed, self.counting.sensor());
        let lines;
        // these take milliseconds: all counters have been read
        if let Some(names) = &mut self.names {
            names.learn(&self.services.keys(), self.services.open())?;
        }
        self.drops.look(self.counting.sensor())?;
        let (names, drops) = (self.names.as_ref(), &self.drops);
        (lines, self.histograms) = self
            .services
            .lines(&hinted, &latencies, names, drops, &span);
        let peers = match self.is_live {
            true => self.services.peers(),
            false => Peers::new(),
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.take(lines.iter());
        }
        Ok(Some(Interval::new(lines, peers, &self.unseen.notes)))
    }

    fn serve(&mut self, interval: &Interval, metrics: &mut WatchMetrics) {
        metrics.interval(interval.lines(), &self.histograms);
    }
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
