//! The `batchwise-load` command, which `batchwise load` starts.

use std::process::ExitCode;

use batchwise_load::cli;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batchwise: {error:#}");
            ExitCode::FAILURE
        }
    }
}
