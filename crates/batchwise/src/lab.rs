//! `batchwise lab`: lists and runs the experiments of `batchwise-lab`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use batchwise_lab::stop::Stopped;
use batchwise_lab::{RunOptions, experiments};
use clap::{Args, Subcommand};

/// What a shell reports for a command that SIGINT ended.
const EXIT_STOPPED: u8 = 130;

/// Arguments of `batchwise lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Show the experiments
    List,
    /// Run an experiment and write result.json, plots and report.html (needs root)
    Run {
        /// Name of the experiment, as `lab list` shows it
        name: String,
        /// Fewer points, shorter ones: minutes instead of a quarter to half an hour
        #[arg(long)]
        quick: bool,
        /// Directory for the results [default: out/NAME]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// Runs `batchwise lab`.
pub fn run(args: LabArgs) -> Result<ExitCode> {
    match args.command {
        LabCommand::List => {
            for experiment in experiments() {
                println!("{:<18} {}", experiment.name(), experiment.about());
            }
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Run { name, quick, out } => {
            let command =
                std::env::current_exe().context("finding the batchwise command itself")?;
            match batchwise_lab::run(
                &name,
                &RunOptions {
                    quick,
                    out,
                    command,
                },
            ) {
                Ok(dir) => {
                    println!("{}", dir.join("report.html").display());
                    Ok(ExitCode::SUCCESS)
                }
                Err(error) if error.is::<Stopped>() => {
                    eprintln!("batchwise: {error:#}");
                    Ok(ExitCode::from(EXIT_STOPPED))
                }
                Err(error) => Err(error),
            }
        }
    }
}
