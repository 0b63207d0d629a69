//! `batchwise doctor`: what this kernel and these privileges allow, what needs it, and how to get
//! what is missing, as the feature table of `batchwise-bpf` has it. It runs without any privilege.

use std::collections::BTreeMap;
use std::process::ExitCode;

use batchwise_bpf::features::{FEATURES, Feature, Machine, Probe, Program, Status, Subcommand};
use batchwise_bpf::verify::examine;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::frame::human::word;
use crate::frame::stdout::{Closed, print};

pub const EXAMPLES: &str = "\
Examples:
  batchwise doctor
  sudo batchwise doctor --for balance
  sudo batchwise doctor --format json

Each check is `ok`, `degraded` (it works, but not as well) or `missing`.

Exit codes:
  0  the subcommand (`watch`, or that of --for) can run fully
  1  something essential is missing
  3  it can run, but something is degraded or an optional part is missing";

/// Arguments of `batchwise doctor`.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Only what this subcommand uses; the exit code is about it. Without it: everything, and the
    /// exit code is about `watch`
    #[arg(long = "for", value_name = "SUBCOMMAND", value_parser = subcommands())]
    subcommand: Option<Subcommand>,
    /// How the checks are shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn subcommands() -> impl TypedValueParser<Value = Subcommand> {
    PossibleValuesParser::new(Subcommand::ALL.map(Subcommand::name)).try_map(|name| {
        let mut all = Subcommand::ALL.into_iter();
        all.find(|s| s.name() == name).ok_or(name)
    })
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object
    Json,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// The worst of the checks; `missing` only where something essential is missing.
    status: Status,
    /// The subcommand that the status is about.
    #[serde(rename = "for")]
    subcommand: Subcommand,
    /// The kernel's version, as `uname -r` prints it.
    kernel: String,
    /// What was looked at, one by one.
    checks: Vec<Check>,
    /// The BPF programs that the kernel took, by subcommand: not of one whose programs it refused, and of
    /// none without the privileges.
    programs: BTreeMap<Subcommand, Vec<Program>>,
}

/// One thing that was looked at. The field names are a contract with programs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Check {
    /// What was looked at.
    name: &'static str,
    /// How it is.
    status: Status,
    /// Whether the subcommand cannot run at all without it.
    essential: bool,
    /// What there is.
    found: String,
    /// What does not work without it.
    needed_by: String,
    /// The oldest kernel that has it, such as "6.6". Absent: the kernel's age does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_kernel: Option<String>,
    /// What to do about it. Absent: the status is `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Runs the checks and prints them.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let all = Subcommand::ALL.into_iter();
    let wanted = all.filter(|s| args.subcommand.is_none_or(|only| *s == only));
    let report = Report::of(&examine(wanted), args.subcommand);
    let text = match args.format {
        Format::Text => report.text(),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    match print(&text) {
        // The exit code is still worth something to whoever closed the pipe.
        Err(error) if !error.is::<Closed>() => Err(error),
        _ => Ok(ExitCode::from(report.exit_code())),
    }
}

impl Report {
    /// About one subcommand, or all that there is to say with `watch` in mind.
    fn of(machine: &Machine, only: Option<Subcommand>) -> Self {
        let subcommand = only.unwrap_or(Subcommand::Watch);
        let wanted = |f: &&Feature| {
            let information = matches!(f.probe, Probe::Setting { .. });
            only.is_none_or(|only| information || f.user(only).is_some())
        };
        let check = |feature: &Feature| {
            let finding = feature.look(machine, subcommand);
            Check {
                name: feature.name,
                status: finding.status,
                essential: feature.essential_for(subcommand),
                found: finding.found,
                needed_by: feature.needed_by(),
                since_kernel: feature
                    .since
                    .map(|(major, minor)| format!("{major}.{minor}")),
                remedy: finding.remedy,
            }
        };
        let checks: Vec<_> = FEATURES.iter().filter(wanted).map(check).collect();
        let worst = checks.iter().map(|check| match check.essential {
            true => check.status,
            false => check.status.min(Status::Degraded),
        });
        Self {
            status: worst.max().unwrap_or(Status::Ok),
            subcommand,
            kernel: machine.release.clone(),
            checks,
            programs: machine
                .loads
                .iter()
                .filter_map(|(s, loaded)| Some((*s, loaded.clone().ok()?)))
                .collect(),
        }
    }

    const fn exit_code(&self) -> u8 {
        match self.status {
            Status::Ok => 0,
            Status::Missing => 1,
            Status::Degraded => 3,
        }
    }

    fn text(&self) -> String {
        let names = self.checks.iter().map(|check| check.name.len());
        let width = names.max().unwrap_or(0);
        let mut text = String::new();
        for check in &self.checks {
            let status = word(&check.status);
            text += &format!("{status:8}  {:width$}  {}\n", check.name, check.found);
            if check.status != Status::Ok {
                text += &format!("{:8}  {:width$}  needed by {}\n", "", "", check.needed_by);
            }
            if let Some(remedy) = &check.remedy {
                text += &format!("{:8}  {:width$}  → {remedy}\n", "", "");
            }
        }
        let verdict = match self.status {
            Status::Ok => "can run fully",
            Status::Degraded => "can run, with the limits above",
            Status::Missing => "cannot run: something essential is missing",
        };
        text + &format!("\n`batchwise {}` {verdict}.\n", self.subcommand)
    }
}

#[cfg(test)]
mod tests;
