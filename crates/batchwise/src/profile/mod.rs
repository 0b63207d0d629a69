//! `batchwise profile`: where the CPU time of the network stack goes.

mod compare;
mod diff;
mod files;
mod flames;
mod folded;
mod frames;
mod kernel;
mod owners;
mod page;
mod pprof;
mod report;
mod sampling;
mod stacks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use batchwise_bpf::features::in_machines_pids;
use batchwise_bpf::profile::{Config, Sampler};
use batchwise_bpf::traffic::Counter;
use batchwise_core::profile::Tally;
use batchwise_core::profile::report::{Line, Only, Sampled, Traffic};
use clap::{Args, Subcommand};

use crate::frame::args::{parse_duration, parse_interval};
use crate::frame::clock::wall_clock_ns;
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Form, Format, Output, TextTable, View};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};
#[cfg(test)]
pub use compare::Comparison;
#[cfg(test)]
pub use diff::Change;
use files::Files;
use owners::Owners;
pub use report::ProfileMetrics;
use report::Shown;
use sampling::Sampling;

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise profile
      ten seconds of the whole machine: which component of the network stack takes how much
  sudo batchwise profile --port 6379 --duration 1m
      the processes that have sockets at this port, and the softirqs that they are interrupted for
  sudo batchwise profile --compare nagle --port 6379 --duration 1m
      what Nagle's algorithm saves this service, component by component
  sudo batchwise profile --report profile.html
      and a page with a flame graph
  batchwise profile diff before.jsonl after.jsonl
      what changed between two profiles that --format jsonl wrote
  sudo batchwise profile --format jsonl --metrics 127.0.0.1:9468
      a line of JSON each second, and the same for Prometheus, until Ctrl-C";

/// Say where the CPU time of the network stack goes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProfileArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only processes with sockets at this local or remote port (may be repeated)
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Vec<u16>,
    /// Only this process (may be repeated)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// Only processes in this cgroup v2 directory or below it
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Only this CPU (may be repeated)
    #[arg(long, value_name = "CPU")]
    cpu: Vec<u32>,
    /// Samples a second and CPU
    #[arg(long, default_value_t = 997, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hz: u32,
    /// Time between two reports of the live view and of JSON
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// How long [default: 10s; with --compare 1m; with --metrics until Ctrl-C]
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to show it; text comes at the end
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
    /// Have both settings take turns on the service at --port, and tell what they cost
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        requires = "port",
        conflicts_with_all = ["report", "folded", "pprof", "metrics", "interval"]
    )]
    compare: Option<compare::What>,
    /// Write a page with all of it and a flame graph
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write stacks as lines, for flame graph tools
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Write stacks for pprof
    #[arg(long, value_name = "FILE.pb.gz")]
    pprof: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    Diff(diff::DiffArgs),
}

const USUAL: Duration = Duration::from_secs(10);
/// What else goes on is counted for so long …
const COUNT_FOR: Duration = Duration::from_millis(200);
/// … so often: hooks cost at every packet.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Runs until the duration is over or a signal comes.
pub fn run(args: ProfileArgs) -> anyhow::Result<ExitCode> {
    if let Some(Action::Diff(args)) = &args.action {
        return diff::run(args);
    }
    // else processes have other numbers here than samples have
    let numbered = in_machines_pids().context("looking at the PID namespace")?;
    if args.only_some() {
        ensure!(
            numbered,
            "--pid and --port need the machine's PID namespace: in this one processes have other numbers. Start the \
             container with --pid=host (Kubernetes: hostPID: true), or sample the whole machine or a --cgroup"
        );
        owners::are_processes(&args.pid)?;
    } else if !numbered {
        tracing::warn!(
            "processes have other numbers in this PID namespace: they are called as their threads, and functions of user \
             space have no names. A container has both with --pid=host (Kubernetes: hostPID: true)"
        );
    }
    let ports = args.sampled_ports();
    if !ports.is_empty() {
        Owners::of(ports)?.are_there(ports)?;
    }
    let stop = stop_flag()?;
    let exporter = args
        .metrics
        .as_deref()
        .map(Exporter::<ProfileMetrics>::bind);
    let exporter = exporter.transpose()?;
    let form = args.format.resolve()?;
    let sampler = Sampler::load(&Config {
        hz: args.hz,
        cpus: args.cpu.clone(),
        only_pids: args.only_some(),
        cgroup: args.cgroup.clone(),
        user_stacks: args.wants_stacks(),
    })
    .context("cannot sample (`batchwise doctor --for profile` checks what is needed)")?;
    args.choose(&sampler)?;
    let files = args.open_files()?;
    let mut counter = counter();
    let mut sampling = Sampling::start(sampler, kernel::read()?, numbered, args.wants_stacks())?;
    if args.compare.is_some() {
        return compare::run(&args, form, sampling, counter);
    }
    let mut output = Output::open(form, WhenUnread::GoOn, String::new())?;
    let mut ticks = Ticks::new(stop, args.interval, args.duration());
    let (begin, mut since) = (Instant::now(), Instant::now());
    let (mut traffic, mut seen, mut counted) = (None, None, None);
    let (mut count_next, mut count_until) = (begin, begin);
    // where every interval is printed and no file is wanted nobody reads the whole, which grows with each new process
    let mut whole = (form != Form::Jsonl || args.wants_stacks()).then(Tally::default);
    let look = sampling.sampler().look_every();
    loop {
        if let Some(counter) = &mut counter
            && Instant::now() >= count_next
        {
            counter.start()?;
            count_until = Instant::now() + COUNT_FOR;
            count_next += COUNT_EVERY;
        }
        let turn = ticks.turn(look, |time| output.wait(time, None))?;
        sampling.take()?;
        if let Some(counter) = &mut counter
            && (turn != Turn::Look || Instant::now() >= count_until)
            && let Some(now) = counter.stop()?
        {
            counted.get_or_insert_with(Traffic::default).add(&now);
            traffic = Some(now);
        }
        if turn == Turn::Look {
            continue;
        }
        let (interval, lost) = sampling.end_interval();
        if let Some(whole) = &mut whole {
            whole.merge(&interval);
        }
        let time = since.elapsed();
        since = Instant::now();
        let mut line = args.line(&interval, time, lost, &sampling);
        line.traffic = traffic.take();
        if let Some(exporter) = &exporter {
            exporter.update(|metrics| metrics.take(&line));
        }
        // it is counted more seldom than it is looked at
        match &line.traffic {
            Some(now) => seen = Some(now.clone()),
            None if form == Form::Live => line.traffic.clone_from(&seen),
            None => {}
        }
        if form != Form::Text {
            output.show(&Shown::new(line))?;
        }
        if turn != Turn::Interval {
            break;
        }
        args.choose(sampling.sampler())?;
    }
    let time = begin.elapsed();
    let Some(whole) = whole else {
        output.finish("")?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut whole = args.line(&whole, time, sampling.lost(), &sampling);
    whole.traffic = counted;
    let whole = Shown::new(whole);
    // whoever reads no text may still want the files
    let rows = TextTable::new(Shown::COLUMNS).rows(&whole.rows());
    let printed = output.finish(&format!("{}{rows}{}", whole.notes(), whole.below()));
    if let Some(stacks) = sampling.stacks.take() {
        let left_out: u64 = stacks.left_out.values().sum();
        if left_out > 0 {
            tracing::warn!(
                "{left_out} samples are in no stack: there were too many different ones"
            );
        }
        files.write(&whole, &frames::name(stacks, &sampling.kernel, numbered))?;
    }
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// What else goes on is told where the kernel lets it be counted.
fn counter() -> Option<Counter> {
    let counter = Counter::load();
    let counter = counter.inspect_err(|error| tracing::warn!("packets are not counted: {error}"));
    counter.ok()
}

impl ProfileArgs {
    /// What was counted in this time.
    fn line(&self, tally: &Tally, time: Duration, lost: u64, sampling: &Sampling) -> Line {
        let sampled = Sampled {
            ts_ns: wall_clock_ns(),
            interval_ns: time.as_nanos() as u64,
            clock: sampling.sampler().clock(),
            hz: self.hz,
            only: self.only(),
            cpus: sampling.sampler().cpus(),
            lost,
        };
        Line::of(tally, sampled)
    }

    /// Whose processes are sampled. In a comparison ports say what is switched, and all is sampled.
    fn sampled_ports(&self) -> &[u16] {
        match self.compare {
            None => &self.port,
            Some(_) => &[],
        }
    }

    fn only(&self) -> Only {
        Only {
            ports: self.sampled_ports().to_vec(),
            pids: self.pid.clone(),
            cgroup: self.cgroup.as_ref().map(|dir| dir.display().to_string()),
            cpus: self.cpu.clone(),
        }
    }

    fn only_some(&self) -> bool {
        !self.sampled_ports().is_empty() || !self.pid.is_empty()
    }

    fn wants_stacks(&self) -> bool {
        self.report.is_some() || self.folded.is_some() || self.pprof.is_some()
    }

    /// `None`: until it is stopped.
    fn duration(&self) -> Option<Duration> {
        let usual = match (self.compare, &self.metrics) {
            (Some(_), _) => Some(compare::USUAL),
            (None, Some(_)) => None,
            (None, None) => Some(USUAL),
        };
        self.duration.or(usual)
    }

    /// Says which processes are sampled: those that have a port change.
    fn choose(&self, sampler: &Sampler) -> anyhow::Result<()> {
        if !self.only_some() {
            return Ok(());
        }
        let mut pids = self.pid.clone();
        let ports = self.sampled_ports();
        if !ports.is_empty() {
            pids.extend(Owners::of(ports)?.pids);
        }
        Ok(sampler.set_pids(&pids)?)
    }

    /// The files that are written besides.
    fn open_files(&self) -> anyhow::Result<Files> {
        let Self {
            report,
            folded,
            pprof,
            ..
        } = self;
        Files::open(report.as_deref(), folded.as_deref(), pprof.as_deref())
    }
}
