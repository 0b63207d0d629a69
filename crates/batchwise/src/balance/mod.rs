//! `batchwise balance`: a layer-4 load balancer whose backends answer clients directly, and that
//! moves new connections away from backends that have become slow.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use batchwise_bpf::balance::Balancer;
use batchwise_core::balance::report::Policy;
use clap::{Args, Subcommand, ValueEnum};

mod agent;
pub mod attempt;
mod backend;
pub mod config;
pub mod control;
mod health;
mod journal;
mod judge;
pub mod metrics;
mod nexthop;
mod plan;
mod rows;
#[cfg(test)]
mod samples;
mod service;
pub mod status;
mod worker;

use crate::frame::args::{StayArgs, parse_within};
use crate::frame::messages::say;
use crate::frame::rows::{Form, Format};
use crate::frame::run::Runner;
use crate::frame::signals::hangup_flag;
use crate::frame::stdout::{WhenUnread, print};
use crate::frame::ticks::Turn;
use agent::{Agent, Asking};
use config::Config;
use config::kept::Kept;
use control::{Drain, Request};
use journal::Journal;
use status::Status;

/// What the long help adds.
pub const EXAMPLES: &str = "\
Examples:
  batchwise balance --config lb.toml --check
      is the file right?
  sudo batchwise balance --config lb.toml --log /var/log/batchwise-balance.jsonl
      forward, measure, decide; every decision is kept
  sudo batchwise balance --config lb.toml --policy observe --format jsonl
      the same, but weights stay as configured: what would it do?
  sudo batchwise balance status
      backends, weights, shares, connections, latency, health, live
  sudo batchwise balance drain s1          no new connections for s1; --undo gives them back
  sudo batchwise balance reload            read the file again, reopen the log; so does SIGHUP
  sudo batchwise balance remove            forward no more

A configuration:
  interfaces = [\"eth0\"]
  [[service]]
  name = \"web\"
  address = \"10.79.9.1\"
  port = 80
  health = { check = \"http\", path = \"/health\" }
  [[service.backend]]
  name = \"s1\"
  address = \"10.79.0.21\"
docs/reference/configuration.md has all keys. Backends need the service's address on lo, and must
not answer ARP for it; clients' packets to it must arrive here.

Forwarding does not end with the agent: its maps and programs stay pinned in bpffs, and the next
agent of the same name takes them over. `remove`, or --remove-at-exit, ends it.";

/// Forward connections to backends, and away from slow ones.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BalanceArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    agent: AgentArgs,
}

#[derive(Debug, Args)]
#[command(mut_arg("format", |format| format.help(
    "How to show it: live, text (what happens), or jsonl (everything)"
)))]
struct AgentArgs {
    /// The configuration (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Who decides about weights; without it, the configuration says
    #[arg(long, value_enum)]
    policy: Option<PolicyArg>,
    /// Time between two decisions; without it, the configuration says
    #[arg(long, value_parser = |text: &str| parse_within(text, config::INTERVALS))]
    interval: Option<Duration>,
    #[command(flatten)]
    stay: StayArgs,
    /// Append every decision and event to this file, as JSON lines
    #[arg(long, value_name = "FILE.jsonl")]
    log: Option<PathBuf>,
    /// Keep the configuration that is in force here, and start with that where the file does not hold
    #[arg(long, value_name = "DIR", env = "STATE_DIRECTORY")]
    state: Option<PathBuf>,
    /// Only say whether the configuration is right
    #[arg(long)]
    check: bool,
    /// Forward no more when the agent ends
    #[arg(long)]
    remove_at_exit: bool,
}

impl AgentArgs {
    /// The file's configuration, as the command line changes it.
    fn read(&self) -> anyhow::Result<Config> {
        Ok(self.apply(Config::read(self.file()?)?))
    }

    fn file(&self) -> anyhow::Result<&Path> {
        self.config.as_deref().context(
            "say which configuration with --config FILE (`batchwise balance --help` shows one)",
        )
    }

    fn apply(&self, mut config: Config) -> Config {
        config.policy = self.policy.map_or(config.policy, Policy::from);
        config.interval = self.interval.unwrap_or(config.interval);
        config
    }

    /// The file's configuration, or where that does not hold the one that was in force last, and why the
    /// file does not.
    fn read_or_kept(&self) -> anyhow::Result<(Config, Option<String>)> {
        let refused = match self.read() {
            Ok(config) => return Ok((config, None)),
            Err(refused) => refused,
        };
        let file = self.file()?;
        let kept = self.state.as_ref().map(|folder| Kept::of(file, folder));
        let Some(kept) = kept.filter(Kept::is_there) else {
            return Err(refused);
        };
        match kept.read(file) {
            Ok(config) => {
                let refused = format!("what was in force last is used: {refused:#}");
                Ok((self.apply(config), Some(refused)))
            }
            Err(damaged) => Err(refused.context(format!(
                "what was in force last cannot be used either ({damaged:#})"
            ))),
        }
    }

    /// Keeps the file, which says what is in force.
    fn keep(&self, config: &Config) -> anyhow::Result<()> {
        let Some(folder) = &self.state else {
            return Ok(());
        };
        let file = self.file()?;
        Kept::of(file, folder).keep(file, |read| self.apply(read) == *config)
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyArg {
    /// The configured weights; nothing is measured
    Static,
    /// Measure, decide and log, but keep the configured weights
    Observe,
    /// Move new connections away from slow backends
    Latency,
}

impl From<PolicyArg> for Policy {
    fn from(policy: PolicyArg) -> Self {
        match policy {
            PolicyArg::Static => Self::Static,
            PolicyArg::Observe => Self::Observe,
            PolicyArg::Latency => Self::Latency,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show backends: weight, share, connections, latency, health, and why
    Status {
        #[command(flatten)]
        of: NameArg,
        /// How to show it
        #[arg(long, value_enum, default_value_t = Format::Auto)]
        format: Format,
        /// Once, also on a terminal
        #[arg(long)]
        once: bool,
    },
    /// Give a backend no new connections; it keeps those that it has
    Drain {
        #[command(flatten)]
        drain: Drain,
        #[command(flatten)]
        of: NameArg,
    },
    /// Read the configuration again; one that is wrong changes nothing
    Reload {
        #[command(flatten)]
        of: NameArg,
    },
    /// Forward no more, and leave nothing behind
    Remove {
        #[command(flatten)]
        of: NameArg,
    },
}

#[derive(Debug, Args)]
struct NameArg {
    /// The balancer's name, as in its configuration
    #[arg(long, default_value = "default", value_parser = parse_name)]
    name: String,
}

/// How often `status` looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn parse_name(text: &str) -> Result<String, String> {
    if config::is_name(text) {
        return Ok(text.to_owned());
    }
    Err("1 to 32 of a-z, 0-9 and -".to_owned())
}

/// Runs the agent, or talks to one.
pub fn run(args: BalanceArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        None => balance(args.agent),
        Some(Command::Status { of, format, once }) => show_status(&of.name, format, once),
        Some(Command::Drain { drain, of }) => {
            tell(&control::ask(&of.name, &Request::Drain(drain))?)
        }
        Some(Command::Reload { of }) => tell(&control::ask(&of.name, &Request::Reload)?),
        Some(Command::Remove { of }) => remove(&of.name),
    }
}

fn tell(text: &str) -> anyhow::Result<ExitCode> {
    print(&format!("{}\n", text.trim_end()))?;
    Ok(ExitCode::SUCCESS)
}

fn balance(args: AgentArgs) -> anyhow::Result<ExitCode> {
    if args.check {
        let config = args.read()?;
        for doubt in config.doubts() {
            eprintln!("batchwise: warning: {}", doubt.what);
        }
        return tell(&about(&config));
    }
    let (config, refused) = args.read_or_kept()?;
    let form = args.stay.format.resolve()?;
    // before a terminal is taken, whose end it would be else
    let hangup = hangup_flag()?;
    let name = config.name.clone();
    let journal = Journal::open(args.log.as_deref())?;
    let every = args.stay.every(config.interval);
    let runner = Runner::open(&every, form, WhenUnread::GoOn, String::new())?;
    let server = control::listen(&name)?;
    let mut asking = Asking {
        agent: Agent::start(args, config, refused, journal)?,
        server: &server,
        hangup,
    };
    runner.run(&mut asking)?;
    let (goes, asked) = asking.agent.is_to_go();
    drop(asking);
    if goes {
        let removed = Balancer::remove(&name);
        drop(server);
        let done = format!("{name} forwards no more; nothing of it is left");
        if let Some(asked) = asked {
            let told = removed.as_ref().map(|()| done.clone());
            asked.answer_last(told.map_err(ToString::to_string));
        }
        removed?;
        say(&done);
    } else {
        say(&format!(
            "the agent has ended, {name} still forwards with the last weights and no health checks; \
             `batchwise balance remove --name {name}` ends that"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn about(config: &Config) -> String {
    let backends: usize = config.services.iter().map(|s| s.backends.len()).sum();
    format!(
        "{}: balancer {:?}, services: {}, backends: {backends}: right (links, routes and neighbours are looked at when it starts)",
        config.file.display(),
        config.name,
        config.services.len(),
    )
}

fn remove(name: &str) -> anyhow::Result<ExitCode> {
    if control::runs(name) {
        return tell(&control::ask(name, &Request::Remove)?);
    }
    anyhow::ensure!(
        Balancer::pinned(name),
        "there is no balancer {name:?}: nothing is pinned under that name, give another with --name"
    );
    Balancer::remove(name)?;
    tell(&format!("{name} forwards no more; nothing of it is left"))
}

fn look(name: &str) -> anyhow::Result<Status> {
    let lines = control::ask(name, &Request::Status)?;
    Status::from_lines(&lines).map_err(anyhow::Error::msg)
}

fn show_status(name: &str, format: Format, once: bool) -> anyhow::Result<ExitCode> {
    let form = match format.resolve()? {
        Form::Live if once => Form::Text,
        form => form,
    };
    match form {
        Form::Text => return tell(&rows::table(&look(name)?)),
        Form::Jsonl => return tell(&look(name)?.to_lines()?),
        Form::Live => {}
    }
    // an agent that is not there is said on the terminal as it was
    let first = look(name)?;
    let every = StayArgs::default().every(LOOK_EVERY);
    let mut runner = Runner::open(&every, form, WhenUnread::End, String::new())?;
    runner.outputs.publish(Some(&first), |_, ()| ())?;
    let again = |turn: Turn| (!turn.is_last()).then(|| look(name)).transpose();
    runner.run_intervals(again, |_, ()| ())?;
    Ok(ExitCode::SUCCESS)
}
