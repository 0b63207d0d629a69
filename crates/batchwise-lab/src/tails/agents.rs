//! The watchers of `tails`: one alone at each end with each budget. All run all the time, and those of
//! the point's budget count while it is measured, so that one line of each has the whole point.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_core::sense::report::{Line, Side};
use batchwise_testbed::host::Host;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use nix::sys::signal::{Signal, kill};

use super::plan::INTERVAL;
use super::{Budget, SIDES};
use crate::Context;

/// How long after its interval a line may come.
const LINE_LIMIT: Duration = Duration::from_secs(3);
/// A signal may come just before the watcher sleeps: it is sent again after this time.
const AGAIN: Duration = Duration::from_millis(20);

struct Agent {
    budget: Budget,
    side: Side,
    watcher: Watcher,
}

pub(super) struct Agents(Vec<Agent>);

impl Agents {
    /// Starts all; then none counts.
    pub fn start(context: &Context, hosts: &TwoHosts) -> Result<Self> {
        let start = |budget: Budget, side: Side| -> Result<Agent> {
            let host: &Host = match side {
                Side::Server => &hosts.server,
                Side::Client => &hosts.client,
            };
            let spec = WatchSpec {
                ports: &[PORT],
                interval: INTERVAL,
                units: None,
                exchange: false,
                cgroup: Some(host.cgroup()),
                cost: budget.cost(),
            };
            let watcher = Watcher::start(&context.command, host, &spec, &context.stop)
                .with_context(|| format!("at the {side:?}'s end"))?;
            let agent = Agent {
                budget,
                side,
                watcher,
            };
            agent.pause()?;
            Ok(agent)
        };
        let mut agents = Vec::new();
        for budget in Budget::ALL {
            for side in SIDES {
                agents.push(start(budget, side)?);
            }
        }
        Ok(Self(agents))
    }

    /// Those of `budget` count from now on.
    pub fn begin(&self, budget: Budget) -> Result<()> {
        self.of(budget).try_for_each(|agent| {
            agent.watcher.take_lines();
            agent.send(Signal::SIGUSR2)
        })
    }

    /// Waits for the line of each of them, and ends their counting.
    pub fn end(&mut self, budget: Budget, stop: &Stop) -> Result<Vec<(Side, Line)>> {
        let mut found = Vec::new();
        for agent in self.of(budget) {
            let line = stop.wait_until(INTERVAL + LINE_LIMIT, || {
                Ok(agent.watcher.take_lines().pop())
            })?;
            agent.pause()?;
            found.extend(line.map(|line| (agent.side, line)));
        }
        self.0
            .iter_mut()
            .try_for_each(|agent| agent.watcher.check())?;
        if found.is_empty() {
            bail!("the watchers ran but saw no connection to port {PORT}; see `batchwise doctor`");
        }
        Ok(found)
    }

    fn of(&self, budget: Budget) -> impl Iterator<Item = &Agent> {
        self.0.iter().filter(move |agent| agent.budget == budget)
    }
}

impl Agent {
    fn pause(&self) -> Result<()> {
        self.send(Signal::SIGUSR1)?;
        std::thread::sleep(AGAIN);
        self.send(Signal::SIGUSR1)
    }

    fn send(&self, signal: Signal) -> Result<()> {
        kill(self.watcher.pid(), signal).with_context(|| format!("sending {signal} to a watcher"))
    }
}
