//! What the agent hears between two decisions, and acts upon at once: epochs, health, neighbours.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use batchwise_core::balance::report::Health;
use batchwise_core::passive::Epoch;

use super::super::attempt::Outcome;
use super::super::config::Kind;
use super::super::nexthop::{NetworkState, ask};
use super::{Agent, StationsAsked};
use crate::frame::human;

/// A station whose checks fail is asked again for its MAC address so often, at most;
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// and every station so often: what XDP sends tells the kernel nothing of whether it arrives.
const ASK_ALL: Duration = Duration::from_secs(30);

/// What is said of a backend whose checks did not leave as traffic does.
const UNPROBED: &str = "its checks do not leave by the route to the service: look whether its next hop \
                        answers ARP (`ip route get`, `ip neigh`), and whether a firewall drops them";

impl StationsAsked {
    /// Asks one that was not asked within `every`; true: it was not.
    fn ask(&mut self, station: IpAddr, every: Duration) -> bool {
        let now = Instant::now();
        if self.0.get(&station).is_some_and(|at| now - *at < every) {
            return false;
        }
        self.0.retain(|_, at| now - *at < ASK_ALL);
        self.0.insert(station, now);
        ask(station);
        true
    }
}

impl Agent {
    /// Takes the epochs that have closed.
    pub(super) fn take_epochs(&mut self) -> anyhow::Result<()> {
        let epochs = self.balancer.poll()?;
        self.count_epochs(epochs);
        Ok(())
    }

    pub(super) fn count_epochs(&mut self, epochs: Vec<Epoch>) {
        for epoch in epochs {
            let place = epoch.tuple.and_then(|t| self.places.get(&t.backend));
            if let Some(&(service, backend)) = place {
                self.services[service].epoch(backend, &epoch);
            }
        }
    }

    /// Health and neighbours: what changed is acted upon at once.
    pub(super) fn sense(&mut self) -> anyhow::Result<()> {
        let mut changed = false;
        for (index, outcome) in self.checker.found()? {
            let Some(&(at, backend)) = self.places.get(&index) else {
                continue;
            };
            let service = &mut self.services[at];
            if self.exits.lost(&service.spec.name) {
                continue; // that it says nothing has been said
            }
            let (check, backend) = (&service.spec.check, &mut service.backends[backend]);
            let served = backend.health.state() == Health::Up;
            let change = match &outcome {
                Outcome::Passed => {
                    backend.confirmed |= matches!(check.kind, Kind::Http { .. });
                    backend.health.checked(check, Ok(()))
                }
                Outcome::Failed(why) => {
                    // another machine may have the address by now, or the machine another MAC address
                    if let Ok(way) = &backend.way
                        && self.asked.ask(way.station, ASK_AGAIN)
                    {
                        self.kernel.probe(way);
                    }
                    backend.health.checked(check, Err(why.clone()))
                }
                Outcome::Unprobed => backend.health.silent(check, UNPROBED, Instant::now()),
                Outcome::Local(why) => backend.health.silent(check, why, Instant::now()),
            };
            let state = backend.health.state();
            // whoever served goes on
            backend.trusted |= change && served && state == Health::Unknown;
            if change {
                changed = true;
                let why = backend.health.why().map(|why| format!(": {why}"));
                let detail = human::word(&state) + &why.unwrap_or_default();
                if state == Health::Up {
                    self.journal
                        .event("health", &[&service.spec.name, &backend.spec.name], detail);
                } else {
                    self.journal
                        .warn("health", &[&service.spec.name, &backend.spec.name], &detail);
                }
            }
            match outcome {
                Outcome::Unprobed => self.look_again()?,
                Outcome::Local(why) => self.say_local(&why),
                Outcome::Passed | Outcome::Failed(_) => {}
            }
        }
        if let Some(known) = self.follower.news()? {
            changed |= self.follow_exits(&known);
            changed |= self.follow(&known);
        }
        if changed {
            self.push()?;
            self.say_empty();
        }
        Ok(())
    }

    fn follow(&mut self, known: &NetworkState) -> bool {
        let mut changed = false;
        for service in &mut self.services {
            for backend in &mut service.backends {
                let before = backend.way.as_ref().ok();
                let way = known.way(backend.spec.address, service.spec.method);
                let way = way.map(|way| {
                    let every = if way.mac.is_none() {
                        ASK_AGAIN
                    } else {
                        ASK_ALL
                    };
                    self.asked.ask(way.station, every);
                    way.remembering(before)
                });
                if way == backend.way {
                    continue;
                }
                changed = true;
                let detail = match &way {
                    Ok(way) => format!(
                        "by {} to {}",
                        way.interface,
                        way.mac.map_or_else(|| "nobody".to_owned(), mac_text)
                    ),
                    Err(why) => why.clone(),
                };
                self.journal.event(
                    "neighbour",
                    &[&service.spec.name, &backend.spec.name],
                    detail,
                );
                backend.way = way;
            }
        }
        changed
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    let parts: Vec<String> = mac.iter().map(|b| format!("{b:02x}")).collect();
    parts.join(":")
}
