//! What is done to the balancer and its servers while clients are at work, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use batchwise_core::balance::report::{BackendLine, Line};
use nix::sys::signal::{Signal, kill};
use rand::Rng as _;
use serde::Serialize;

use super::agent::{
    Agent, CHECK_EVERY, CHECK_TIMEOUT, FALL, Policy, SERVICES, Settings, server_name,
};
use super::clients::{Connection, End, WHO, while_clients_work};
use crate::host::Place;
use crate::nginx::Nginx;
use crate::process::Process;
use crate::segment::{self, LINK, SERVERS, Segment, SegmentSpec};
use crate::stop::Stop;

/// Room for the outer header of the tunnels.
const MTU: u32 = 1600;
/// Clients work so long before and after what is done.
const CALM: Duration = Duration::from_millis(1500);
/// Between two changes of the weights.
const CHANGE_EVERY: Duration = Duration::from_millis(100);
/// The server to which something is done.
const VICTIM: u8 = 1;
/// What the machine's scheduler may add to a time that checks are to keep.
const LATENESS: Duration = Duration::from_millis(500);

/// Something that is done under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The weights of all servers change every 100 ms.
    WeightsChange,
    /// A server's process is killed.
    BackendKilled,
    /// A server is drained, and taken back.
    BackendDrained,
    /// The balancer's process is killed with SIGKILL, and started again.
    BalancerKilled,
    /// The balancer is started again with another policy: another program takes the old one's place.
    PolicyChanged,
    /// The configuration is spoiled, and the balancer told to read it.
    ConfigurationSpoiled,
}

impl Scenario {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::WeightsChange,
        Self::BackendKilled,
        Self::BackendDrained,
        Self::BalancerKilled,
        Self::PolicyChanged,
        Self::ConfigurationSpoiled,
    ];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::WeightsChange => "weights-change",
            Self::BackendKilled => "backend-killed",
            Self::BackendDrained => "backend-drained",
            Self::BalancerKilled => "balancer-killed",
            Self::PolicyChanged => "policy-changed",
            Self::ConfigurationSpoiled => "configuration-spoiled",
        }
    }
}

/// What came of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Which one.
    pub scenario: Scenario,
    /// Connections that were opened.
    pub connections: u64,
    /// Answers on them.
    pub answers: u64,
    /// Connections that broke and must not have.
    pub broken: u64,
    /// Connections that could not be opened and should have been.
    pub refused: u64,
    /// Connections to a server that was killed, which broke with it.
    pub lost_with_server: u64,
    /// Attempts that a killed server refused until the health checks noticed.
    pub refused_by_server: u64,
    /// From the server's death to the last attempt that went there, ns.
    pub noticed_after_ns: Option<u64>,
    /// Within which the health checks must notice it, ns.
    pub notice_within_ns: Option<u64>,
    /// How often the thing was done.
    pub times: u64,
    /// What was not as it must be, in words, the first of each kind.
    pub wrong: Vec<String>,
}

impl Outcome {
    fn of(scenario: Scenario, connections: &[Connection]) -> Self {
        let mut outcome = Self {
            scenario,
            connections: 0,
            answers: 0,
            broken: 0,
            refused: 0,
            lost_with_server: 0,
            refused_by_server: 0,
            noticed_after_ns: None,
            notice_within_ns: None,
            times: 1,
            wrong: Vec::new(),
        };
        for connection in connections {
            outcome.connections += u64::from(!matches!(connection.end, End::Refused(_)));
            outcome.answers += connection.answers;
        }
        outcome
    }

    /// This connection did not go as it must.
    fn count_against(&mut self, connection: &Connection) {
        let (count, what) = match &connection.end {
            End::Closed => return,
            End::Refused(why) => (&mut self.refused, format!("not opened: {why}")),
            End::Broken(why) => (&mut self.broken, format!("broken: {why}")),
        };
        *count += 1;
        if *count == 1 {
            let server = connection.server.as_deref().unwrap_or("a server");
            self.wrong.push(format!(
                "a connection to {server} by {} was {what}, after {} answers",
                connection.service, connection.answers
            ));
        }
    }

    fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(otherwise());
        }
    }
}

/// Servers before which a balancer is put.
struct Site {
    servers: Vec<Nginx>,
    _decapsulators: Vec<Process>,
}

impl Site {
    fn start(segment: &Segment, command: &Path, stop: &Stop) -> Result<Self> {
        let mut site = Self {
            servers: Vec::new(),
            _decapsulators: Vec::new(),
        };
        for (index, host) in (0..SERVERS).zip(&segment.servers) {
            let fill = |folder: &Path| Ok(std::fs::write(folder.join(WHO), server_name(index))?);
            site.servers.push(Nginx::start(host, stop, fill)?);
            let mut decap = Command::new(command);
            decap.args(["decap", "--iface", LINK, "--format", "jsonl", "--from"]);
            decap.arg(segment::balancer().1.to_string());
            let mut decap = host.spawn("the decapsulator", decap, Place::Observer)?;
            // read, so that it never blocks on a full pipe
            decap.on_line(drop);
            site._decapsulators.push(decap);
        }
        Ok(site)
    }
}

/// Runs a scenario on a segment of its own, whose names begin with `bw-TAG`.
///
/// # Errors
/// The hosts cannot be made, or the command does not do what it is told. That connections broke is
/// no error: see [`Outcome::wrong`].
pub fn run(scenario: Scenario, tag: &str, command: &Path, stop: &Stop) -> Result<Outcome> {
    let segment = Segment::build(tag, SegmentSpec { mtu: MTU })?;
    let mut site = Site::start(&segment, command, stop)?;
    let settings = Settings::default();
    let mut agent = Agent::start(tag, command, &segment.balancer, stop, &settings)?;
    let mut stage = Stage {
        agent: &mut agent,
        site: &mut site,
        stop,
    };
    match scenario {
        Scenario::WeightsChange => stage.weights_change(&segment),
        Scenario::BackendKilled => stage.backend_killed(&segment),
        Scenario::BackendDrained => stage.backend_drained(&segment),
        Scenario::BalancerKilled => stage.balancer_killed(&segment),
        Scenario::PolicyChanged => stage.policy_changed(&segment),
        Scenario::ConfigurationSpoiled => stage.configuration_spoiled(&segment),
    }
}

struct Stage<'s, 'a> {
    agent: &'s mut Agent<'a>,
    site: &'s mut Site,
    stop: &'s Stop,
}

/// All of them must have gone well.
fn unharmed(scenario: Scenario, connections: &[Connection]) -> Outcome {
    let mut outcome = Outcome::of(scenario, connections);
    connections.iter().for_each(|c| outcome.count_against(c));
    for service in [IpAddr::from(segment::VIP), segment::VIP6.into()] {
        let of = connections.iter().filter(|c| c.service == service);
        let servers: BTreeSet<_> = of.filter_map(|c| c.server.as_deref()).collect();
        outcome.expect(servers.len() == usize::from(SERVERS), || {
            format!("only {servers:?} answered for {service}")
        });
    }
    outcome
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl Stage<'_, '_> {
    fn weights_change(&mut self, segment: &Segment) -> Result<Outcome> {
        let mut times = 0;
        let (reloads, connections) = while_clients_work(segment, || {
            let end = Instant::now() + 3 * CALM;
            while Instant::now() < end {
                let weights = std::array::from_fn(|_| rand::rng().random_range(1..=1000));
                self.agent.configure(&Settings {
                    weights,
                    ..Settings::default()
                })?;
                self.agent.signal(Signal::SIGHUP)?;
                times += 1;
                self.stop.sleep(CHANGE_EVERY)?;
            }
            self.agent.check_alive()?;
            Ok(self.agent.events("reload"))
        })?;
        let mut outcome = unharmed(Scenario::WeightsChange, &connections);
        outcome.times = times;
        // signals that come together are one
        outcome.expect(reloads * 2 >= times, || {
            format!("{reloads} reloads for {times} signals")
        });
        Ok(outcome)
    }

    fn backend_killed(&mut self, segment: &Segment) -> Result<Outcome> {
        let victim = server_name(VICTIM);
        let pid = self.site.servers[usize::from(VICTIM)].pid();
        let (killed, connections) = while_clients_work(segment, || {
            self.stop.sleep(CALM)?;
            let killed = Instant::now();
            kill(pid, Signal::SIGKILL).context("killing a server")?;
            for service in SERVICES {
                let without = |b: &BackendLine| b.share == 0.0;
                self.agent
                    .until("the dead server has no slots", service, &victim, without)?;
            }
            self.stop.sleep(CALM)?;
            Ok(killed)
        })?;
        // a check that has just begun, those that count, and the last of them waits for its end
        let bound = (CHECK_EVERY * FALL).mul_f64(1.1) + CHECK_TIMEOUT + LATENESS;
        let mut outcome = Outcome::of(Scenario::BackendKilled, &connections);
        let mut noticed = Duration::ZERO;
        for connection in &connections {
            let of_victim = connection.server.as_deref() == Some(&victim);
            match &connection.end {
                End::Broken(_) if of_victim && connection.ended >= killed => {
                    outcome.lost_with_server += 1;
                }
                // which server refused it is not known: at that time it can only be the dead one
                End::Refused(_) | End::Broken(_)
                    if connection.server.is_none() && connection.ended >= killed =>
                {
                    let after = connection.began.saturating_duration_since(killed);
                    noticed = noticed.max(after);
                    outcome.refused_by_server += 1;
                    if after > bound {
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
        let later = connections.iter().filter(|c| c.began > killed + bound);
        let later = later.filter(|c| c.server.is_some()).count();
        outcome.expect(later > 0, || {
            "no connection was opened afterwards".to_owned()
        });
        Ok(outcome)
    }

    fn backend_drained(&mut self, segment: &Segment) -> Result<Outcome> {
        let victim = server_name(VICTIM);
        let all = |agent: &Agent<'_>, args: &[&str]| -> Result<()> {
            for service in SERVICES {
                let drain = ["drain", &victim, "--service", service];
                agent.must(&[&drain[..], args].concat())?;
            }
            Ok(())
        };
        let (times, connections) = while_clients_work(segment, || {
            self.stop.sleep(CALM)?;
            all(self.agent, &[])?;
            for service in SERVICES {
                self.agent
                    .until("the drained server has no slots", service, &victim, |b| {
                        b.share == 0.0
                    })?;
            }
            let drained = Instant::now();
            self.stop.sleep(CALM)?;
            let undone = Instant::now();
            all(self.agent, &["--undo"])?;
            self.stop.sleep(CALM)?;
            Ok((drained, undone))
        })?;
        let (drained, undone) = times;
        let mut outcome = unharmed(Scenario::BackendDrained, &connections);
        let of = |from, to| {
            let to_victim = connections
                .iter()
                .filter(|c| c.server.as_deref() == Some(&victim));
            to_victim.filter(|c| c.began > from && c.began < to).count()
        };
        let during = of(drained, undone);
        outcome.expect(during == 0, || {
            format!("{during} connections were opened to {victim} while it was drained")
        });
        let again = of(undone, undone + 10 * CALM);
        outcome.expect(again > 0, || format!("{victim} was not taken back"));
        Ok(outcome)
    }

    fn balancer_killed(&mut self, segment: &Segment) -> Result<Outcome> {
        let (takeovers, connections) = while_clients_work(segment, || {
            self.stop.sleep(CALM)?;
            self.agent.signal(Signal::SIGKILL)?;
            // nobody decides, and all goes on
            self.stop.sleep(CALM)?;
            self.agent.start_process()?;
            self.stop.sleep(CALM)?;
            Ok(self.agent.events("takeover"))
        })?;
        let mut outcome = unharmed(Scenario::BalancerKilled, &connections);
        outcome.expect(takeovers > 0, || {
            "the second agent took nothing over".to_owned()
        });
        Ok(outcome)
    }

    fn policy_changed(&mut self, segment: &Segment) -> Result<Outcome> {
        let policies = [Policy::Latency, Policy::Static];
        let ((), connections) = while_clients_work(segment, || {
            for policy in policies {
                self.stop.sleep(CALM)?;
                self.agent.configure(&Settings {
                    policy,
                    ..Settings::default()
                })?;
                self.agent.signal(Signal::SIGTERM)?;
                self.agent.start_process()?;
            }
            self.stop.sleep(CALM)
        })?;
        let mut outcome = unharmed(Scenario::PolicyChanged, &connections);
        outcome.times = policies.len() as u64;
        Ok(outcome)
    }

    fn configuration_spoiled(&mut self, segment: &Segment) -> Result<Outcome> {
        let spoiled = [
            ("interval = \"1s\"\n[[service", 2),
            ("[[service]]\nname = 7\n", 2),
            ("name = \"x\"\nintervall = \"1s\"\n", 2),
        ];
        let (errors, connections) = while_clients_work(segment, || {
            self.stop.sleep(CALM)?;
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
                self.stop.sleep(CALM / 3)?;
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
            if weights.len() != SERVICES.len() * usize::from(SERVERS)
                || weights.values().any(|&w| w != 100)
            {
                bail!("the old configuration is not in force: {weights:?}");
            }
            self.agent.configure(&Settings::default())?;
            self.agent.must(&["reload"])?;
            self.stop.sleep(CALM / 3)?;
            Ok(self.agent.events("config_error"))
        })?;
        let mut outcome = unharmed(Scenario::ConfigurationSpoiled, &connections);
        outcome.times = spoiled.len() as u64;
        outcome.expect(errors >= spoiled.len() as u64, || {
            format!("{errors} errors were told for {} mistakes", spoiled.len())
        });
        Ok(outcome)
    }
}
