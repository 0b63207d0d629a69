//! Which numbers and indices a configuration has in the kernel's maps: those that it had before,
//! so that connections stay where they are, across a reload and across a restart.

use std::collections::{BTreeMap, BTreeSet};

use batchwise_bpf::balance::{Backend, Service, ServiceKey};

use super::config::{self, Config, MOST_BACKENDS, MOST_SERVICES, wrong};

#[derive(Clone, Debug, Default)]
pub struct Pinned {
    /// Services by where they are reached.
    pub services: Vec<(ServiceKey, Service)>,
    /// Backends by index.
    pub backends: Vec<(u16, Backend)>,
}

/// A service's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    pub number: u16,
    /// Its backends' places, in the configuration's order.
    pub backends: Vec<Slot>,
}

/// A backend's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub index: u16,
    /// What the maps say of it, if it was there before.
    pub before: Option<Backend>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the configuration's order.
    pub services: Vec<Slots>,
    /// Services that are in the maps but not wanted any more.
    pub gone: Vec<ServiceKey>,
    /// Backends of services that stay, not wanted any more: they may have connections.
    pub leaving: Vec<(u16, Backend)>,
    /// Backends of services that go.
    pub orphans: Vec<u16>,
}

/// Where clients find a service.
pub fn key(service: &config::Service) -> ServiceKey {
    ServiceKey {
        address: service.address,
        port: service.port,
        protocol: service.protocol,
    }
}

/// Gives numbers and indices. A service is the same if its address, port and protocol are; a backend
/// is if its service and its address are.
pub fn plan(config: &Config, pinned: &Pinned) -> anyhow::Result<Plan> {
    let known: BTreeMap<ServiceKey, u16> = pinned
        .services
        .iter()
        .map(|(key, service)| (*key, service.number))
        .collect();
    let wanted: BTreeSet<ServiceKey> = config.services.iter().map(key).collect();
    let staying = |key: &ServiceKey| wanted.contains(key);
    let mut numbers: BTreeSet<u16> = known
        .iter()
        .filter(|(key, _)| staying(key))
        .map(|(_, number)| *number)
        .collect();
    let occupied = || pinned.backends.iter();
    let mut plan = Plan {
        gone: known.keys().filter(|key| !staying(key)).copied().collect(),
        ..Plan::default()
    };
    plan.orphans = occupied()
        .filter(|(_, b)| !numbers.contains(&b.service))
        .map(|(index, _)| *index)
        .collect();
    // an index whose backend has just gone rests until the next change
    let mut indices: BTreeSet<u16> = occupied().map(|(index, _)| *index).collect();
    let mut taken = BTreeSet::new();
    for service in &config.services {
        let full = |what: &str| wrong(&config.file, service.line, what);
        let number = match known.get(&key(service)) {
            Some(number) => *number,
            None => free(&mut numbers, 0..=MOST_SERVICES as u16 - 1)
                .ok_or_else(|| full("no service number is left: remove a service first"))?,
        };
        let mut backends = Vec::new();
        for backend in &service.backends {
            let same = occupied()
                .find(|(_, b)| b.service == number && b.address == backend.address)
                .filter(|(index, _)| !plan.orphans.contains(index));
            let slot = match same {
                Some((index, before)) => Slot {
                    index: *index,
                    before: Some(*before),
                },
                None => Slot {
                    index: free(&mut indices, 1..=MOST_BACKENDS as u16).ok_or_else(|| {
                        wrong(
                            &config.file,
                            backend.line,
                            "no place is left for this backend while removed ones still drain: reload again later",
                        )
                    })?,
                    before: None,
                },
            };
            taken.insert(slot.index);
            backends.push(slot);
        }
        plan.services.push(Slots { number, backends });
    }
    plan.leaving = occupied()
        .filter(|(index, _)| !taken.contains(index) && !plan.orphans.contains(index))
        .copied()
        .collect();
    Ok(plan)
}

fn free(used: &mut BTreeSet<u16>, mut of: std::ops::RangeInclusive<u16>) -> Option<u16> {
    of.find(|n| used.insert(*n))
}

#[cfg(test)]
mod tests {
    use super::super::backend::unknown;
    use super::super::samples::config;
    use super::*;

    fn pinned(config: &Config, plan: &Plan) -> Pinned {
        let mut pinned = Pinned::default();
        for (service, place) in config.services.iter().zip(&plan.services) {
            let value = Service {
                number: place.number,
                by_client: false,
                two_choices: false,
            };
            pinned.services.push((key(service), value));
            for (wanted, slot) in service.backends.iter().zip(&place.backends) {
                let value = unknown(wanted, service.method, place.number);
                pinned.backends.push((slot.index, value));
            }
        }
        pinned
    }

    #[test]
    fn the_same_configuration_has_the_same_places_again_in_any_order() {
        let first = config(&[
            ("10.9.0.1", &["10.0.0.1", "10.0.0.2"]),
            ("10.9.0.2", &["10.0.0.1"]),
        ]);
        let before = plan(&first, &Pinned::default()).expect("room");
        assert_eq!(before.services[0].number, 0);
        let other = config(&[
            ("10.9.0.2", &["10.0.0.1"]),
            ("10.9.0.1", &["10.0.0.2", "10.0.0.1"]),
        ]);
        let after = plan(&other, &pinned(&first, &before)).expect("room");
        assert_eq!(after.services[1].number, before.services[0].number);
        let index = |p: &Plan, s: usize, b: usize| p.services[s].backends[b].index;
        assert_eq!(index(&after, 1, 1), index(&before, 0, 0));
        assert_eq!(index(&after, 1, 0), index(&before, 0, 1));
        assert_eq!(index(&after, 0, 0), index(&before, 1, 0));
        assert!(after.leaving.is_empty() && after.gone.is_empty() && after.orphans.is_empty());
    }

    #[test]
    fn a_backend_that_is_taken_out_leaves_and_a_new_one_does_not_get_its_index() {
        let first = config(&[("10.9.0.1", &["10.0.0.1", "10.0.0.2"])]);
        let before = plan(&first, &Pinned::default()).expect("room");
        let other = config(&[("10.9.0.1", &["10.0.0.2", "10.0.0.3"])]);
        let after = plan(&other, &pinned(&first, &before)).expect("room");
        let left: Vec<u16> = after.leaving.iter().map(|(index, _)| *index).collect();
        assert_eq!(left, [1]);
        let indices: Vec<u16> = after.services[0].backends.iter().map(|s| s.index).collect();
        assert_eq!(indices, [2, 3]);
        assert!(after.services[0].backends[1].before.is_none());
    }

    #[test]
    fn a_service_that_is_taken_out_goes_with_its_backends() {
        let first = config(&[("10.9.0.1", &["10.0.0.1"]), ("10.9.0.2", &["10.0.0.1"])]);
        let before = plan(&first, &Pinned::default()).expect("room");
        let other = config(&[("10.9.0.2", &["10.0.0.1"])]);
        let after = plan(&other, &pinned(&first, &before)).expect("room");
        assert_eq!(after.gone, [key(&first.services[0])]);
        assert_eq!(after.orphans, [1]);
        assert!(after.leaving.is_empty());
        assert_eq!(after.services[0].number, 1);
    }
}
