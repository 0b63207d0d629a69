//! Servers that are killed, vanish, are drained or taken out of the configuration.

use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_testbed::segment::{VIP, VIP6};
use nix::sys::signal::{Signal, kill};

use super::super::agent::{Agent, Settings, WEB, WEB6, server_name};
use super::clients::{Connection, End, while_clients_work};
use super::outcome::{Outcome, Scenario, nanos, unharmed};
use super::resting::{Resting, open_to};
use super::stage::{CHECK_EVERY, CHECK_TIMEOUT, FALL, STEADY, Stage, VICTIM, settings};

/// Connections of each kind and service that rest.
const EACH: usize = 2;

impl Stage<'_> {
    pub(super) fn backend_killed(&mut self) -> Result<Outcome> {
        let victim = server_name(VICTIM);
        let pid = self.site.servers[usize::from(VICTIM)].pid();
        let (span, connections) = while_clients_work(self.segment, |_| {
            self.stop.sleep(STEADY)?;
            let killed = Instant::now();
            kill(pid, Signal::SIGKILL).context("killing a server")?;
            self.victim_has("no slots", |b| b.share == 0.0)?;
            let noticed = Instant::now();
            self.stop.sleep(STEADY)?;
            Ok(killed..noticed)
        })?;
        // refused at once
        let takes = Duration::ZERO;
        Ok(lost(self.scenario, &connections, &victim, span, takes))
    }

    pub(super) fn host_vanished(&mut self) -> Result<Outcome> {
        let victim = server_name(VICTIM);
        let (times, connections) = while_clients_work(self.segment, |clients| {
            self.stop.sleep(STEADY)?;
            let gone = Instant::now();
            self.segment.plug(VICTIM, false)?;
            self.victim_has("no slots", |b| b.share == 0.0)?;
            let noticed = Instant::now();
            // else they could go on
            clients.await_broken(self.stop, &victim)?;
            self.segment.plug(VICTIM, true)?;
            self.victim_has("slots again", |b| b.share > 0.0)?;
            let back = Instant::now();
            clients.await_opened(self.stop, &victim, back)?;
            Ok((gone..noticed, back))
        })?;
        let (span, back) = times;
        let mut outcome = lost(self.scenario, &connections, &victim, span, CHECK_TIMEOUT);
        outcome.expect_back(&connections, &victim, back);
        Ok(outcome)
    }

    pub(super) fn backend_drained(&mut self) -> Result<Outcome> {
        let victim = server_name(VICTIM);
        let all = |agent: &Agent<'_>, args: &[&str]| -> Result<()> {
            for service in [WEB.name, WEB6.name] {
                let drain = ["drain", &victim, "--service", service];
                agent.must(&[&drain[..], args].concat())?;
            }
            Ok(())
        };
        let (times, connections) = while_clients_work(self.segment, |clients| {
            self.stop.sleep(STEADY)?;
            all(&self.agent, &[])?;
            self.victim_has("no slots", |b| b.share == 0.0)?;
            let drained = Instant::now();
            self.stop.sleep(STEADY)?;
            let undone = Instant::now();
            all(&self.agent, &["--undo"])?;
            clients.await_opened(self.stop, &victim, undone)?;
            Ok((drained, undone))
        })?;
        let (drained, undone) = times;
        let mut outcome = unharmed(self.scenario, &connections);
        outcome.expect_none(
            &connections,
            &victim,
            (drained..undone, "while it was drained"),
        );
        outcome.expect_back(&connections, &victim, undone);
        Ok(outcome)
    }

    pub(super) fn backend_removed(&mut self, rest: Duration) -> Result<Outcome> {
        let victim = server_name(VICTIM);
        let client = self.segment.clients.first().context("no client")?;
        let (done, mut connections) = while_clients_work(self.segment, |_| {
            let mut resting: Vec<Resting> = Vec::new();
            for service in [IpAddr::from(VIP), VIP6.into()] {
                resting.extend(open_to(client, service, &victim, EACH, true)?);
                if self.scenario == Scenario::BackendRemovedIdle {
                    resting.extend(open_to(client, service, &victim, EACH, false)?);
                }
            }
            self.stop.sleep(STEADY)?;
            self.agent.configure(&Settings {
                without: Some(VICTIM),
                ..settings()
            })?;
            self.agent.must(&["reload"])?;
            let removed = Instant::now();
            self.stop.sleep(rest)?;
            let ended: Vec<Connection> = resting.into_iter().map(Resting::finish).collect();
            Ok((removed, ended))
        })?;
        let (removed, ended) = done;
        let rested = ended.len();
        connections.extend(ended);
        let mut outcome = unharmed(self.scenario, &connections);
        outcome.expect(rested >= 2 * EACH, || format!("only {rested} rested"));
        let since = removed..Instant::now();
        outcome.expect_none(&connections, &victim, (since, "after it was taken out"));
        Ok(outcome)
    }
}

/// A server went at the beginning of `span`, and had no slots any more at its end: its own
/// connections are lost with it, and none that begins afterwards. `check_takes`: until one fails.
fn lost(
    scenario: Scenario,
    connections: &[Connection],
    victim: &str,
    span: Range<Instant>,
    check_takes: Duration,
) -> Outcome {
    // a check that has just ended, and those that count
    let every = CHECK_EVERY.mul_f64(1.1);
    let bound = every + every.max(check_takes) * FALL;
    let mut outcome = Outcome::of(scenario, connections);
    let mut noticed = Duration::ZERO;
    for connection in connections {
        let of_victim = connection.server.as_deref() == Some(victim);
        match &connection.end {
            End::Broken(_) if of_victim && connection.ended >= span.start => {
                outcome.lost_with_server += 1;
            }
            // which server refused it is not known: at that time it can only be the dead one
            End::Refused(_) | End::Broken(_)
                if connection.server.is_none() && connection.ended >= span.start =>
            {
                let after = connection.began.saturating_duration_since(span.start);
                noticed = noticed.max(after);
                outcome.refused_by_server += 1;
                if connection.began > span.end {
                    outcome.count_against(connection);
                }
            }
            _ => outcome.count_against(connection),
        }
    }
    outcome.noticed_after_ns = Some(nanos(noticed));
    outcome.notice_within_ns = Some(nanos(bound));
    let lost = outcome.lost_with_server;
    outcome.expect(lost > 0, || format!("no connection was lost with {victim}"));
    let later = connections.iter().filter(|c| c.began > span.end);
    let later = later.filter(|c| c.server.is_some()).count();
    outcome.expect(later > 0, || {
        "no connection was opened afterwards".to_owned()
    });
    outcome
}
