//! Where health checks leave: the probes at the interfaces of the routes to services, which follow
//! these.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use batchwise_bpf::balance::probe::{Attached, Probe};
use batchwise_core::balance::report::Health;

use super::super::config::{Kind, Service};
use super::super::judge;
use super::super::nexthop::{self, NetworkState};
use super::{Agent, Exits, due};

/// Routes are looked at again so often, at most, because checks went astray.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Trouble of this machine with checks is spoken of so often, at most.
const SAY_AGAIN: Duration = Duration::from_secs(60);

impl Exits {
    pub(super) fn new(probe: Probe) -> Self {
        Self {
            probe,
            attached: BTreeMap::new(),
            by_service: BTreeMap::new(),
            looked: None,
            said: None,
        }
    }

    /// Attaches a probe to each of these that has none yet; what was there before stays.
    pub(super) fn prepare(
        &mut self,
        exits: &BTreeMap<u32, String>,
    ) -> anyhow::Result<BTreeMap<u32, Attached>> {
        self.forget_lost();
        let new = exits
            .iter()
            .filter(|(index, _)| !self.attached.contains_key(index));
        let attach = |(index, name): (&u32, &String)| {
            let attached = self.probe.attach(*index);
            let attached =
                attached.with_context(|| format!("cannot send health checks by {name}"))?;
            Ok((*index, attached))
        };
        new.map(attach).collect()
    }

    pub(super) fn add(&mut self, new: BTreeMap<u32, Attached>) {
        self.attached.extend(new);
    }

    /// Drops probes that somebody took from their interface. Before new ones are attached: a tc filter
    /// that is dropped takes with it what is attached in its place.
    fn forget_lost(&mut self) {
        self.attached.retain(|index, a| a.ifindex() == Some(*index));
    }

    /// Whether the checks of a service say nothing.
    pub(super) fn lost(&self, service: &str) -> bool {
        matches!(self.by_service.get(service), Some(Err(_)))
    }

    /// The exit of a service, with a probe.
    fn find(&mut self, service: &Service, known: &NetworkState) -> Result<u32, String> {
        let exit = nexthop::service_route(known, service.address, true)?;
        let (index, link) = exit.ok_or("the interface of its route has gone")?;
        if self.by_service.get(&service.name) != Some(&Ok(index)) {
            judge::filtered(service, &link.name, known, judge::reverse_path_filter)?;
        }
        if !self.attached.contains_key(&index) {
            let attached = self.probe.attach(index).map_err(|e| e.to_string())?;
            self.attached.insert(index, attached);
        }
        Ok(index)
    }
}

impl Agent {
    /// Takes the probes to where the routes to services lead; true: what is known of backends' health
    /// has changed.
    pub(super) fn follow_exits(&mut self, known: &NetworkState) -> bool {
        let mut changed = false;
        let mut by_service = BTreeMap::new();
        self.exits.forget_lost();
        for service in &mut self.services {
            if service.spec.check.kind == Kind::None {
                continue;
            }
            let name = &service.spec.name;
            let exit = self.exits.find(&service.spec, known);
            let before = self.exits.by_service.get(name);
            if before.is_some_and(|before| *before != exit) || (before.is_none() && exit.is_err()) {
                match &exit {
                    Ok(index) => {
                        let by = known.links.get(index).map_or("", |link| &link.name);
                        let detail = format!("health checks leave by {by}");
                        self.journal.event("probe", &[name], detail);
                    }
                    Err(why) => {
                        let detail =
                            format!("health checks say nothing until this is mended: {why}");
                        self.journal.warn("probe", &[name], &detail);
                    }
                }
            }
            if let Err(why) = &exit {
                for backend in &mut service.backends {
                    // whoever served goes on
                    backend.trusted |= backend.health.state() == Health::Up;
                    changed |= backend.health.forget(why);
                }
            }
            by_service.insert(name.clone(), exit);
        }
        self.exits.by_service = by_service;
        let used: Vec<u32> = self.exits.by_service.values().flatten().copied().collect();
        self.exits.attached.retain(|index, _| used.contains(index));
        changed
    }

    /// A check did not leave by the probe: the route has moved, or nothing left at all.
    pub(super) fn look_again(&mut self) -> anyhow::Result<()> {
        if due(&mut self.exits.looked, LOOK_AGAIN) {
            self.follower.follow(judge::wanted(&self.config, true))?;
        }
        Ok(())
    }

    /// This machine cannot make checks.
    pub(super) fn say_local(&mut self, why: &str) {
        if due(&mut self.exits.said, SAY_AGAIN) {
            let detail =
                format!("health checks cannot be made, what was known of backends holds: {why}");
            self.journal.warn("checks", &[], &detail);
        }
    }
}
