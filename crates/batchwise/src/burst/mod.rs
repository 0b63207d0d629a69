//! `batchwise burst`: bursts that a router takes whole or not at all.

mod forward;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub use forward::ForwardMetrics;
#[cfg(test)]
pub use forward::Line as ForwardLine;

/// What the long help adds: that of each part has examples.
pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise burst forward --from eth1 --to eth2 --rate 1gbit --limit 100
      a router's queue in user space, which takes bursts whole or not at all";

/// Let a router take bursts whole or not at all.
#[derive(Debug, Args)]
pub struct BurstArgs {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Forward between two interfaces through a queue that is exact
    #[command(after_long_help = forward::EXAMPLES)]
    Forward(forward::ForwardArgs),
}

/// Runs the part that was asked for.
pub fn run(args: BurstArgs) -> anyhow::Result<ExitCode> {
    match args.part {
        Part::Forward(args) => forward::run(args),
    }
}
