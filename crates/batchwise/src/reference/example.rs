//! The subcommand that CONTRIBUTING.md shows: how many processes run, interval by interval. It is
//! compiled and run here, so that the page stays true; no user gets it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use crate::frame::args::{parse_duration, parse_interval};
use crate::frame::clock::wall_clock_ns;
use crate::frame::metrics::{Exporter, Family, Metrics, alone};
use crate::frame::rows::{Column, Format, JsonLines, Output, View, plain};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};

/// What stands on the command line.
#[derive(clap::Args)]
pub struct ExampleArgs {
    /// Time between two reports
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Stop after this time; without it, at Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
}

/// The line for programs: a contract, so each field says what it is.
#[derive(Clone, Serialize, schemars::JsonSchema)] // cfg_attr(test, ...) for schemars in a real one
struct Line {
    /// End of the interval, ns since the Unix epoch.
    ts_ns: u64,
    /// How many processes run or could run.
    running: u64,
}

/// The columns for people.
impl View for Line {
    type Row = Self;

    const COLUMNS: &'static [Column<Self>] = &[Column::right("running", 8, |line: &Self| {
        plain(line.running.to_string())
    })];
    const NAME: &'static str = "example";

    fn rows(&self) -> Vec<&Self> {
        vec![self]
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        lines.push(self)
    }
}

#[derive(Default)]
struct ExampleMetrics(Option<Line>);

impl Metrics for ExampleMetrics {
    const FAMILIES: &'static [Family<Self>] = &[Family::gauge(
        "example_running",
        "Processes that run or could run",
        |m| {
            m.0.iter()
                .flat_map(|line| alone(line.running as f64))
                .collect()
        },
    )];
}

/// Sense. A real one has its sensor in `batchwise-bpf`, and what follows from it in `batchwise-core`.
fn sense() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let mut lines = stat.lines();
    let running = lines.find_map(|line| line.strip_prefix("procs_running "));
    running
        .context("/proc/stat names no running processes")?
        .parse()
        .context("/proc/stat")
}

pub fn run(args: ExampleArgs) -> anyhow::Result<ExitCode> {
    let exporter = args
        .metrics
        .as_deref()
        .map(Exporter::<ExampleMetrics>::bind);
    let exporter = exporter.transpose()?;
    let mut output = Output::open(args.format.resolve()?, WhenUnread::End, String::new())?;
    let mut ticks = Ticks::new(stop_flag()?, args.interval, args.duration);
    loop {
        let turn = ticks.turn(Duration::MAX, |time| output.wait(time, None))?;
        if turn == Turn::Look {
            continue;
        }
        let line = Line {
            ts_ns: wall_clock_ns(),
            running: sense()?,
        };
        output.show(&line)?;
        if let Some(exporter) = &exporter {
            exporter.update(|metrics| metrics.0 = Some(line));
        }
        if turn != Turn::Interval {
            break;
        }
    }
    output.finish("")?;
    Ok(ExitCode::SUCCESS)
}

#[test]
fn the_example_of_contributing_runs() {
    let args = ExampleArgs {
        interval: Duration::from_millis(10),
        duration: Some(Duration::from_millis(20)),
        format: Format::Jsonl,
        metrics: Some("127.0.0.1:0".to_owned()),
    };
    assert_eq!(run(args).expect("it runs"), ExitCode::SUCCESS);
    assert!(super::lines::<Line>().contains("| `running` | integer |"));
}
