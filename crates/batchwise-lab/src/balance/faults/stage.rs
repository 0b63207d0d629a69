//! Where scenarios happen: a segment, its servers, the balancer before them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use batchwise_core::balance::report::BackendLine;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::segment::{self, LINK, SERVERS, Segment};
use batchwise_testbed::stop::Stop;

use super::super::agent::{Agent, NAMES, Settings, WEB, WEB6};
use super::super::site::Site;
use super::clients::WHO;
use super::resting::{LONG, long};

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
pub(super) const VICTIM_NAME: &str = NAMES[VICTIM as usize];
/// A slow server's answers to health checks come later than others', and it is not down.
const PATIENT: Duration = Duration::from_secs(10);

fn checks(timeout: Duration) -> String {
    let [every, timeout] = [CHECK_EVERY, timeout].map(humantime::format_duration);
    format!("path = \"/{WHO}\"\ninterval = \"{every}\"\ntimeout = \"{timeout}\"\nfall = {FALL}\n")
}

/// The configuration of both services, by layer 2 and through tunnels.
pub(crate) fn settings() -> Settings {
    Settings {
        services: &[WEB, WEB6],
        policy: "static",
        choices: None,
        more: "interval = \"200ms\"\nflows = 16384\ndrain_timeout = \"10m\"\n",
        checks: checks(CHECK_TIMEOUT),
        weights: [100; SERVERS as usize],
        without: None,
    }
}

/// The same, and weights follow latency.
pub(super) fn by_latency() -> Settings {
    Settings {
        policy: "latency",
        checks: checks(PATIENT),
        ..settings()
    }
}

pub(super) struct Stage<'a> {
    pub(super) agent: Agent<'a>,
    pub(super) site: Site,
    pub(super) decapsulators: Vec<Process>,
    command: &'a Path,
    pub(super) segment: &'a Segment,
    pub(super) stop: &'a Stop,
}

impl<'a> Stage<'a> {
    /// Starts the servers and the balancer, whose pins and socket have this name.
    pub(super) fn start(
        segment: &'a Segment,
        name: &str,
        command: &'a Path,
        stop: &'a Stop,
        settings: &Settings,
    ) -> Result<Self> {
        let site = Site::start(segment, stop, |name, folder| {
            fs::write(folder.join(WHO), name)?;
            Ok(fs::write(folder.join(LONG), long(name))?)
        })?;
        let decapsulators = segment
            .servers
            .iter()
            .map(|host| decapsulator(command, host));
        let place = (&segment.balancer, Role::Observer);
        Ok(Self {
            site,
            decapsulators: decapsulators.collect::<Result<_>>()?,
            command,
            agent: Agent::start(name, command, place, stop, settings)?,
            segment,
            stop,
        })
    }

    /// Another decapsulator for the server with this index.
    pub(super) fn decapsulator(&self, index: usize) -> Result<Process> {
        decapsulator(self.command, &self.segment.servers[index])
    }

    /// Waits until the lines of the victim are so, of both services.
    pub(super) fn victim_has(&self, what: &str, is: impl Fn(&BackendLine) -> bool) -> Result<()> {
        let what = format!("{VICTIM_NAME} has {what}");
        [WEB, WEB6]
            .into_iter()
            .try_for_each(|service| self.agent.until(&what, service, VICTIM_NAME, &is))
    }
}

fn decapsulator(command: &Path, host: &Host) -> Result<Process> {
    let mut decap = Command::new(command);
    decap.args(["decap", "--iface", LINK, "--format", "jsonl", "--from"]);
    decap.arg(segment::balancer().1.to_string());
    let mut decap = host.spawn("the decapsulator", decap, Role::Observer)?;
    // read, so that it never blocks on a full pipe
    decap.on_line(drop);
    Ok(decap)
}
