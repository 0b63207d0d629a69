//! Weights and configurations that change, and balancers that are killed and started again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use batchwise_core::balance::report::{BackendLine, Line};
use batchwise_testbed::segment::SERVERS;
use nix::sys::signal::Signal;
use rand::Rng as _;

use super::super::agent::{LIMIT, NAMES, Settings, WEB};
use super::clients::while_clients_work;
use super::outcome::{Outcome, unharmed};
use super::stage::{STEADY, Stage, VICTIM, VICTIM_NAME, by_latency, settings};

/// Between two changes of the weights.
const CHANGE_EVERY: Duration = Duration::from_millis(100);
/// So often they change.
const CHANGES: u64 = 20;
/// A slow server's parts of its speed, one after the other until it is seen. What it takes depends on
/// this machine: it must show beside the time that clients take between requests, and a server that is
/// far too slow holds all clients, so that it answers too few to be judged.
const SLOWER: [f64; 5] = [0.03, 0.015, 0.007, 0.003, 0.0015];
/// Each for so long.
const EACH: Duration = Duration::from_secs(3);

impl Stage<'_> {
    /// Writes other weights and sends SIGHUP until the agent has read them so often.
    pub(super) fn change_weights(&mut self, settings: &Settings, times: u64) -> Result<()> {
        let mut read = self.agent.printed().count("reload");
        let (enough, mut last) = (read + times, Instant::now());
        // signals that come together are one
        while read < enough {
            ensure!(last.elapsed() < LIMIT, "the agent reads no other weights");
            let weights = std::array::from_fn(|_| rand::rng().random_range(1..=1000));
            self.agent.configure(&Settings {
                weights,
                ..settings.clone()
            })?;
            self.agent.signal(Signal::SIGHUP)?;
            self.stop.sleep(CHANGE_EVERY)?;
            let now = self.agent.printed().count("reload");
            if now > read {
                (read, last) = (now, Instant::now());
            }
        }
        self.agent.check_alive()
    }

    pub(super) fn weights_change(&mut self) -> Result<Outcome> {
        let ((), connections) =
            while_clients_work(self.segment, |_| self.change_weights(&settings(), CHANGES))?;
        let mut outcome = unharmed(&connections);
        outcome.times = CHANGES;
        Ok(outcome)
    }

    pub(super) fn weights_by_latency(&mut self) -> Result<Outcome> {
        let fair = 1.0 / f64::from(SERVERS);
        // none at all: it is down
        let fewer = |b: &BackendLine| 0.0 < b.share && b.share < 0.9 * fair;
        let (decisions, connections) = while_clients_work(self.segment, |_| {
            self.stop.sleep(STEADY)?;
            for (name, speed) in NAMES.into_iter().zip(&self.site.speeds) {
                let is_seen = || self.agent.shows(WEB, name, fewer);
                let mut parts = SLOWER.into_iter();
                while !is_seen() {
                    let part = parts.next();
                    speed.set(part.context("a slow server never had fewer slots")?)?;
                    self.stop.wait_until(EACH, || Ok(is_seen().then_some(())))?;
                }
                speed.set(1.0)?;
            }
            let decisions = self.agent.printed().decisions;
            self.change_weights(&by_latency(), CHANGES / 2)?;
            Ok(decisions)
        })?;
        let mut outcome = unharmed(&connections);
        outcome.times = decisions;
        outcome.expect(decisions >= u64::from(SERVERS), || {
            format!("{decisions} decisions moved slots")
        });
        Ok(outcome)
    }

    pub(super) fn balancer_killed(&mut self) -> Result<Outcome> {
        let (takeovers, connections) = while_clients_work(self.segment, |_| {
            self.stop.sleep(STEADY)?;
            self.agent.signal(Signal::SIGKILL)?;
            // nobody decides, and all goes on
            self.stop.sleep(STEADY)?;
            self.agent.start_process()?;
            self.stop.sleep(STEADY)?;
            Ok(self.agent.printed().count("takeover"))
        })?;
        let mut outcome = unharmed(&connections);
        outcome.expect(takeovers > 0, || {
            "the second agent took nothing over".to_owned()
        });
        Ok(outcome)
    }

    pub(super) fn balancer_killed_and_changed(&mut self) -> Result<Outcome> {
        let without = Settings {
            without: Some(VICTIM),
            ..settings()
        };
        let (times, connections) = while_clients_work(self.segment, |clients| {
            let mut times = Vec::new();
            for settings in [&without, &settings()] {
                self.stop.sleep(STEADY)?;
                self.agent.signal(Signal::SIGKILL)?;
                times.push(Instant::now());
                self.agent.configure(settings)?;
                self.agent.start_process()?;
                times.push(Instant::now());
            }
            let now = Instant::now();
            clients.await_any(self.stop, |c| c.was_to(VICTIM_NAME) && c.began >= now)?;
            Ok(times)
        })?;
        let mut outcome = unharmed(&connections);
        outcome.times = 2;
        if let [_, out, killed, back] = times[..] {
            outcome.expect_none(&connections, out..killed, "after it was taken out");
            outcome.expect_back(&connections, back);
        }
        Ok(outcome)
    }

    pub(super) fn policy_changed(&mut self) -> Result<Outcome> {
        let policies = ["latency", "static"];
        let ((), connections) = while_clients_work(self.segment, |_| {
            for policy in policies {
                self.stop.sleep(STEADY)?;
                self.agent.configure(&Settings {
                    policy,
                    ..settings()
                })?;
                self.agent.signal(Signal::SIGTERM)?;
                self.agent.start_process()?;
            }
            self.stop.sleep(STEADY)
        })?;
        let mut outcome = unharmed(&connections);
        outcome.times = policies.len() as u64;
        Ok(outcome)
    }

    pub(super) fn configuration_spoiled(&mut self) -> Result<Outcome> {
        let spoiled = [
            ("interval = \"1s\"\n[[service", 2),
            ("[[service]]\nname = 7\n", 2),
            ("name = \"x\"\nintervall = \"1s\"\n", 2),
        ];
        let (errors, connections) = while_clients_work(self.segment, |_| {
            self.stop.sleep(STEADY)?;
            for (text, line) in spoiled {
                self.agent.write(text)?;
                let output = self.agent.command(&["reload"])?;
                let error = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(
                    output.status.code() == Some(1),
                    "a reload of {text:?}: {output:?}"
                );
                let place = format!("lb.toml:{line}");
                ensure!(error.contains(&place), "{place} is not in: {error}");
                self.agent.signal(Signal::SIGHUP)?;
                self.stop.sleep(STEADY / 3)?;
            }
            let status = self
                .agent
                .must(&["status", "--once", "--format", "jsonl"])?;
            let mut weights = BTreeMap::new();
            for line in status.lines() {
                if let Ok(Line::Backend(b)) = serde_json::from_str(line) {
                    weights.insert((b.service.clone(), b.backend.clone()), b.base_weight);
                }
            }
            if weights.len() != settings().services.len() * usize::from(SERVERS)
                || weights.values().any(|&w| w != 100)
            {
                bail!("the old configuration is not in force: {weights:?}");
            }
            self.agent.configure(&settings())?;
            self.agent.must(&["reload"])?;
            self.stop.sleep(STEADY / 3)?;
            Ok(self.agent.printed().count("config_error"))
        })?;
        let mut outcome = unharmed(&connections);
        outcome.times = spoiled.len() as u64;
        outcome.expect(errors >= spoiled.len() as u64, || {
            format!(
                "{errors} errors were reported for {} mistakes",
                spoiled.len()
            )
        });
        Ok(outcome)
    }
}
