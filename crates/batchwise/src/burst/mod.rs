//! `batchwise burst`: bursts of packets that a router's queue takes whole or not at all. Senders mark what
//! they send at once, routers hear it.

mod admit;
mod kernel;
mod limit;
mod mark;
mod metrics;
mod points;
mod queue;
mod report;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[cfg(test)]
pub use {metrics::BurstMetrics, report::Line};

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise burst mark --interface eth0
      on a sender: what TCP sends at once is marked with how much of it is left
  sudo batchwise burst mark --interface eth0 --port 8080 --format jsonl
      only connections at this port; a line of JSON each second
  sudo batchwise burst admit --interface eth1
      on a router: bursts that leave by this interface enter its queue whole, or not at all
  sudo batchwise burst mark --interface eth2 --border
      where the network ends that knows marks: they are taken off

Marks are DSCP code points for local use (xxxx11); --code-points takes others, and must be the same on all
senders, routers and borders. Only packets whose DSCP is 0 are marked, ECN stays, and who does not know marks
treats the packets as before.";

/// Mark bursts on senders; admit them whole or not at all on routers.
#[derive(Debug, Args)]
pub struct BurstArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Mark(mark::MarkArgs),
    Admit(admit::AdmitArgs),
}

/// Runs until the duration is over or a signal comes.
pub fn run(args: BurstArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Mark(args) => mark::run(args),
        Action::Admit(args) => admit::run(args),
    }
}
