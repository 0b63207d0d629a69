//! Agents that end and come back: after a crash with a typo in the file, and in an upgrade.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_testbed::bpf_stats::wait_attached;
use nix::sys::signal::{Signal, kill};

use super::super::agent::LIMIT;
use super::clients::while_clients_work;
use super::outcome::{Outcome, unharmed};
use super::servers::lost;
use super::stage::{STEADY, Stage, VICTIM, settings};

/// An agent that is asked to end has done so by then.
const END: Duration = Duration::from_secs(5);

impl Stage<'_> {
    pub(super) fn typo_and_crash(&mut self) -> Result<Outcome> {
        let victim = self.site.servers[usize::from(VICTIM)].pid();
        let ((span, came_back), connections) = while_clients_work(self.segment, |_| {
            self.stop.sleep(STEADY)?;
            self.agent.write("interval = \"1s\"\n[[service")?;
            self.agent.signal(Signal::SIGKILL)?;
            let killed = Instant::now();
            kill(victim, Signal::SIGKILL).context("killing a server")?;
            let came_back = self.agent.start_without(settings().services.len());
            if came_back.is_err() {
                self.agent.configure(&settings())?;
                self.agent.start_without(settings().services.len())?;
            }
            self.victim_has("no slots", |b| b.share == 0.0)?;
            let noticed = Instant::now();
            self.stop.sleep(STEADY)?;
            self.agent.configure(&settings())?;
            self.agent.must(&["reload"])?;
            self.stop.sleep(STEADY)?;
            Ok((killed..noticed, came_back))
        })?;
        // refused at once
        let mut outcome = lost(&connections, span, Duration::ZERO);
        outcome.expect(came_back.is_ok(), || {
            format!(
                "with a typo in the file it does not come back: {:#}",
                came_back.unwrap_err()
            )
        });
        Ok(outcome)
    }

    pub(super) fn upgraded(&mut self) -> Result<Outcome> {
        let ((), connections) = while_clients_work(self.segment, |_| {
            self.stop.sleep(STEADY)?;
            self.agent.signal(Signal::SIGTERM)?;
            self.agent.start_process()?;
            for index in 0..self.decapsulators.len() {
                self.decapsulators[index].terminate(END);
                let mut next = self.decapsulator(index)?;
                wait_attached(&mut next, "the decapsulator", self.stop)?;
                self.decapsulators[index] = next;
            }
            self.stop.sleep(STEADY)
        })?;
        let mut outcome = unharmed(&connections);
        outcome.times = 1 + self.decapsulators.len() as u64;
        let longest = Duration::from_nanos(outcome.longest_wait_ns);
        outcome.expect(longest < LIMIT, || {
            format!("a client waited for {longest:?}")
        });
        Ok(outcome)
    }
}
