//! `batchwise burst mark`: says in packets how much of a burst is left, or takes that off at the border.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use batchwise_bpf::burst::{Marker, Marking};
use batchwise_core::burst::mark::CLASSES;
use clap::Args;

use super::kernel::Kernel;
use super::metrics::BurstMetrics;
use super::points::PointsArgs;
use super::report::{MarkLine, MarkReport};
use crate::frame::args::{parse_duration, parse_interval};
use crate::frame::clock::wall_clock_ns;
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Format, Output};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};

/// The longest class.
const MOST: i64 = CLASSES[CLASSES.len() - 1] as i64;

/// Mark what TCP sends at once with how much of it is left
#[derive(Debug, Args)]
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
    /// Time between two reports
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Stop after this time; without it, at Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to show what became of the packets; text comes at the end
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
}

pub fn run(args: MarkArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let exporter = args.metrics.as_deref().map(Exporter::<BurstMetrics>::bind);
    let exporter = exporter.transpose()?;
    let form = args.format.resolve()?;
    let name = &args.interface;
    let points = args.code.points;
    let marking = match args.border {
        true => Marking::Border,
        false => Marking::Mark {
            ports: args.port.clone(),
            least: args.least,
        },
    };
    let marker = Marker::attach(name, &marking, points).with_context(|| {
        format!("cannot mark at {name} (`batchwise doctor --for burst` checks what is needed)")
    })?;
    ensure!(
        Kernel::open(name)?.look()?.ethernet,
        "packets at {name} have no Ethernet header: use the interface below it"
    );
    let mut output = Output::open(form, WhenUnread::GoOn, String::new())?;
    let doing = match args.border {
        true => "taking marks off",
        false => "marking bursts",
    };
    output.say(&format!("{doing} in what leaves by {name}\n"))?;
    let mut ticks = Ticks::new(stop, args.interval, args.duration);
    let mut warned = false;
    loop {
        let turn = ticks.turn(Duration::MAX, |time| output.wait(time, None))?;
        if turn == Turn::Look {
            continue;
        }
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
        let over = turn != Turn::Interval;
        let line = MarkLine::new(wall_clock_ns(), name.clone(), &fates);
        if let Some(exporter) = &exporter {
            exporter.update(|metrics| metrics.mark = Some(line.clone()));
        }
        output.show(&MarkReport::new(line, over))?;
        if over {
            break;
        }
    }
    output.finish("")?;
    Ok(ExitCode::SUCCESS)
}
