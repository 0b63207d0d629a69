//! The subcommand that CONTRIBUTING.md shows: how many processes run, interval by interval. It is
//! compiled and run here, so that the page stays true; no user gets it.

use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use crate::frame::args::RunArgs;
use crate::frame::clock::wall_clock_ns;
use crate::frame::metrics::{Family, Metrics, alone};
use crate::frame::rows::{Column, JsonLines, View, plain};
use crate::frame::run::Runner;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::Turn;

/// What stands on the command line.
#[derive(clap::Args)]
pub struct ExampleArgs {
    #[command(flatten)]
    run: RunArgs,
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
    let form = args.run.stay.format.resolve()?;
    let runner = Runner::open(&args.run, form, WhenUnread::End, String::new())?;
    // a real one attaches now; one that looks more often than it reports is an `Agent`
    let close = |_: Turn| {
        Ok(Some(Line {
            ts_ns: wall_clock_ns(),
            running: sense()?,
        }))
    };
    runner.run_intervals(close, |line, metrics: &mut ExampleMetrics| {
        metrics.0 = Some(line.clone());
    })?;
    Ok(ExitCode::SUCCESS)
}

#[test]
fn the_example_of_contributing_runs() {
    use crate::frame::{args::StayArgs, rows::Format};
    use std::time::Duration;
    let stay = StayArgs {
        duration: Some(Duration::from_millis(20)),
        format: Format::Jsonl,
        metrics: Some("127.0.0.1:0".to_owned()),
        ..StayArgs::default()
    };
    let run_args = stay.every(Duration::from_millis(10));
    let args = ExampleArgs { run: run_args };
    assert_eq!(run(args).expect("it runs"), ExitCode::SUCCESS);
    assert!(super::lines::<Line>().contains("| `running` | integer |"));
}
