//! The `batchwise-load` command, which `batchwise load` starts.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batchwise: {error:#}");
            ExitCode::FAILURE
        }
    }
}
