//! `batchwise burst mark`: says in packets how much of a burst is left, or takes that off at the border.

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use batchwise_bpf::burst::{Marker, Marking};
use batchwise_core::burst::mark::CLASSES;
use clap::Args;

use super::kernel::Kernel;
use super::metrics::BurstMetrics;
use super::points::PointsArgs;
use super::report::{MarkLine, MarkReport};
use crate::frame::args::RunArgs;
use crate::frame::clock::wall_clock_ns;
use crate::frame::run::Runner;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::Turn;

/// The longest class.
const MOST: i64 = CLASSES[CLASSES.len() - 1] as i64;

/// Mark what TCP sends at once with how much of it is left
#[derive(Debug, Args)]
#[command(mut_arg("format", |format| format.help(
    "How to show what became of the packets; text comes at the end"
)))]
pub struct MarkArgs {
    /// Where packets leave this host
    #[arg(long, value_name = "IF")]
    interface: String,
    /// Only connections with this local or remote port (may be repeated)
    #[arg(long, value_name = "PORT", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    port: Vec<u16>,
    /// A burst has so many segments: what acknowledgments let out by ones and twos is none
    #[arg(long, value_name = "SEGMENTS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=MOST))]
    least: u32,
    /// Mark nothing: take the marks off all packets that leave here, for the border of the network
    #[arg(long, conflicts_with_all = ["port", "least"])]
    border: bool,
    #[command(flatten)]
    code: PointsArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: MarkArgs) -> anyhow::Result<ExitCode> {
    let form = args.run.stay.format.resolve()?;
    let mut runner = Runner::open(&args.run, form, WhenUnread::GoOn, String::new())?;
    let name = &args.interface;
    ensure!(
        Kernel::open(name)?.look()?.ethernet,
        "packets at {name} have no Ethernet header: use the interface below it"
    );
    let points = args.code.points;
    let marking = match args.border {
        true => Marking::Border,
        false => Marking::Mark {
            ports: args.port.clone(),
            least: args.least,
        },
    };
    // one that is not there is named below, with those that are
    if let Ok(found) = Kernel::open(name)?.look() {
        ensure!(
            found.ethernet,
            "packets at {name} have no Ethernet header: use the interface below it"
        );
    }
    let marker = Marker::attach(name, &marking, points).with_context(|| {
        format!("cannot mark at {name} (`batchwise doctor --for burst` checks what is needed)")
    })?;
    let doing = match args.border {
        true => "taking marks off",
        false => "marking bursts",
    };
    let outputs = &mut runner.outputs;
    outputs.say(&format!("{doing} in what leaves by {name}\n"))?;
    let mut warned = false;
    let close = |turn: Turn| {
        if !marker.is_attached() {
            bail!("{name} is gone, or another agent has taken it over");
        }
        let fates = marker.fates()?;
        if fates.taken > 0 && !warned {
            warned = true;
            tracing::warn!(
                "others use the code points of marks (DSCP {}) at {name}: routers take theirs for marks. \
                 Have them use others, take theirs off where they come in, or choose other --code-points",
                points.name()
            );
        }
        let line = MarkLine::new(wall_clock_ns(), name.clone(), &fates);
        Ok(Some(MarkReport::new(line, turn.is_last())))
    };
    runner.run_intervals(close, |report, metrics: &mut BurstMetrics| {
        metrics.mark = Some(report.line.clone());
    })?;
    Ok(ExitCode::SUCCESS)
}
