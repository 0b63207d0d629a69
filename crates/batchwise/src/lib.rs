//! The `batchwise` command: its arguments, its log, its exit code. Every subcommand is a module.

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use libbpf_rs::PrintLevel;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

mod balance;
mod burst;
mod decap;
mod doctor;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod hints;
mod passive;
mod profile;
mod report;
mod sibling;
#[doc(hidden)]
pub mod simulated;
#[cfg(test)]
mod tests;
mod tune;
mod unseen;
mod watch;
mod window;

/// See the latency your users feel, from inside the network stack.
///
/// batchwise estimates the end-to-end latency of the requests to a service from the queues of its
/// TCP sockets, by Little's law: no packet is captured, no application is changed.
#[derive(Parser)]
#[command(version, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  batchwise doctor                     what does this machine allow?
  sudo batchwise                       all services of this machine, live
  sudo batchwise watch --port 6379     the latency of a Redis server, live
  sudo batchwise passive --iface eth1 --port 443
                                       the latency of servers, from their clients' packets alone
  sudo batchwise tune --port 6379 --policy slo:500us
                                       batch only when that helps the latency
  sudo batchwise balance --config lb.toml
                                       forward connections, and away from slow servers
  batchwise load redis --addr 127.0.0.1:6379 --rate 5000 --duration 5s --value-size 64
                                       load it, and measure the latency from outside
  batchwise lab list                   experiments that redo the paper's figures

Environment:
  RUST_LOG    what is logged to standard error, such as `debug` or `batchwise=debug,warn`
              (default: warn)

Exit codes: 0 success, 1 failure, 2 wrong usage; `doctor` has its own.";

#[derive(Subcommand)]
enum Command {
    /// Say what this kernel and these privileges allow, and how to get the rest
    #[command(after_long_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorArgs),

    /// Estimate the latency of services from their TCP sockets, interval by interval
    #[command(after_long_help = watch::EXAMPLES)]
    Watch(watch::WatchArgs),

    /// Estimate the latency that clients feel from the packets that they send, on their path
    #[command(after_long_help = passive::EXAMPLES)]
    Passive(passive::PassiveArgs),

    /// Take what a balancer sends through IP-in-IP tunnels out of them, where the kernel cannot
    #[command(after_long_help = decap::EXAMPLES)]
    Decap(decap::DecapArgs),

    /// Batch only when it helps: switch Nagle's algorithm for a service while it runs
    #[command(after_long_help = tune::EXAMPLES)]
    Tune(tune::TuneArgs),

    /// Forward connections to backends that answer clients directly, and away from slow ones
    #[command(after_long_help = balance::EXAMPLES)]
    Balance(balance::BalanceArgs),

    /// Wake applications when TCP can send on their sockets, and say how much
    #[command(after_long_help = window::EXAMPLES)]
    Window(window::WindowArgs),

    /// Say where the CPU time of the network stack goes
    #[command(after_long_help = profile::EXAMPLES)]
    Profile(profile::ProfileArgs),

    /// Mark bursts on senders; admit them whole or not at all on routers
    #[command(after_long_help = burst::EXAMPLES)]
    Burst(burst::BurstArgs),

    /// Make a page of what `watch` has recorded
    #[command(after_long_help = report::EXAMPLES)]
    Report(report::ReportArgs),

    /// Give all sockets back when the agent is gone (started by `tune`)
    #[command(hide = true)]
    Guard(tune::GuardArgs),

    /// Load a service and measure its latency honestly, from the intended send times
    #[command(disable_help_flag = true)]
    Load(sibling::SiblingArgs),

    /// Run experiments in network namespaces of their own
    #[command(disable_help_flag = true)]
    Lab(sibling::SiblingArgs),
}

/// The command line, for manual pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs what the arguments say.
pub fn main() -> ExitCode {
    frame::memory::keep_little();
    let mut args: Vec<_> = std::env::args_os().collect();
    if args.len() == 1 && std::io::stdout().is_terminal() {
        args.push("watch".into());
    }
    let cli = Cli::parse_from(sibling::reorder_help(args.into_iter()));
    if let Err(error) = start_log() {
        return fail(&error);
    }
    frame::descriptors::allow_all();
    frame::signals::outlive_file_limit();
    let result = match cli.command {
        Command::Doctor(args) => doctor::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Passive(args) => passive::run(args),
        Command::Decap(args) => decap::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Balance(args) => balance::run(args),
        Command::Window(args) => window::run(args),
        Command::Profile(args) => profile::run(args),
        Command::Burst(args) => burst::run(args),
        Command::Report(args) => report::run(&args),
        Command::Guard(args) => tune::guard(args),
        Command::Load(args) => sibling::run("load", &args).map(|never| match never {}),
        Command::Lab(args) => sibling::run("lab", &args).map(|never| match never {}),
    };
    match result {
        Ok(code) => code,
        Err(error)
            if error
                .chain()
                .any(|cause| cause.is::<frame::stdout::Closed>()) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => fail(&format!("{error:#}")),
    }
}

fn fail(message: &dyn Display) -> ExitCode {
    frame::messages::say(&message.to_string());
    ExitCode::FAILURE
}

fn start_log() -> Result<(), String> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map_err(|error| format!("RUST_LOG={text}: {error}; try RUST_LOG=debug"))?,
        _ => Targets::new().with_default(LevelFilter::WARN),
    };
    let format = tracing_subscriber::fmt::layer()
        .with_writer(frame::messages::Log)
        .with_ansi(false)
        .without_time();
    tracing_subscriber::registry()
        .with(filter)
        .with(format)
        .init();
    // By itself libbpf writes to standard error, also into the live view.
    libbpf_rs::set_print(Some((PrintLevel::Info, log_libbpf)));
    Ok(())
}

fn log_libbpf(level: PrintLevel, message: String) {
    let message = message.trim_end();
    match level {
        PrintLevel::Warn => tracing::warn!(target: "libbpf", "{message}"),
        PrintLevel::Info | PrintLevel::Debug => tracing::debug!(target: "libbpf", "{message}"),
    }
}
