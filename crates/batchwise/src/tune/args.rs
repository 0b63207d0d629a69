//! What `batchwise tune` is told on its command line.

use std::path::PathBuf;

use batchwise_core::tune::{Arm, Knob, Lever, Params, Policy};
use clap::Args;

use crate::frame::args::{Ports, StayArgs, parse_ports};
use crate::hints::HintArgs;

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise tune --port 6379 --policy slo:500us
      the highest throughput whose mean latency stays under 500 us
  sudo batchwise tune --port 6379 --dry-run --explain
      say what would be tested and why, but touch no socket
  sudo batchwise tune --port 6379 --log /var/log/batchwise.jsonl
      keep every decision, with all that it was made from
  sudo batchwise tune --port 6379 --metrics 127.0.0.1:9464
      what it does and knows, for Prometheus

Run it where data is sent: on the clients' hosts for requests, on the server's for responses. It needs
no agent at the other end, and takes connections that are open already. When the agent ends, however it
ends, its guard gives every socket its application's own setting back within a second.";

/// Batch only when it helps: switch Nagle's algorithm for a live service.
#[derive(Debug, Args)]
#[command(mut_arg("format", |format| format.help("How decisions are shown")))]
pub struct TuneArgs {
    /// The service's port: local at its servers, remote at its clients (may be repeated)
    #[arg(long = "port", value_name = "PORT[-PORT]", required = true, value_delimiter = ',', value_parser = parse_ports)]
    pub(super) ports: Vec<Ports>,
    /// What is to be gained: latency, throughput, or slo:TIME, the highest throughput whose mean
    /// latency stays under TIME
    #[arg(long, default_value = "latency")]
    pub(super) policy: Policy,
    /// What is tested and switched: nagle; delack, acknowledgments that this end delays; or auto, which goes by
    /// what is held
    #[arg(long, default_value = "auto", value_name = "nagle|delack|auto", value_parser = parse_knob)]
    pub(super) knob: Knobs,
    /// What may be set to cut delayed acknowledgments short: the service's sockets alone; also a route of its own to
    /// the service's address; or also the network namespace, where there can be no route
    #[arg(long, default_value = "socket", value_name = "socket|route|namespace", value_parser = parse_scope)]
    pub(super) scope: Lever,
    /// Only sockets made by processes in this cgroup v2 directory or below it (default: the whole
    /// machine)
    #[arg(long, value_name = "DIR")]
    pub(super) cgroup: Option<PathBuf>,
    /// Decide and log, but leave every socket as it is
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Append every decision to this file, a line of JSON each; SIGHUP opens it anew
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// Say every second, as text, what is known of each arm and what it waits for
    #[arg(long)]
    pub(super) explain: bool,
    #[command(flatten)]
    pub(super) stay: StayArgs,
    /// What tests may take of the time, as a share, in any minute
    #[arg(long, default_value_t = Params::default().budget, value_name = "SHARE", value_parser = parse_share)]
    pub(super) budget: f64,
    /// Test nothing: hold every socket at Nagle on or off
    #[arg(long, value_name = "on|off", value_parser = parse_arm, conflicts_with = "dry_run")]
    pub(super) hold: Option<Arm>,
    #[command(flatten)]
    pub(super) hints: HintArgs,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a number from 0 to 1".to_owned()),
    }
}

/// One, or whichever has a reason.
#[derive(Clone, Copy, Debug)]
pub struct Knobs(pub Option<Knob>);

fn parse_knob(text: &str) -> Result<Knobs, String> {
    match text {
        "auto" => Ok(Knobs(None)),
        "nagle" => Ok(Knobs(Some(Knob::Nagle))),
        "delack" => Ok(Knobs(Some(Knob::Delack))),
        _ => Err("write nagle, delack, or auto".to_owned()),
    }
}

fn parse_scope(text: &str) -> Result<Lever, String> {
    match text {
        "socket" => Ok(Lever::Socket),
        "route" => Ok(Lever::Route),
        "namespace" => Ok(Lever::Namespace),
        _ => Err("write socket, route, or namespace".to_owned()),
    }
}

fn parse_arm(text: &str) -> Result<Arm, String> {
    match text {
        "on" => Ok(Arm::On),
        "off" => Ok(Arm::Off),
        _ => Err("on or off".to_owned()),
    }
}
