//! `batchwise burst admit`: has a router's queue take bursts whole, or not at all.

use std::process::ExitCode;

use anyhow::{Context, Error, bail};
use batchwise_bpf::burst::{Admitter, Bottleneck, Leave};
use clap::Args;

use super::kernel::Kernel;
use super::limit::{Limit, parse_limit, parse_rate};
use super::metrics::BurstMetrics;
use super::points::PointsArgs;
use super::report::{AdmitLine, AdmitReport, SourceLine};
use crate::frame::args::RunArgs;
use crate::frame::clock::wall_clock_ns;
use crate::frame::run::Runner;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::Turn;

/// Admit marked bursts to this router's queue whole, or not at all
#[derive(Debug, Args)]
pub struct AdmitArgs {
    /// Where packets leave the router: it must have one queue, first in, first out, or get one by --own-queue
    #[arg(long, value_name = "IF")]
    interface: String,
    /// Give the interface a queue of our own while the agent runs (Linux 6.16 with CONFIG_NET_SCH_BPF)
    #[arg(long, conflicts_with = "border")]
    own_queue: bool,
    /// What the queue takes, in bytes or packets as it is limited itself [default: its own limit]
    #[arg(long, value_name = "BYTES|PACKETS", value_parser = parse_limit)]
    limit: Option<Limit>,
    /// How fast it empties, bits a second; a queue of our own does by that [default: what tbf says, or the link's
    /// speed]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Take the marks off behind the queue's door: the network that knows them ends here
    #[arg(long)]
    border: bool,
    #[command(flatten)]
    code: PointsArgs,
    /// Sources that are shown, those with most bursts first
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: AdmitArgs) -> anyhow::Result<ExitCode> {
    let form = args.run.stay.format.resolve()?;
    let name = &args.interface;
    let waiting = format!("waiting for marked packets that leave by {name}…");
    let runner = Runner::open(&args.run, form, WhenUnread::GoOn, waiting)?;
    let kernel = Kernel::open(name)?;
    let queue = || {
        let found = kernel.look()?;
        let queue = if args.own_queue {
            found.own_queue(args.limit, args.rate)
        } else {
            found.queue(args.limit, args.rate)
        };
        anyhow::Ok((queue.map_err(Error::msg)?, found))
    };
    let (at_start, _) = queue()?;
    let bottleneck = Bottleneck {
        limit: at_start.bytes(),
        rate: at_start.rate,
        packet_bytes: match at_start.limit {
            Limit::Bytes(_) => None,
            Limit::Packets(_) => Some(at_start.longest),
        },
        points: args.code.points,
        border: args.border,
    };
    let admitter = if args.own_queue {
        let leave = args.rate.map_or(Leave::Freely, |_| Leave::Paced);
        Admitter::register(&bottleneck, leave)
    } else {
        Admitter::attach(name, &bottleneck)
    };
    let admitter = admitter.with_context(|| {
        format!("cannot admit at {name} (`batchwise doctor --for burst` checks what is needed)")
    })?;
    let kind = admitter.kind().to_owned();
    // goes before what it is made of
    let _own = args.own_queue.then(|| kernel.put(&kind)).transpose()?;
    let root = kernel.look()?.root().map_err(Error::msg)?.clone();
    let close = |_: Turn| {
        if !admitter.is_attached() {
            bail!("{name} is gone, or another agent has taken it over");
        }
        let (now, found) = queue()?;
        let root_now = found.root().map_err(Error::msg)?;
        if now != at_start || (&root_now.kind, root_now.handle) != (&root.kind, root.handle) {
            bail!("the queue of {name} was changed: start again");
        }
        let (counts, sources) = admitter.read()?;
        let ts_ns = wall_clock_ns();
        let line = AdmitLine {
            ts_ns,
            interface: name.clone(),
            limit_bytes: at_start.bytes().into(),
            rate_bits_per_s: at_start.rate,
            queue_bytes: root_now.backlog.into(),
            queue_packets: root_now.packets.into(),
            queue_highest_bytes: admitter.take_highest()?.into(),
            queue_drops: if args.own_queue {
                admitter.starved()?
            } else {
                root_now.drops.wrapping_sub(root.drops).into()
            },
            counts,
        };
        let sources = SourceLine::most(ts_ns, name, sources, args.top);
        Ok(Some(AdmitReport { line, sources }))
    };
    runner.run_intervals(close, |report, metrics: &mut BurstMetrics| {
        metrics.admit = Some(report.line.clone());
    })?;
    Ok(ExitCode::SUCCESS)
}
