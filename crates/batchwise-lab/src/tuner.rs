//! `batchwise tune` at one or both hosts, and the decisions that it prints.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_core::sense::report::Side;
use batchwise_core::tune::report::Decision;
use batchwise_testbed::bpf_stats;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::process::cpu_time;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::topology::TwoHosts;
use nix::unistd::Pid;

use crate::Context;

/// The latency that the service must keep, as in the paper (its §4).
pub const SLO: Duration = Duration::from_micros(500);
/// The policy that goes with it.
pub const SLO_POLICY: &str = "slo:500us";
/// What messages call an agent.
const NAME: &str = "batchwise tune";
/// How long an agent may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Each decision of a side, with when it came into force and when the next one did, as far as that is
/// in `from..to` (ns since the Unix epoch).
pub fn in_force(
    decisions: &[Decision],
    side: Side,
    from: u64,
    to: u64,
) -> impl Iterator<Item = (&Decision, u64, u64)> {
    let of_side: Vec<_> = decisions.iter().filter(|d| d.side == side).collect();
    let mut ends: Vec<_> = of_side.iter().skip(1).map(|d| d.ts_ns.min(to)).collect();
    ends.push(to);
    let times = of_side.into_iter().zip(ends);
    times
        .map(move |(decision, end)| (decision, decision.ts_ns.max(from), end))
        .filter(|(_, begin, end)| begin < end)
}

/// For how much of `from..to` (ns since the Unix epoch) Nagle's algorithm worked at a side, as a
/// share of the time of which that is known; `None` if it never is.
pub fn nagle_share(decisions: &[Decision], side: Side, from: u64, to: u64) -> Option<f64> {
    let (mut on, mut known) = (0, 0);
    for (decision, begin, end) in in_force(decisions, side, from, to) {
        known += end - begin;
        on += if decision.nagle_on() { end - begin } else { 0 };
    }
    (known > 0).then(|| on as f64 / known as f64)
}

/// Starts one in `host` for its cgroup, and waits until its programs are attached.
pub fn start(
    context: &Context,
    host: &Host,
    port: u16,
    options: &[&str],
) -> Result<Printing<Decision>> {
    let mut command = Command::new(&context.command);
    command.args(["tune", "--format", "jsonl", "--port", &port.to_string()]);
    command.args(options).arg("--cgroup").arg(host.cgroup());
    forget(host)?;
    let mut agent = Printing::start(host, NAME, command, Role::Observer)?;
    bpf_stats::wait_attached(agent.process(), NAME, &context.stop)?;
    Ok(agent)
}

/// What agents before had in force: the next one is to know nothing.
fn forget(host: &Host) -> Result<()> {
    let cgroup = fs::metadata(host.cgroup())?.ino();
    match fs::remove_file(format!("/run/batchwise/tune-{cgroup}.in-force")) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Agents at one or both hosts. Dropping it ends them.
#[derive(Debug)]
pub struct Tuners(Vec<Printing<Decision>>);

impl Tuners {
    /// Starts one at each host for Redis' port, and waits until their programs are attached. Their logs
    /// are `tune-LABEL-server.jsonl` and the same for the client, beside the results.
    pub fn start(context: &Context, hosts: &TwoHosts, policy: &str, label: &str) -> Result<Self> {
        let ends = [(&hosts.server, "server"), (&hosts.client, "client")];
        Self::start_at(context, &ends, policy, label)
    }

    /// The same at the client's host alone.
    pub fn start_at_client(
        context: &Context,
        hosts: &TwoHosts,
        policy: &str,
        label: &str,
    ) -> Result<Self> {
        Self::start_at(context, &[(&hosts.client, "client")], policy, label)
    }

    fn start_at(
        context: &Context,
        ends: &[(&Host, &str)],
        policy: &str,
        label: &str,
    ) -> Result<Self> {
        let spawn = |&(host, end): &(&Host, &str)| {
            // A colon is no part of a file name that travels well.
            let name = format!("tune-{}-{end}.jsonl", label.replace(':', "-"));
            let log = context.output.dir().join(name);
            // A log is appended to: what an earlier run left is none of this one's.
            fs::write(&log, "").with_context(|| format!("making {}", log.display()))?;
            let mut command = Command::new(&context.command);
            command.args(["tune", "--format", "jsonl", "--policy", policy]);
            command.args(["--port", &PORT.to_string()]);
            command.arg("--cgroup").arg(host.cgroup());
            command.arg("--log").arg(&log);
            forget(host)?;
            Printing::start(host, NAME, command, Role::Observer)
        };
        // At the same time: most of a start is the kernel's verifier, on one CPU each.
        let agents: Result<Vec<_>> = ends.iter().map(spawn).collect();
        let mut tuners = Self(agents?);
        for agent in &mut tuners.0 {
            bpf_stats::wait_attached(agent.process(), NAME, &context.stop)?;
        }
        Ok(tuners)
    }

    /// Fails when one of them has ended.
    pub fn check(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(Printing::check)
    }

    /// Their processes.
    pub fn pids(&self) -> Vec<Pid> {
        self.0.iter().map(Printing::pid).collect()
    }

    /// CPU time that they have used.
    pub fn cpu_time(&self) -> Result<Duration> {
        self.pids().into_iter().map(cpu_time).sum()
    }

    /// What they have decided since the last call, by time.
    pub fn take(&self) -> Vec<Decision> {
        by_time(self.0.iter().flat_map(Printing::take_lines).collect())
    }

    /// Ends them in order; gives the decisions that were not taken yet.
    pub fn finish(self) -> Result<Vec<Decision>> {
        let lines = self.0.into_iter().map(|agent| agent.finish(END_LIMIT));
        let lines: Result<Vec<_>> = lines.collect();
        Ok(by_time(lines?.into_iter().flatten().collect()))
    }
}

fn by_time(mut decisions: Vec<Decision>) -> Vec<Decision> {
    decisions.sort_by_key(|decision| decision.ts_ns);
    decisions
}

#[cfg(test)]
mod tests {
    use batchwise_core::tune::report::{DecisionEvent, InForce};

    use super::*;
    use crate::decisions::samples::decision;

    #[test]
    fn the_share_of_nagle_is_of_the_time_that_is_known() {
        let at = |ns: u64, event, nagle| Decision {
            ts_ns: ns,
            ..decision(0.0, event, nagle)
        };
        let mut decisions = vec![
            at(100, DecisionEvent::Start, InForce::App),
            at(200, DecisionEvent::Probe, InForce::On),
            at(300, DecisionEvent::Adopt, InForce::Off),
        ];
        // of the other end
        decisions[2].side = Side::Server;
        let share = |from, to| nagle_share(&decisions, Side::Client, from, to);
        assert_eq!(share(0, 400), Some(2.0 / 3.0));
        assert_eq!(share(200, 1000), Some(1.0));
        assert_eq!(share(0, 100), None);
        assert_eq!(nagle_share(&[], Side::Client, 0, 100), None);
    }
}
