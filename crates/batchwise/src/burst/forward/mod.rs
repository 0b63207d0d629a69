//! `batchwise burst forward`: a router's queue in user space. Frames of one interface go to the other
//! through a queue that is served at a rate; frames of the other go back at once.

mod discipline;
mod engine;
pub mod packet;
mod queue;
mod report;
mod sources;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Error, anyhow};
use batchwise_bpf::burst::forward::{Forwarder, MOST_HELD};
use clap::Args;

use crate::burst::limit::{Limit, parse_limit, parse_rate};
use crate::burst::points::PointsArgs;
use crate::frame::args::{parse_duration, parse_interval};
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Format, Output};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};
use discipline::{Admit, Discipline};
use engine::{Counts, Engine};
use packet::Reader;
use queue::Queue;
pub use report::ForwardMetrics;
#[cfg(test)]
pub use report::Line;
use report::{Report, Setting};
use sources::Sources;

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise burst forward --from eth1 --to eth2 --rate 1gbit --limit 100p --admit bursts
      what arrives at eth1 waits in a queue of 100 packets and leaves by eth2 at 1 Gbit/s; what arrives at
      eth2 leaves by eth1 at once
  sudo batchwise burst forward --from eth1 --to eth2 --rate 100mbit --limit 150kb --admit off
      a queue of 150 kB that drops what finds no room, to compare with

Both interfaces belong to the forwarder: nothing that arrives there reaches this host itself. Both need
native XDP and one queue. At the far ends of veth pairs checksums must be made: `ethtool -K IF tx off`.";

/// Forward between two interfaces through a queue that is exact.
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// Whose frames wait in the queue
    #[arg(long, value_name = "IF")]
    from: String,
    /// Where they leave; what arrives here goes back at once
    #[arg(long, value_name = "IF")]
    to: String,
    /// How fast the queue is served, in bits a second of whole frames: 100mbit, 1gbit
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: u64,
    /// What the queue holds: packets (100p), or bytes (150kb)
    #[arg(long, value_name = "PACKETS|BYTES", value_parser = parse_limit)]
    limit: Limit,
    /// What finds a place in the queue
    #[arg(long, value_enum, default_value_t = Admit::Bursts)]
    admit: Admit,
    /// Take the marks off behind the queue's door: the network that knows them ends here
    #[arg(long)]
    border: bool,
    #[command(flatten)]
    code: PointsArgs,
    /// Sources that are told of in JSON, those with most bursts first
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    top: usize,
    /// Time between two reports
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Stop after this time; without it, at Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to show what is forwarded
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
}

/// No frame is shorter on a wire, and none counts for less, bytes.
const SHORTEST: u32 = 60;

/// So many packets can be in such a queue.
fn most_packets(limit: Limit) -> u32 {
    match limit {
        Limit::Packets(packets) => packets,
        Limit::Bytes(bytes) => bytes.div_ceil(SHORTEST),
    }
}

/// The forwarding thread may end by itself; that is noticed after at most this long.
const LOOK: Duration = Duration::from_millis(100);

/// Runs until the duration is over or a signal comes.
pub fn run(args: ForwardArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let exporter = args
        .metrics
        .as_deref()
        .map(Exporter::<ForwardMetrics>::bind);
    let exporter = exporter.transpose()?;
    let held = most_packets(args.limit);
    if held > MOST_HELD {
        anyhow::bail!("--limit: at most {MOST_HELD} packets, or as many of 60 bytes");
    }
    let forwarder = Forwarder::open(&args.from, &args.to, held).with_context(|| {
        let (from, to) = (&args.from, &args.to);
        format!("cannot forward from {from} to {to} (`batchwise doctor --for burst` checks what is needed)")
    })?;
    discipline::check(args.admit, args.limit, forwarder.longest).map_err(Error::msg)?;
    let mut output = Output::open(args.format.resolve()?, WhenUnread::GoOn, String::new())?;
    let veths = forwarder.veths.join(" and ");
    if !veths.is_empty() {
        output.say(&format!(
            "checksums must be made at the far ends of {veths}: `ethtool -K IF tx off` there\n"
        ))?;
    }
    let discipline = Discipline::new(args.admit, args.limit, forwarder.longest, args.rate);
    let queue = Queue::new(args.rate, held as usize);
    let counts = Arc::new(Mutex::new(Counts::default()));
    let sources = Arc::new(Mutex::new(Sources::new()));
    let end = Arc::new(AtomicBool::new(false));
    let engine = Engine::new(
        forwarder,
        queue,
        discipline,
        Reader::new(args.code.points),
        args.border,
        Arc::clone(&counts),
        Arc::clone(&sources),
    );
    let thread = std::thread::Builder::new().name("forward".into()).spawn({
        let end = Arc::clone(&end);
        move || engine.run(&end)
    });
    let thread = thread.context("starting the forwarding thread")?;
    let setting = Setting::new(&args.from, &args.to, args.admit);
    let mut report = Report::new(setting);
    let mut ticks = Ticks::new(stop, args.interval, args.duration);
    loop {
        let turn = ticks.turn(LOOK, |time| output.wait(time, None))?;
        let ended = thread.is_finished();
        if turn == Turn::Look && !ended {
            continue;
        }
        let over = ended || turn != Turn::Interval;
        let counts = counts.lock().map_or_else(|e| *e.into_inner(), |c| *c);
        let known = sources
            .lock()
            .map_or_else(|e| e.into_inner().all(), |s| s.all());
        report.update(counts, known, args.top);
        if let Some(exporter) = &exporter {
            exporter.update(|metrics| metrics.take(&report));
        }
        output.show(&report)?;
        if over {
            break;
        }
    }
    end.store(true, Ordering::Relaxed);
    let joined = thread.join();
    joined.map_err(|_| anyhow!("the forwarding thread panicked"))??;
    output.finish("")?;
    Ok(ExitCode::SUCCESS)
}
