//! The scenarios, what came of one, and what is counted against the balancer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Instant;

use batchwise_core::balance::report::{EventLine, TotalsLine};
use batchwise_testbed::segment::{SERVERS, VIP, VIP6};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::clients::{Connection, End};
use super::stage::VICTIM_NAME;

/// Something that is done under load.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The weights of all servers change every 100 ms.
    #[default]
    WeightsChange,
    /// Weights follow latency while servers become slow in turns; then the configured ones change
    /// every 100 ms, too.
    WeightsByLatency,
    /// The weights of all servers change every 100 ms while a client's host floods the service with ACKs of
    /// connections that there are not, and with UDP.
    WeightsFlooded,
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
    /// The configuration is spoiled, and the balancer reads it again.
    ConfigurationSpoiled,
    /// The configuration has a typo that nobody has read yet; the balancer is killed and started again, and
    /// a server dies meanwhile.
    TypoAndCrash,
    /// The balancer and then each decapsulator are ended and started again, as an upgrade does.
    Upgraded,
}

/// What came of a scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// Answers of another server than the connection's.
    #[serde(default)]
    pub misled: u64,
    /// Of `balance` and `decap`, those that were not there in the end.
    #[serde(default)]
    pub agents_died: u64,
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
    /// Packets of a flood.
    #[serde(default)]
    pub flood_packets: u64,
    /// What a client waited for longest, a connection or an answer, ns.
    pub longest_wait_ns: u64,
    /// Packets' fates, in the balancer's last line of totals.
    pub totals: TotalsLine,
    /// The last agent's events, except reloads.
    pub events: Vec<EventLine>,
    /// What was not as it must be, in words, the first of each kind.
    pub wrong: Vec<String>,
}

impl Outcome {
    /// Nothing counted against anybody yet.
    pub(super) fn of(connections: &[Connection]) -> Self {
        let mut outcome = Self {
            times: 1,
            ..Self::default()
        };
        for connection in connections {
            outcome.connections += u64::from(!matches!(connection.end, End::Refused(_)));
            outcome.answers += connection.answers;
            outcome.misled += u64::from(connection.misled);
            outcome.longest_wait_ns = outcome
                .longest_wait_ns
                .max(connection.longest.as_nanos() as u64);
        }
        outcome
    }

    /// This connection did not go as it must.
    pub(super) fn count_against(&mut self, connection: &Connection) {
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

    /// No connection went to the victim in this time, which is put in words.
    pub(super) fn expect_none(
        &mut self,
        connections: &[Connection],
        during: Range<Instant>,
        when: &str,
    ) {
        let to_victim = connections.iter().filter(|c| c.was_to(VICTIM_NAME));
        let count = to_victim.filter(|c| during.contains(&c.began)).count();
        self.expect(count == 0, || {
            format!("{count} connections were opened to {VICTIM_NAME} {when}")
        });
    }

    /// The victim gets connections again.
    pub(super) fn expect_back(&mut self, connections: &[Connection], since: Instant) {
        let mut later = connections.iter().filter(|c| c.began >= since);
        self.expect(later.any(|c| c.was_to(VICTIM_NAME)), || {
            format!("{VICTIM_NAME} was not taken back")
        });
    }

    /// What must be, or words for what is instead.
    pub(super) fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(otherwise());
        }
    }
}

/// All of them must have gone well.
pub(super) fn unharmed(connections: &[Connection]) -> Outcome {
    let mut outcome = Outcome::of(connections);
    connections.iter().for_each(|c| outcome.count_against(c));
    for service in [IpAddr::from(VIP), VIP6.into()] {
        let of = connections.iter().filter(|c| c.service == service);
        let servers: BTreeSet<_> = of.filter_map(|c| c.server.as_deref()).collect();
        outcome.expect(servers.len() == usize::from(SERVERS), || {
            format!("only {servers:?} answered for {service}")
        });
    }
    outcome
}
