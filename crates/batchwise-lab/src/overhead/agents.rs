//! The agents of the experiment: all of them run all the time, and those of the arm in force count.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::unistd::Pid;

use super::Arm;
use crate::Context;
use batchwise_testbed::bpf_stats::attached_links;
use batchwise_testbed::host::Host;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::watcher::{WatchSpec, Watcher};

/// Between two lines of a watcher.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long an agent may take to attach or detach its hooks.
const SWITCH_LIMIT: Duration = Duration::from_secs(5);
/// An agent that keeps a budget attaches and detaches as it likes; it obeys within this time.
const OBEYS: Duration = Duration::from_millis(150);
/// At least so many files are open only while events are counted.
const HOOKS: u64 = 3;
/// How often a switch is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How many looks later the signal is sent again: it may have come just before the agent slept.
const LOOKS: u32 = 10;

/// A watcher that can be made to count or not.
struct Agent {
    arm: Arm,
    watcher: Watcher,
    counts: bool,
    saw_requests: bool,
    /// BPF links that it holds while it counts.
    links: usize,
    /// Files that it holds then.
    files: u64,
}

/// How many files a process has open. `/proc/PID/fd` says it since Linux 6.2, and looking at the
/// links themselves would disturb what is measured.
fn open_files(pid: Pid) -> Result<u64> {
    let files = std::fs::metadata(format!("/proc/{pid}/fd"))?.size();
    anyhow::ensure!(
        files > 0,
        "this kernel does not say how many files a process has (6.2 does)"
    );
    Ok(files)
}

pub(super) struct Agents(Vec<Agent>);

impl Agents {
    /// Starts all; then none counts.
    pub fn start(context: &Context, hosts: &TwoHosts) -> Result<Self> {
        let start = |arm: Arm, host: &Host| -> Result<Agent> {
            let exchange = arm.exchanges();
            let spec = WatchSpec {
                ports: &[PORT],
                interval: INTERVAL,
                units: None,
                exchange,
                cgroup: exchange.then(|| host.cgroup()),
                cost: arm.counts_all().then_some("off"),
            };
            let watcher = Watcher::start(&context.command, host, &spec, &context.stop)?;
            Ok(Agent {
                arm,
                links: attached_links(watcher.pid())?,
                files: open_files(watcher.pid())?,
                watcher,
                counts: true,
                saw_requests: false,
            })
        };
        Ok(Self(vec![
            start(Arm::Watch, &hosts.server)?,
            start(Arm::WatchExchange, &hosts.server).context("at the server's end")?,
            start(Arm::WatchExchange, &hosts.client).context("at the client's end")?,
            start(Arm::All, &hosts.server)?,
            start(Arm::AllExchange, &hosts.server).context("at the server's end")?,
            start(Arm::AllExchange, &hosts.client).context("at the client's end")?,
        ]))
    }

    pub fn pids(&self) -> Vec<Pid> {
        self.0.iter().map(|agent| agent.watcher.pid()).collect()
    }

    fn of(&self, arm: Arm) -> impl Iterator<Item = &Agent> {
        self.0.iter().filter(move |agent| agent.arm == arm)
    }

    pub fn pids_of(&self, arm: Arm) -> Vec<Pid> {
        self.of(arm).map(|agent| agent.watcher.pid()).collect()
    }

    /// Whether one of those of `arm` has its hooks attached at this moment.
    pub fn count_now(&self, arm: Arm) -> Result<bool> {
        for agent in self.of(arm) {
            if open_files(agent.watcher.pid())? + HOOKS > agent.files {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets what agents said until now.
    pub fn take_costs(&mut self) {
        for agent in &mut self.0 {
            agent.take_cost();
        }
    }

    /// What those of `arm` said since that they cost, together, as a share of one CPU.
    pub fn cost(&mut self, arm: Arm) -> Option<f64> {
        let own = self.0.iter_mut().filter(|agent| agent.arm == arm);
        own.map(Agent::take_cost).sum()
    }

    /// Makes those of `arm` count, and no others; returns once they do.
    pub fn switch(&mut self, arm: Arm) -> Result<()> {
        for begins in [false, true] {
            let those = self.0.iter_mut().filter(|a| (a.arm == arm) == begins);
            for agent in those.filter(|agent| agent.counts != begins) {
                agent.switch()?;
            }
        }
        Ok(())
    }

    /// Fails when one has ended or printed something that is no line.
    pub fn check(&mut self) -> Result<()> {
        self.0
            .iter_mut()
            .try_for_each(|agent| agent.watcher.check())
    }

    /// Ends all; one that saw no request measured nothing, and neither did the run.
    pub fn finish(&mut self) -> Result<()> {
        for mut agent in self.0.drain(..) {
            agent.watcher.check()?;
            agent.take_cost();
            if !agent.saw_requests {
                bail!("a watcher saw no request of the benchmark; see `batchwise doctor`");
            }
        }
        Ok(())
    }
}

impl Agent {
    /// The mean cost of the lines since the last question, as a share of one CPU.
    fn take_cost(&mut self) -> Option<f64> {
        let lines = self.watcher.take_lines();
        self.saw_requests |= lines.iter().any(|line| line.throughput_per_s > 0.0);
        let cost: f64 = lines.iter().map(|line| line.cost).sum();
        (!lines.is_empty()).then(|| cost / lines.len() as f64)
    }

    fn switch(&mut self) -> Result<()> {
        let pid = self.watcher.pid();
        if !self.arm.counts_all() {
            self.watcher.count(!self.counts)?;
            std::thread::sleep(OBEYS);
            self.counts = !self.counts;
            return Ok(());
        }
        let began = Instant::now();
        for look in 0.. {
            let holds_all = attached_links(pid)? >= self.links;
            if holds_all != self.counts {
                break;
            }
            if began.elapsed() > SWITCH_LIMIT {
                self.watcher.check()?;
                bail!("a watcher did not begin or end counting within {SWITCH_LIMIT:?}");
            }
            if look % LOOKS == 0 {
                self.watcher.count(!self.counts)?;
            }
            std::thread::sleep(LOOK);
        }
        self.counts = !self.counts;
        Ok(())
    }
}
