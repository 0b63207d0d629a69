//! `batchwise profile`: where the CPU time of the network stack goes.

mod compare;
mod diff;
mod folded;
mod frames;
mod kernel;
mod owners;
mod page;
mod pprof;
mod report;
mod sampling;
mod stacks;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use batchwise_bpf::profile::{Config, Sampler};
use batchwise_bpf::traffic::Counter;
use batchwise_core::profile::Tally;
use batchwise_core::profile::report::{Line, Sampled, Traffic};
use clap::{Args, Subcommand};

use crate::frame::args::{parse_duration, parse_interval};
use crate::frame::clock::wall_clock_ns;
use crate::frame::messages::say;
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Form, Format, Output, TextTable, View};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::{WhenUnread, print};
use crate::frame::ticks::{Ticks, Turn};
#[cfg(test)]
pub use compare::Comparison;
#[cfg(test)]
pub use diff::Change;
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
    /// How long [default: 10s; with --metrics until Ctrl-C]
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to show it; text comes at the end
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
    /// Have both settings take turns on the service at --port, and tell what they cost
    #[arg(long, value_enum, value_name = "WHAT", requires = "port")]
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
/// Samples are taken out of the kernel so often.
const LOOK: Duration = Duration::from_millis(200);
/// What else goes on is counted from one look to the next, so often: hooks cost at every packet.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Runs until the duration is over or a signal comes.
pub fn run(args: ProfileArgs) -> anyhow::Result<ExitCode> {
    if let Some(Action::Diff(args)) = &args.action {
        return diff::run(args);
    }
    if args.only_some() {
        owners::have_their_own_numbers()?;
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
    let mut counter = counter();
    let mut sampling = Sampling::start(sampler, kernel::read()?, args.wants_stacks())?;
    if args.compare.is_some() {
        return compare::run(&args, form, sampling, counter);
    }
    let mut output = Output::open(form, WhenUnread::GoOn, String::new())?;
    let mut ticks = Ticks::new(stop, args.interval, args.duration());
    let (begin, mut since) = (Instant::now(), Instant::now());
    let (mut traffic, mut counted) = (None, None);
    let mut count_next = begin;
    loop {
        if let Some(counter) = &mut counter
            && Instant::now() >= count_next
        {
            counter.start()?;
            count_next += COUNT_EVERY;
        }
        let turn = ticks.turn(LOOK, |time| output.wait(time))?;
        sampling.take()?;
        if let Some(counter) = &mut counter
            && let Some(now) = counter.stop()?
        {
            counted.get_or_insert_with(Traffic::default).add(&now);
            traffic = Some(now);
        }
        if turn == Turn::Look {
            continue;
        }
        let (interval, lost) = sampling.end_interval();
        let time = since.elapsed();
        since = Instant::now();
        let mut line = args.line(&interval, time, lost, &sampling);
        line.traffic = traffic.take();
        if let Some(exporter) = &exporter {
            exporter.update(|metrics| metrics.take(&line));
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
    output.finish()?;
    let mut whole = args.line(&sampling.whole, time, sampling.lost(), &sampling);
    whole.traffic = counted;
    let whole = Shown::new(whole);
    let mut said = Ok(());
    if form != Form::Jsonl {
        let rows = TextTable::new(Shown::COLUMNS).rows(&whole.rows());
        let text = format!("{}{rows}{}", whole.notes(), whole.below());
        said = print(&text);
    }
    args.write_files(&whole, &sampling)?;
    said?;
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

    fn only_some(&self) -> bool {
        !self.sampled_ports().is_empty() || !self.pid.is_empty()
    }

    fn wants_stacks(&self) -> bool {
        self.report.is_some() || self.folded.is_some() || self.pprof.is_some()
    }

    /// `None`: until it is stopped.
    fn duration(&self) -> Option<Duration> {
        let usual = self.metrics.is_none().then_some(USUAL);
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
            pids.extend(owners::of_ports(ports)?);
        }
        Ok(sampler.set_pids(&pids)?)
    }

    /// What was asked for besides.
    fn write_files(&self, whole: &Shown, sampling: &Sampling) -> anyhow::Result<()> {
        let Some(sampled) = &sampling.stacks else {
            return Ok(());
        };
        let stacks = frames::name(sampled, &sampling.kernel);
        let write = |path: &Option<PathBuf>, bytes: &dyn Fn() -> anyhow::Result<Vec<u8>>| {
            let Some(path) = path else {
                return Ok(());
            };
            let written = fs::write(path, bytes()?);
            written.with_context(|| format!("writing {}", path.display()))
        };
        write(&self.report, &|| {
            let title = "Where the CPU time of the network stack goes";
            Ok(page::page(title, &whole.summary(), &whole.line, &stacks)?.into_bytes())
        })?;
        write(&self.folded, &|| {
            Ok((folded::lines(&stacks).join("\n") + "\n").into_bytes())
        })?;
        write(&self.pprof, &|| {
            let line = &whole.line;
            let period = Duration::from_secs(1) / line.hz;
            let time = Duration::from_nanos(line.interval_ns);
            Ok(pprof::encode(&stacks, line.ts_ns, time, period)?)
        })?;
        if sampled.left_out() > 0 {
            let left_out = sampled.left_out();
            say(&format!(
                "{left_out} samples are in no stack: there were too many different ones"
            ));
        }
        Ok(())
    }
}
