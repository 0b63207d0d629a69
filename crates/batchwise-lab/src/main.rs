//! The `batchwise-lab` command, which `batchwise lab` starts: lists and runs the experiments.

use std::process::ExitCode;

fn main() -> ExitCode {
    batchwise_lab::cli::run()
}
