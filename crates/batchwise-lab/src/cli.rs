//! The command line of `batchwise-lab`: its arguments, its log, its exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use batchwise_testbed::stop::Stopped;
use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::{experiments, say};

/// What a shell reports for a command that SIGINT ended.
const EXIT_STOPPED: u8 = 130;

const EXAMPLES: &str = "\
Examples:
  batchwise lab list
  sudo batchwise lab run accuracy --quick --out out/accuracy
      writes result.json, plots and report.html
  batchwise lab report out/accuracy
      draws plots and report.html again from its result.json

What an experiment creates is named bw-* and is removed at its end, also after Ctrl-C.";

/// Run experiments in network namespaces of their own
#[derive(Debug, Parser)]
#[command(version, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the experiments
    List,
    /// Run an experiment and write result.json, plots and report.html (needs root, but for simulations)
    Run {
        /// Name of the experiment, as `lab list` shows it
        name: String,
        /// Fewer points, shorter ones: minutes, where a full run may take more than an hour
        #[arg(long)]
        quick: bool,
        /// Only this part: a workload, a load, a size (may be repeated). A name that there is not shows all
        #[arg(long, value_name = "PART")]
        only: Vec<String>,
        /// How long: of `soak` only
        #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
        length: Option<Duration>,
        /// Directory for the results [default: out/NAME]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Draw plots and report.html again from the result.json in a directory
    Report {
        /// Directory of the results
        dir: PathBuf,
    },
}

/// The command line, for manual pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs what the arguments say.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    let written = match cli.command {
        Command::List => {
            for experiment in experiments() {
                say(&format!("{:<18} {}", experiment.name(), experiment.about()));
            }
            return ExitCode::SUCCESS;
        }
        Command::Run {
            name,
            quick,
            only,
            length,
            out,
        } => crate::run(&name, quick, only, length, out),
        Command::Report { dir } => crate::report(&dir).map(|()| dir),
    };
    match written {
        Ok(dir) => {
            say(&dir.join("report.html").to_string_lossy());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("batchwise: {error:#}");
            match error.is::<Stopped>() {
                true => ExitCode::from(EXIT_STOPPED),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// Warnings to standard error, or what `RUST_LOG` says, which `batchwise` has checked.
fn start_log() {
    let wanted = std::env::var("RUST_LOG")
        .ok()
        .and_then(|text| text.parse().ok());
    let filter = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let format = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time();
    tracing_subscriber::registry()
        .with(filter)
        .with(format)
        .init();
}
