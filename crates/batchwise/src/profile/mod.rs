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

use crate::frame::args::RunArgs;
use crate::frame::clock::wall_clock_ns;
use crate::frame::rows::Form;
use crate::frame::run::{Agent, Runner};
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
#[command(mut_arg("interval", |interval| interval.help("Time between two reports of the live view and of JSON")))]
#[command(mut_arg("duration", |duration| duration.help(
    "How long [default: 10s; with --compare 1m; with --metrics until Ctrl-C]"
)))]
#[command(mut_arg("format", |format| format.help("How to show it; text comes at the end")))]
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
    #[command(flatten)]
    run: RunArgs,
    /// Have both settings take turns on the service at --port, and tell what they cost
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        requires = "port",
        conflicts_with_all = ["report", "folded", "metrics", "interval"]
    )]
    compare: Option<compare::What>,
    /// Write a page with all of it and a flame graph
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write stacks as lines, for flame graph tools
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
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
    let form = args.run.stay.format.resolve()?;
    let files = Files::open(args.report.as_deref(), args.folded.as_deref())?;
    if args.compare.is_some() {
        let (sampling, counter) = args.sample(numbered)?;
        return compare::run(&args, form, sampling, counter);
    }
    let mut run = args.run.clone();
    run.stay.duration = args.duration();
    let runner = Runner::open(&run, form, WhenUnread::GoOn, String::new())?;
    let mut profile = Profile::begin(&args, form, numbered)?;
    let ran = runner.run(&mut profile);
    // whoever reads no text may still want the files
    let sampling = profile.sampling;
    if let (Some(whole), Some(stacks)) = (profile.shown, sampling.stacks) {
        if stacks.left_out > 0 {
            tracing::warn!(
                "{} samples are in no stack: there were too many different ones",
                stacks.left_out
            );
        }
        files.write(&whole, &frames::name(stacks, &sampling.kernel, numbered))?;
    }
    ran?;
    Ok(ExitCode::SUCCESS)
}

/// What is sampled, and what else goes on.
struct Profile<'a> {
    args: &'a ProfileArgs,
    sampling: Sampling,
    begin: Instant,
    since: Instant,
    counter: Option<Counter>,
    count_next: Instant,
    count_until: Instant,
    /// As it was counted in this interval, when it was counted last, and so far.
    traffic: Option<Traffic>,
    seen: Option<Traffic>,
    counted: Option<Traffic>,
    /// Where every interval is printed and no file is wanted nobody reads it, and it grows with each new process.
    whole: Option<Tally>,
    /// The whole at the end.
    shown: Option<Shown>,
}

impl<'a> Profile<'a> {
    fn begin(args: &'a ProfileArgs, form: Form, numbered: bool) -> anyhow::Result<Self> {
        let (sampling, counter) = args.sample(numbered)?;
        let now = Instant::now();
        let mut profile = Self {
            args,
            sampling,
            begin: now,
            since: now,
            counter,
            count_next: now,
            count_until: now,
            traffic: None,
            seen: None,
            counted: None,
            whole: (form != Form::Jsonl || args.wants_stacks()).then(Tally::default),
            shown: None,
        };
        profile.count(Turn::Look)?;
        Ok(profile)
    }

    /// Begins and ends to count what else goes on.
    fn count(&mut self, turn: Turn) -> anyhow::Result<()> {
        let Some(counter) = &mut self.counter else {
            return Ok(());
        };
        let (now, over) = (Instant::now(), turn.is_last());
        if (over || now >= self.count_until)
            && let Some(traffic) = counter.stop()?
        {
            self.counted.get_or_insert_default().add(&traffic);
            self.traffic = Some(traffic);
        }
        if !over && now >= self.count_next {
            counter.start()?;
            self.count_until = now + COUNT_FOR;
            self.count_next += COUNT_EVERY;
        }
        Ok(())
    }
}

impl Agent for Profile<'_> {
    type View = Shown;
    type Metrics = ProfileMetrics;

    fn due(&self) -> Duration {
        self.sampling.sampler().look_every()
    }

    fn look(&mut self, turn: Turn, _ticks: &mut Ticks) -> anyhow::Result<()> {
        self.sampling.take()?;
        self.count(turn)
    }

    fn close(&mut self, turn: Turn) -> anyhow::Result<Option<Shown>> {
        let (interval, lost) = self.sampling.end_interval();
        if let Some(whole) = &mut self.whole {
            whole.merge(&interval);
        }
        let time = self.since.elapsed();
        self.since = Instant::now();
        let mut line = self.args.line(&interval, time, lost, &self.sampling);
        line.traffic = self.traffic.take();
        let mut shown = Shown::new(line);
        // it is counted more seldom than it is looked at
        match &shown.traffic {
            Some(now) => self.seen = Some(now.clone()),
            None => shown.traffic.clone_from(&self.seen),
        }
        if !turn.is_last() {
            self.args.choose(self.sampling.sampler())?;
        }
        Ok(Some(shown))
    }

    fn serve(&mut self, shown: &Shown, metrics: &mut ProfileMetrics) {
        metrics.take(&shown.line);
    }

    fn end(&mut self) -> anyhow::Result<String> {
        let Some(whole) = self.whole.take() else {
            return Ok(String::new());
        };
        let (time, lost) = (self.begin.elapsed(), self.sampling.lost());
        let mut line = self.args.line(&whole, time, lost, &self.sampling);
        line.traffic = self.counted.take();
        let whole = self.shown.insert(Shown::new(line));
        Ok(whole.text())
    }
}

/// What else goes on is told where the kernel lets it be counted.
fn counter() -> Option<Counter> {
    let counter = Counter::load();
    let counter = counter.inspect_err(|error| tracing::warn!("packets are not counted: {error}"));
    counter.ok()
}

impl ProfileArgs {
    /// Begins to sample. What counts besides is loaded before.
    fn sample(&self, numbered: bool) -> anyhow::Result<(Sampling, Option<Counter>)> {
        let sampler = Sampler::load(&Config {
            hz: self.hz,
            cpus: self.cpu.clone(),
            only_pids: self.only_some(),
            cgroup: self.cgroup.clone(),
            user_stacks: self.wants_stacks(),
        })
        .context("cannot sample (`batchwise doctor --for profile` checks what is needed)")?;
        self.choose(&sampler)?;
        let (counter, kernel) = (counter(), kernel::read()?);
        let sampling = Sampling::start(sampler, kernel, numbered, self.wants_stacks())?;
        Ok((sampling, counter))
    }

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
        self.report.is_some() || self.folded.is_some()
    }

    /// `None`: until it is stopped.
    fn duration(&self) -> Option<Duration> {
        let usual = match (self.compare, &self.run.stay.metrics) {
            (Some(_), _) => Some(compare::USUAL),
            (None, Some(_)) => None,
            (None, None) => Some(USUAL),
        };
        self.run.stay.duration.or(usual)
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
}
