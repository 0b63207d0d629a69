//! `batchwise doctor`: what this kernel and these privileges allow, what needs it, and how to get
//! what is missing. It runs without any privilege.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

mod checks;
mod facts;

use checks::{Check, Status, judge};
use facts::Facts;

/// What the long help adds.
pub const EXAMPLES: &str = "\
Examples:
  batchwise doctor
  sudo batchwise doctor --format json

Each check is `ok`, `degraded` (it works, but not as well) or `missing`.

Exit codes:
  0  `batchwise watch` can run fully
  1  something essential is missing
  3  it can run, but something is degraded or an optional part is missing";

/// Arguments of `batchwise doctor`.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// How the checks are shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
}

#[derive(Debug, Serialize)]
struct Report {
    /// The worst that matters: `missing` only if something essential is.
    status: Status,
    kernel: String,
    checks: Vec<Check>,
}

/// Runs the checks and prints them.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let facts = Facts::gather();
    let checks = judge(&facts);
    let report = Report {
        status: overall(&checks),
        kernel: facts.release,
        checks,
    };
    let text = match args.format {
        Format::Text => text(&report),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    match io::stdout().write_all(text.as_bytes()) {
        // The exit code is still worth something to whoever closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the output")?;
        }
        _ => {}
    }
    Ok(ExitCode::from(exit_code(report.status)))
}

const fn exit_code(status: Status) -> u8 {
    match status {
        Status::Ok => 0,
        Status::Missing => 1,
        Status::Degraded => 3,
    }
}

fn overall(checks: &[Check]) -> Status {
    let worst = checks.iter().map(|check| {
        if check.essential {
            check.status
        } else {
            check.status.min(Status::Degraded)
        }
    });
    worst.max().unwrap_or(Status::Ok)
}

fn text(report: &Report) -> String {
    let width = report
        .checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for check in &report.checks {
        let status = match check.status {
            Status::Ok => "ok",
            Status::Degraded => "degraded",
            Status::Missing => "missing",
        };
        text += &format!("{status:8}  {:width$}  {}\n", check.name, check.found);
        if check.status != Status::Ok {
            text += &format!("{:8}  {:width$}  needed by {}\n", "", "", check.needed_by);
        }
        if let Some(remedy) = &check.remedy {
            text += &format!("{:8}  {:width$}  → {remedy}\n", "", "");
        }
    }
    text += match report.status {
        Status::Ok => "\n`batchwise watch` can run fully.\n",
        Status::Degraded => "\n`batchwise watch` can run, with the limits above.\n",
        Status::Missing => "\n`batchwise watch` cannot run: something essential is missing.\n",
    };
    text
}

#[cfg(test)]
mod tests;
