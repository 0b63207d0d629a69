//! `batchwise-load redis`.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use batchwise_load::units::{parse_duration, parse_rate, parse_schedule};
use batchwise_load::{
    Arrivals, Config, Interval, Mode, Phase, Rate, Report, run as run_load, write_hdr,
};
use clap::{Args, ValueEnum};

use super::{Format, Switch, human, parse_addr, write_latency, write_validity};

pub const EXAMPLES: &str = "\
Examples:
  Poisson arrivals, 100,000 SETs of 64 bytes a second, for 5 s:
    batchwise load redis --addr 10.0.0.1:6379 --rate 100k
  Load and value size that change under way, on the same connection, with an interim report
  every 100 ms; the report at the end has an entry for each phase:
    batchwise load redis --addr 10.0.0.1:6379 --progress 100ms --format json \\
      --schedule 5s:350k@64,5s:120k@4096,10s:100k..300k@64

Latencies run from when a request was due (`latency_ns`), so that waiting in the client counts,
and from its send (`latency_from_send_ns`).";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ArrivalsArg {
    /// Exponential gaps: independent users
    Poisson,
    /// Equal gaps
    Constant,
}

/// A load of SETs and GETs.
#[derive(Debug, Args)]
pub struct RedisArgs {
    /// The server's address, such as 127.0.0.1:6379
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    addr: SocketAddr,
    /// Requests a second: 2500, 100k, or a climb over the duration, 10k..300k
    #[arg(long, value_parser = parse_rate, required_unless_present_any = ["closed", "schedule"])]
    rate: Option<Rate>,
    /// Instead of --rate, --duration and --value-size: phases one after another, without
    /// reconnecting, separated by commas. Each is DURATION:RATE@VALUE_SIZE, with /GET_RATIO at its
    /// end if it differs from --get-ratio: 5s:350k@64,5s:120k@4096,10s:100k..300k@64/0.05
    #[arg(long, value_name = "PHASES", value_parser = parse_phases,
          conflicts_with_all = ["rate", "duration", "value_size", "closed"])]
    schedule: Option<Schedule>,
    /// Length of the measurement, after the warm-up
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    duration: Duration,
    /// Load before the measurement, at the initial rate
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    warmup: Duration,
    /// Bytes in a value
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    value_size: usize,
    /// Share of GETs, 0 to 1; the rest are SETs
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    get_ratio: f64,
    /// TCP connections, used round robin
    #[arg(long, default_value_t = 1, value_name = "N")]
    connections: usize,
    /// TCP_NODELAY on this end's sockets; off lets Nagle's algorithm batch requests
    #[arg(long, value_enum, default_value = "on")]
    nodelay: Switch,
    /// How requests are spaced
    #[arg(long, value_enum, default_value = "poisson")]
    arrivals: ArrivalsArg,
    /// Different keys; all are set before the load
    #[arg(long, default_value_t = 1000, value_name = "N")]
    keys: u32,
    /// Repeats the schedule and the mix of another run; random if left out
    #[arg(long)]
    seed: Option<u64>,
    /// Work of the client on each response (the CPU spins), the paper's c; the response counts
    /// as received at the end of it
    #[arg(long, default_value = "0ns", value_name = "DURATION", value_parser = parse_duration)]
    busy_per_response: Duration,
    /// Run the generator on this CPU; it needs one of its own
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Closed loop: a response triggers the next request
    #[arg(long, conflicts_with_all = ["rate", "arrivals"])]
    closed: bool,
    /// Requests in flight on each connection of a closed loop
    #[arg(long, default_value_t = 1, value_name = "N", requires = "closed")]
    pipeline: usize,
    /// Also report every so often in between
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    progress: Option<Duration>,
    /// Write the latency histogram: percentiles if the name ends in .hgrm, else an interval log
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// What `--schedule` holds; a type of its own, since clap takes a vector for a repeated option.
#[derive(Clone, Debug)]
struct Schedule(Vec<Phase>);

fn parse_phases(text: &str) -> Result<Schedule, String> {
    parse_schedule(text).map(Schedule)
}

/// Runs the load and prints its report.
pub fn run(args: &RedisArgs) -> anyhow::Result<()> {
    let config = args.config();
    let format = args.format;
    let outcome = run_load(&config, |interval| print_interval(format, interval))?;
    if let Some(path) = &args.hdr {
        write_hdr(path, &outcome)?;
    }
    print_report(format, &outcome.report).context("cannot write the report")
}

impl RedisArgs {
    fn config(&self) -> Config {
        let phases = self.schedule.as_ref().map_or(&[][..], |s| &s.0);
        let mode = match self.rate.or(phases.first().map(|phase| phase.rate)) {
            Some(rate) => Mode::Open {
                rate,
                arrivals: match self.arrivals {
                    ArrivalsArg::Poisson => Arrivals::Poisson,
                    ArrivalsArg::Constant => Arrivals::Constant,
                },
            },
            None => Mode::Closed {
                pipeline: self.pipeline,
            },
        };
        Config {
            addr: self.addr,
            mode,
            duration: self.duration,
            warmup: self.warmup,
            value_size: self.value_size,
            get_ratio: self.get_ratio,
            phases: phases.to_vec(),
            connections: self.connections,
            nodelay: matches!(self.nodelay, Switch::On),
            keys: self.keys,
            seed: self.seed.unwrap_or_else(batchwise_load::random_seed),
            busy_per_response: self.busy_per_response,
            cpu: self.cpu,
            progress: self.progress,
        }
    }
}

fn print_interval(format: Format, interval: &Interval) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Json => {
            serde_json::to_writer(&mut out, interval)?;
            writeln!(out)?;
        }
        Format::Text => writeln!(
            out,
            "{:>9.0} offered/s {:>9.0} achieved/s   mean {:>10}   p50 {:>10}   p99 {:>10}",
            interval.offered_rps,
            interval.achieved_rps,
            human(interval.mean_ns),
            human(interval.p50_ns),
            human(interval.p99_ns),
        )?,
    }
    out.flush()
}

fn print_report(format: Format, report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Json => {
            serde_json::to_writer(&mut out, report)?;
            writeln!(out)?;
        }
        Format::Text => write_text(&mut out, report)?,
    }
    out.flush()
}

fn write_text(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let nagle = if report.nodelay {
        "TCP_NODELAY"
    } else {
        "Nagle"
    };
    write!(out, "{} connection(s) with {nagle}, ", report.connections)?;
    if report.phases.is_empty() {
        let (size, share) = (report.value_size, report.get_ratio * 100.0);
        write!(out, "{size} B values, {share:.0} % GET, ")?;
    }
    writeln!(out, "seed {}", report.seed)?;
    for (number, phase) in (1..).zip(&report.phases) {
        writeln!(
            out,
            "phase {number}: {:>6} B values, {:.0} % GET, offered {:.0}/s, achieved {:.0}/s, {} \
             errors; latency since intended mean {}  p99 {}",
            phase.value_size,
            phase.get_ratio * 100.0,
            phase.offered_rps,
            phase.achieved_rps,
            phase.errors,
            human(phase.latency_ns.mean),
            human(phase.latency_ns.p99),
        )?;
    }
    writeln!(
        out,
        "offered {:.0}/s, achieved {:.0}/s; {} requests, {} errors",
        report.offered_rps, report.achieved_rps, report.requests, report.errors
    )?;
    if !report.closed {
        write_latency(out, "latency since intended", &report.latency_ns)?;
    }
    write_latency(out, "latency since send", &report.latency_from_send_ns)?;
    if !report.closed {
        writeln!(
            out,
            "{:<24} mean {:>9}  p50 {:>9}  {:>14}  p99 {:>9}  {:>15}  max {:>9}",
            "lateness of sends",
            human(report.lateness_ns.mean),
            human(report.lateness_ns.p50),
            "",
            human(report.lateness_ns.p99),
            "",
            human(report.lateness_ns.max)
        )?;
    }
    writeln!(
        out,
        "{} requests met back-pressure; the generator was preempted {} times for {} in all",
        report.backpressure,
        report.preemptions,
        human(report.cpu_wait_ns)
    )?;
    write_validity(out, report.valid, &report.why_invalid)
}
