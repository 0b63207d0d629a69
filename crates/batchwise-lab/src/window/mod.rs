//! The experiments of `batchwise window`. This file owns what they share: a narrow link, the agent, and a command
//! that says something at its end.

pub mod cost;
pub mod latency;
pub mod lives;
pub mod priority;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::topology::{LINK, TwoHosts};
use serde_json::Value;

use crate::Context;

/// One way, from the clients to the server.
const DELAY: Duration = Duration::from_millis(20);
/// The bottleneck, at the server's end: its rate, and the bytes that it queues.
const RATE: &str = "100mbit";
const QUEUE: &str = "250kb";
/// A command that is asked to end has done so by then.
const END: Duration = Duration::from_secs(5);

/// Two hosts over that link, and the settings of their network.
fn narrow(tag: &str) -> Result<(TwoHosts, Value)> {
    let hosts = TwoHosts::build_apart(tag, DELAY)?;
    let network = serde_json::to_value(hosts.settings()?)?;
    hosts.server.namespace().tc(&format!(
        "qdisc replace dev {LINK} root tbf rate {RATE} burst 16kb limit {QUEUE}"
    ))?;
    Ok((hosts, network))
}

/// The last thing that a command said, which ends by itself.
fn last(mut command: Printing<Value>, name: &str, context: &Context) -> Result<Value> {
    let status = command.wait(&context.stop, END)?;
    ensure!(status.success(), "{name} failed{}", command.quote());
    let last = command.take_lines().pop();
    last.with_context(|| format!("{name} said nothing"))
}

/// `batchwise window` in this host, attached; applications find it at `socket`.
fn agent(context: &Context, host: &Host, socket: &Path, args: &[&str]) -> Result<Printing<Value>> {
    let mut command = Command::new(&context.command);
    command
        .args(["window", "--format", "jsonl", "--socket"])
        .arg(socket);
    command.arg("--cgroup").arg(host.cgroup()).args(args);
    let name = "batchwise window";
    let mut agent = Printing::start(host, name, command, Role::Observer)?;
    wait_attached(agent.process(), name, &context.stop)?;
    Ok(agent)
}
