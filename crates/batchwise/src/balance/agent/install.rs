//! Brings a configuration into force: first all that can fail, which changes nothing; then the maps
//! are written so that no connection breaks.

use std::collections::BTreeMap;

use anyhow::Context;
use batchwise_bpf::balance::probe::{self, Attached};
use batchwise_bpf::balance::{self as bpf, Balancer};
use batchwise_core::balance::SLOTS;
use batchwise_core::balance::report::Health;

use super::super::attempt::Target;
use super::super::backend::{Backend, unknown};
use super::super::config::{self, Kind};
use super::super::health::Checks;
use super::super::judge::{self, Checked};
use super::super::nexthop::NextHop;
use super::super::plan::{Pinned, Plan, Slot, key, plan};
use super::super::service::Service;
use super::leaving::unnamed;
use super::{Agent, Leaving};

/// A configuration that nothing keeps from being brought into force.
pub(super) struct Ready {
    checked: Checked,
    plan: Plan,
    /// What the maps' tables say, in the configuration's order.
    rings: Vec<Vec<u16>>,
    /// For services that have none, by number.
    fresh: Vec<(u16, bpf::Ring)>,
    /// At exits that have none yet.
    probes: BTreeMap<u32, Attached>,
    /// The program that measures otherwise, to take the place of the one in the pinned links.
    pub(super) balancer: Option<Balancer>,
}

impl Agent {
    /// Does all that may fail and changes nothing of what is in force.
    pub(super) fn prepare(&mut self, checked: Checked) -> anyhow::Result<Ready> {
        let pinned = Pinned {
            services: self.balancer.services()?,
            backends: self.balancer.backends()?,
        };
        let plan = plan(&checked.config, &pinned)?;
        let (mut rings, mut fresh) = (Vec::new(), Vec::new());
        for place in &plan.services {
            let mut services = pinned
                .services
                .iter()
                .filter(|(_, s)| s.number == place.number);
            // the number of one that goes may have a new owner, whose table is empty
            rings.push(if services.all(|(key, _)| plan.gone.contains(key)) {
                fresh.push((place.number, bpf::Ring::new()?));
                vec![0; SLOTS]
            } else {
                self.balancer.ring(place.number)?
            });
        }
        let probes = self.exits.prepare(&checked.exits)?;
        Ok(Ready {
            checked,
            plan,
            rings,
            fresh,
            probes,
            balancer: None,
        })
    }

    /// Brings into force what was prepared.
    ///
    /// # Errors
    /// The kernel does not let us write: what was prepared is partly in force.
    pub(super) fn install(&mut self, ready: Ready) -> anyhow::Result<()> {
        let Ready {
            checked,
            plan,
            rings,
            fresh,
            probes,
            balancer,
        } = ready;
        if let Some(mut balancer) = balancer {
            balancer.attach().context("replacing the programs")?;
            self.balancer = balancer;
        }
        self.exits.add(probes);
        let mut former = BTreeMap::new();
        let mut before: BTreeMap<u16, Service> =
            self.services.drain(..).map(|s| (s.number, s)).collect();
        let specs = checked.config.services.iter();
        for ((spec, place), ring) in specs.zip(&plan.services).zip(rings) {
            let backends = spec.backends.iter().zip(&place.backends);
            let backends = backends.map(|(backend, slot)| {
                let way = checked.known.way(backend.address, spec.method);
                let mut new = new_backend(spec, place.number, backend, slot, way);
                let mut leaving = self.leaving.iter();
                if let Some(back) = leaving.find(|l| l.backend.index == slot.index) {
                    new.health = back.backend.health.clone();
                    new.trusted = back.backend.trusted;
                    let counted = self.census.get(usize::from(slot.index));
                    new.connections = counted.map(|c| c.active);
                }
                new
            });
            let mut service = Service::new(spec.clone(), place.number, ring, backends.collect());
            let same = before.remove(&place.number);
            if let Some(before) = same.filter(|before| key(&before.spec) == key(spec)) {
                former.append(&mut service.inherit(before, self.config.policy));
            }
            self.services.push(service);
        }
        self.config = checked.config;
        self.index();
        for doubt in self.config.doubts() {
            self.journal.warn("config", &[&doubt.service], &doubt.what);
        }
        self.follow_exits(&checked.known);
        for fault in &checked.faults {
            self.journal
                .warn("neighbour", &[&fault.service, &fault.backend], &fault.what);
        }
        let written = self.write_plan(plan, fresh, former);
        // health is looked after in any case
        let watched = self.watch();
        self.let_choose()?;
        self.say_empty();
        written.and(watched)
    }

    fn write_plan(
        &mut self,
        plan: Plan,
        fresh: Vec<(u16, bpf::Ring)>,
        mut former: BTreeMap<u16, Backend>,
    ) -> anyhow::Result<()> {
        for key in &plan.gone {
            self.balancer.remove_service(key)?;
            let detail = format!("{}:{} is a service no more", key.address, key.port);
            self.journal.event("service", &[], detail);
        }
        for index in &plan.orphans {
            self.balancer.vacate(*index)?;
        }
        for (number, ring) in fresh {
            self.balancer.set_ring(number, &ring)?;
        }
        self.push()?;
        for service in &self.services {
            let value = bpf::Service {
                number: service.number,
                by_client: service.spec.by_client,
                two_choices: service.spec.two_choices(self.config.policy),
            };
            self.balancer.set_service(key(&service.spec), value)?;
        }
        let still = |l: &Leaving| plan.leaving.iter().any(|(i, _)| *i == l.backend.index);
        self.leaving.retain(still);
        for (index, mut written) in plan.leaving {
            if !self.leaving.iter().any(|l| l.backend.index == index) {
                written.state = bpf::State::Draining;
                let backend = former.remove(&index);
                let backend = backend.unwrap_or_else(|| unnamed(index, written));
                let service = self.services.iter().find(|s| s.number == written.service);
                let service = service.map_or_else(String::new, |s| s.spec.name.clone());
                self.leave(service, Backend { written, ..backend })?;
            }
        }
        // an index goes on counting when it changes hands
        for (index, tally) in self.balancer.backend_tallies()? {
            self.tallies.entry(index).or_insert(tally);
        }
        Ok(())
    }

    /// Which index is whose.
    fn index(&mut self) {
        self.places.clear();
        for (s, service) in self.services.iter().enumerate() {
            for (b, backend) in service.backends.iter().enumerate() {
                self.places.insert(backend.index, (s, b));
            }
        }
    }

    /// Health checks and routes of the configuration in force.
    fn watch(&mut self) -> anyhow::Result<()> {
        let mut targets = Vec::new();
        for service in &mut self.services {
            let check = &service.spec.check;
            for backend in &mut service.backends {
                let unchecked = check.kind == Kind::None;
                if unchecked != (backend.health.state() == Health::Unchecked) {
                    backend.trusted = backend.written.state == bpf::State::Serving;
                    backend.health = Checks::new(if unchecked {
                        Health::Unchecked
                    } else {
                        Health::Unknown
                    });
                }
                if !unchecked {
                    targets.push(Target {
                        index: backend.index,
                        address: service.spec.address,
                        mark: probe::mark(backend.index),
                        check: check.clone(),
                    });
                }
            }
        }
        self.checker.want(targets)?;
        self.follower.follow(judge::wanted(&self.config, true))
    }
}

fn new_backend(
    service: &config::Service,
    number: u16,
    spec: &config::Backend,
    slot: &Slot,
    way: Result<NextHop, String>,
) -> Backend {
    let health = match (&service.check.kind, slot.before) {
        (Kind::None, _) => Health::Unchecked,
        (_, Some(before)) if before.state == bpf::State::Down => Health::Down,
        _ => Health::Unknown,
    };
    let new = unknown(spec, service.method, number);
    let mut written = slot.before.unwrap_or(new);
    if written.weight == 0 {
        (written.weight, written.base_weight) = (new.weight, new.base_weight);
    }
    // what the maps say of a station on link holds while the kernel has forgotten it
    let way = way.map(|way| {
        let same = slot.before.filter(|before| {
            before.ifindex == way.ifindex && way.station == spec.address && before.mac != [0; 6]
        });
        NextHop {
            mac: way.mac.or(same.map(|before| before.mac)),
            ..way
        }
    });
    Backend::new(spec.clone(), slot.index, written, Checks::new(health), way)
}
