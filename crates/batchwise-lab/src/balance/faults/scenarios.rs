//! What is done to the balancer and its servers while clients are at work: the list, and where it
//! happens.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::host::Place;
use batchwise_testbed::nginx::Nginx;
use batchwise_testbed::process::Process;
use batchwise_testbed::segment::{self, LINK, SERVERS, Segment, SegmentSpec};
use batchwise_testbed::speed::{Brake, Speed};
use batchwise_testbed::stop::Stop;
use serde::{Deserialize, Serialize};

use super::super::agent::{Agent, Settings, WEB, WEB6, server_name};
use super::balancers::by_latency;
use super::clients::WHO;
use super::outcome::Outcome;
use super::resting::{LONG, long};

/// Room for the outer header of the tunnels.
const MTU: u32 = 1600;
/// Between two health checks.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(200);
/// For so long a check is waited for: on a slow machine servers that live must not look dead, least
/// of all all of them.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// So many checks in a row fail until a server is down.
pub(super) const FALL: u32 = 2;
/// Clients work so long before and after what is done.
pub(super) const STEADY: Duration = Duration::from_millis(1500);
/// The server to which something is done.
pub(super) const VICTIM: u8 = 1;
/// Connections of a server that was taken out rest for so long; nothing else is left of it then.
const REST: Duration = Duration::from_secs(5);
/// The same, longer than a connection without a packet is counted as active.
const LONG_REST: Duration = Duration::from_secs(65);

/// Something that is done under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The weights of all servers change every 100 ms.
    WeightsChange,
    /// Weights follow latency while servers become slow in turns; then the configured ones change
    /// every 100 ms, too.
    WeightsByLatency,
    /// A server's process is killed.
    BackendKilled,
    /// A server's cable is pulled, and plugged in again.
    HostVanished,
    /// A server is drained, and taken back.
    BackendDrained,
    /// A server is taken out of the configuration while clients still take what they asked it for,
    /// and have closed their half of the connection.
    BackendRemoved,
    /// The same, and others are silent for more than a minute.
    BackendRemovedIdle,
    /// The balancer's process is killed with SIGKILL, and started again.
    BalancerKilled,
    /// The same, and meanwhile a server was taken out of the configuration; then once more, and it
    /// is there again.
    BalancerKilledAndChanged,
    /// The balancer is started again with another policy: another program takes the old one's place.
    PolicyChanged,
    /// The configuration is spoiled, and the balancer told to read it.
    ConfigurationSpoiled,
}

impl Scenario {
    /// All that take seconds.
    pub const ALL: [Self; 10] = [
        Self::WeightsChange,
        Self::WeightsByLatency,
        Self::BackendKilled,
        Self::HostVanished,
        Self::BackendDrained,
        Self::BackendRemoved,
        Self::BalancerKilled,
        Self::BalancerKilledAndChanged,
        Self::PolicyChanged,
        Self::ConfigurationSpoiled,
    ];
    /// Those that take more than a minute.
    pub const LONG: [Self; 1] = [Self::BackendRemovedIdle];
}

/// The configuration of both services, by layer 2 and through tunnels.
pub(super) fn settings() -> Settings {
    Settings {
        services: &[WEB, WEB6],
        policy: "static",
        choices: None,
        interval: Duration::from_millis(200),
        more: "flows = 16384\ndrain_timeout = \"10m\"\n",
        weights: [100; SERVERS as usize],
        without: None,
        check_path: WHO,
        check_every: CHECK_EVERY,
        check_timeout: CHECK_TIMEOUT,
        fall: FALL,
    }
}

/// Servers before which a balancer is put.
pub(super) struct Site {
    pub(super) servers: Vec<Nginx>,
    /// How fast they are, where that can be changed.
    pub(super) speeds: Vec<Speed>,
    _brake: Option<Brake>,
    _decapsulators: Vec<Process>,
}

impl Site {
    fn start(segment: &Segment, command: &Path, stop: &Stop, slow: bool) -> Result<Self> {
        let brake = if slow { Some(Brake::build()?) } else { None };
        let mut site = Self {
            servers: Vec::new(),
            speeds: Vec::new(),
            _brake: None,
            _decapsulators: Vec::new(),
        };
        for (index, host) in (0..SERVERS).zip(&segment.servers) {
            let fill = |folder: &Path| {
                let name = server_name(index);
                std::fs::write(folder.join(WHO), &name)?;
                Ok(std::fs::write(folder.join(LONG), long(&name))?)
            };
            let server = match &brake {
                Some(brake) => {
                    let speed = brake.speed(host.namespace().name())?;
                    let change = |command: &mut _| brake.apply(&speed, command);
                    let server = Nginx::start_changed(host, stop, fill, change)?;
                    site.speeds.push(speed);
                    server
                }
                None => Nginx::start(host, stop, fill)?,
            };
            site.servers.push(server);
            let mut decap = Command::new(command);
            decap.args(["decap", "--iface", LINK, "--format", "jsonl", "--from"]);
            decap.arg(segment::balancer().1.to_string());
            let mut decap = host.spawn("the decapsulator", decap, Place::Observer)?;
            // read, so that it never blocks on a full pipe
            decap.on_line(drop);
            site._decapsulators.push(decap);
        }
        site._brake = brake;
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
    let slow = scenario == Scenario::WeightsByLatency;
    let mut site = Site::start(&segment, command, stop, slow)?;
    let settings = if slow { by_latency() } else { settings() };
    let place = (&segment.balancer, Place::Observer);
    let mut agent = Agent::start(tag, command, place, stop, &settings)?;
    let mut stage = Stage {
        agent: &mut agent,
        site: &mut site,
        stop,
    };
    let outcome = match scenario {
        Scenario::WeightsChange => stage.weights_change(&segment),
        Scenario::WeightsByLatency => stage.weights_by_latency(&segment),
        Scenario::BackendKilled => stage.backend_killed(&segment),
        Scenario::HostVanished => stage.host_vanished(&segment),
        Scenario::BackendDrained => stage.backend_drained(&segment),
        Scenario::BackendRemoved => stage.backend_removed(&segment, scenario, REST),
        Scenario::BackendRemovedIdle => stage.backend_removed(&segment, scenario, LONG_REST),
        Scenario::BalancerKilled => stage.balancer_killed(&segment),
        Scenario::BalancerKilledAndChanged => stage.balancer_killed_and_changed(&segment),
        Scenario::PolicyChanged => stage.policy_changed(&segment),
        Scenario::ConfigurationSpoiled => stage.configuration_spoiled(&segment),
    };
    let mut outcome = outcome?;
    let printed = agent.printed();
    outcome.totals = printed.totals.clone();
    let events = printed.events.iter().filter(|e| e.what != "reload");
    outcome.events = events.cloned().collect();
    drop(printed);
    Ok(outcome)
}

/// Where a scenario happens.
pub(super) struct Stage<'s, 'a> {
    pub(super) agent: &'s mut Agent<'a>,
    pub(super) site: &'s mut Site,
    pub(super) stop: &'s Stop,
}
