//! The agents of the experiment: all of them run all the time, and those of the arm in force count.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
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
/// How often a switch is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How many looks later the signal is sent again: it may have come just before the agent slept.
const LOOKS: u32 = 10;

/// A watcher that can be made to count or not.
struct Agent {
    arm: Arm,
    watcher: Watcher,
    counts: bool,
    /// BPF links that it holds while it counts.
    links: usize,
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
                watcher,
                counts: true,
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
            let lines = agent.watcher.finish();
            if !lines.iter().any(|line| line.throughput_per_s > 0.0) {
                bail!("a watcher saw no request of the benchmark; see `batchwise doctor`");
            }
        }
        Ok(())
    }
}

impl Agent {
    fn switch(&mut self) -> Result<()> {
        let signal = match self.counts {
            true => Signal::SIGUSR1,
            false => Signal::SIGUSR2,
        };
        let pid = self.watcher.pid();
        if !self.arm.counts_all() {
            kill(pid, signal).with_context(|| format!("sending {signal} to a watcher"))?;
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
                bail!("a watcher did not obey {signal} within {SWITCH_LIMIT:?}");
            }
            if look % LOOKS == 0 {
                kill(pid, signal).with_context(|| format!("sending {signal} to a watcher"))?;
            }
            std::thread::sleep(LOOK);
        }
        self.counts = !self.counts;
        Ok(())
    }
}
