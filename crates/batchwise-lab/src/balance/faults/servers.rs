//! Servers that are killed, vanish, are drained or taken out of the configuration.

use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_testbed::segment::{VIP, VIP6};
use nix::sys::signal::{Signal, kill};

use super::super::agent::{Agent, Settings, WEB, WEB6};
use super::clients::{Connection, End, while_clients_work};
use super::outcome::{Outcome, unharmed};
use super::resting::{Resting, open_to};
use super::stage::{
    CHECK_EVERY, CHECK_TIMEOUT, FALL, STEADY, Stage, VICTIM, VICTIM_NAME, settings,
};

/// Connections of each kind and service that rest.
const EACH: usize = 2;
/// Connections of a server that was taken out rest for so long; nothing else is left of it then.
const REST: Duration = Duration::from_secs(5);
const LONG_REST: Duration = Duration::from_secs(65);

impl Stage<'_> {
    pub(super) fn backend_killed(&mut self) -> Result<Outcome> {
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
        Ok(lost(&connections, span, takes))
    }

    pub(super) fn host_vanished(&mut self) -> Result<Outcome> {
        let ((span, back), connections) = while_clients_work(self.segment, |clients| {
            self.stop.sleep(STEADY)?;
            let gone = Instant::now();
            self.segment.plug(VICTIM, false)?;
            self.victim_has("no slots", |b| b.share == 0.0)?;
            let noticed = Instant::now();
            // else they could go on
            let broken = |c: &Connection| matches!(c.end, End::Broken(_));
            clients.await_any(self.stop, |c| c.was_to(VICTIM_NAME) && broken(c))?;
            self.segment.plug(VICTIM, true)?;
            self.victim_has("slots again", |b| b.share > 0.0)?;
            let back = Instant::now();
            clients.await_any(self.stop, |c| c.was_to(VICTIM_NAME) && c.began >= back)?;
            Ok((gone..noticed, back))
        })?;
        let mut outcome = lost(&connections, span, CHECK_TIMEOUT);
        outcome.expect_back(&connections, back);
        Ok(outcome)
    }

    pub(super) fn backend_drained(&mut self) -> Result<Outcome> {
        let all = |agent: &Agent<'_>, args: &[&str]| -> Result<()> {
            for service in [WEB, WEB6] {
                let drain = ["drain", VICTIM_NAME, "--service", service];
                agent.must(&[&drain[..], args].concat())?;
            }
            Ok(())
        };
        let ((drained, undone), connections) = while_clients_work(self.segment, |clients| {
            self.stop.sleep(STEADY)?;
            all(&self.agent, &[])?;
            self.victim_has("no slots", |b| b.share == 0.0)?;
            let drained = Instant::now();
            self.stop.sleep(STEADY)?;
            let undone = Instant::now();
            all(&self.agent, &["--undo"])?;
            clients.await_any(self.stop, |c| c.was_to(VICTIM_NAME) && c.began >= undone)?;
            Ok((drained, undone))
        })?;
        let mut outcome = unharmed(&connections);
        outcome.expect_none(&connections, drained..undone, "while it was drained");
        outcome.expect_back(&connections, undone);
        Ok(outcome)
    }

    /// `idle`: other connections are silent, for longer than one without a packet counts as active.
    pub(super) fn backend_removed(&mut self, idle: bool) -> Result<Outcome> {
        let client = self.segment.clients.first().context("no client")?;
        let ((removed, ended), mut connections) = while_clients_work(self.segment, |_| {
            let mut resting: Vec<Resting> = Vec::new();
            for service in [IpAddr::from(VIP), VIP6.into()] {
                resting.extend(open_to(client, service, VICTIM_NAME, EACH, true)?);
                if idle {
                    resting.extend(open_to(client, service, VICTIM_NAME, EACH, false)?);
                }
            }
            self.stop.sleep(STEADY)?;
            self.agent.configure(&Settings {
                without: Some(VICTIM),
                ..settings()
            })?;
            self.agent.must(&["reload"])?;
            let removed = Instant::now();
            self.stop.sleep(if idle { LONG_REST } else { REST })?;
            let ended: Vec<Connection> = resting.into_iter().map(Resting::finish).collect();
            Ok((removed, ended))
        })?;
        let rested = ended.len();
        connections.extend(ended);
        let mut outcome = unharmed(&connections);
        outcome.expect(rested >= 2 * EACH, || format!("only {rested} rested"));
        let since = removed..Instant::now();
        outcome.expect_none(&connections, since, "after it was taken out");
        Ok(outcome)
    }
}

/// A server went at the beginning of `span`, and had no slots any more at its end: its own
/// connections are lost with it, and none that begins afterwards. `check_takes`: until one fails.
pub(super) fn lost(
    connections: &[Connection],
    span: Range<Instant>,
    check_takes: Duration,
) -> Outcome {
    // a check that has just ended, and those that count
    let every = CHECK_EVERY.mul_f64(1.1);
    let bound = every + every.max(check_takes) * FALL;
    let mut outcome = Outcome::of(connections);
    let mut noticed = Duration::ZERO;
    for connection in connections {
        let after_it = connection.ended >= span.start;
        match &connection.end {
            End::Broken(_) if after_it && connection.was_to(VICTIM_NAME) => {
                outcome.lost_with_server += 1;
            }
            // which server refused it is not known: at that time it can only be the dead one
            End::Refused(_) | End::Broken(_) if after_it && connection.server.is_none() => {
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
    outcome.noticed_after_ns = Some(noticed.as_nanos() as u64);
    outcome.notice_within_ns = Some(bound.as_nanos() as u64);
    let lost = outcome.lost_with_server;
    outcome.expect(lost > 0, || {
        format!("no connection was lost with {VICTIM_NAME}")
    });
    let later = connections.iter().filter(|c| c.began > span.end);
    let later = later.filter(|c| c.server.is_some()).count();
    outcome.expect(later > 0, || {
        "no connection was opened afterwards".to_owned()
    });
    outcome
}
