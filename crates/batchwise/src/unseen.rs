//! What `watch` and `tune` do not see, said once: connections whose data go past the hooks, and ports on which
//! nothing is.

use std::collections::{BTreeMap, BTreeSet};

use batchwise_bpf::{Connection, Sensor};
use batchwise_core::sense::connection::Bypass;

use crate::frame::args::{Ports, name_of};

/// Connections of which nothing is seen, by the service's port.
#[derive(Debug, Default)]
pub struct Bypassed(BTreeMap<(u16, Bypass), u64>);

impl Bypassed {
    /// Counts it, if it is one.
    pub fn add(&mut self, c: &Connection) -> bool {
        let of = c.vitals.bypass.map(|by| (c.service().server.port(), by));
        of.into_iter()
            .for_each(|of| *self.0.entry(of).or_default() += 1);
        of.is_some()
    }

    /// Of two moments: how many there were at most.
    pub fn most(&mut self, other: Self) {
        for (of, count) in other.0 {
            let most = self.0.entry(of).or_default();
            *most = count.max(*most);
        }
    }
}

/// What is not seen.
#[derive(Debug)]
pub struct Unseen {
    /// Ports on which nothing has been met.
    unmet: Vec<Ports>,
    said: BTreeSet<(u16, Option<Bypass>)>,
    /// What is so now, in words.
    pub notes: Vec<String>,
}

impl Unseen {
    pub fn on(ports: &[Ports]) -> Self {
        Self {
            unmet: ports.to_vec(),
            said: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    /// An interval is over in which there were connections on the ports `met`, and these that are not seen.
    pub fn look(&mut self, met: &BTreeSet<u16>, bypassed: &Bypassed, sensor: &Sensor) {
        let mut now: Vec<((u16, Option<Bypass>), String)> = Vec::new();
        for (&(port, by), count) in &bypassed.0 {
            self.unmet.retain(|ports| !ports.contains(&port));
            let (connections, are) = match count {
                1 => ("connection", "is"),
                _ => ("connections", "are"),
            };
            let how = by.words();
            let note = format!("{count} {connections} {how} on port {port} {are} not seen");
            now.push(((port, Some(by)), note));
        }
        let is_in = |all: &BTreeSet<u16>, ports: &Ports| all.range(ports.clone()).next().is_some();
        self.unmet.retain(|ports| !is_in(met, ports));
        if !self.unmet.is_empty() {
            match sensor.listeners() {
                Ok(all) => {
                    let listened = all.iter().map(|(_, listener)| listener.at.port()).collect();
                    self.unmet.retain(|ports| !is_in(&listened, ports));
                }
                Err(error) => {
                    tracing::debug!("{error}");
                    self.unmet.clear();
                }
            }
        }
        let nothing = |ports: &Ports| {
            let name = name_of(ports);
            let note = format!("nothing listens on port {name}, and nobody is connected to it");
            ((*ports.start(), None), note)
        };
        now.extend(self.unmet.iter().map(nothing));
        for (what, note) in &now {
            if self.said.insert(*what) {
                tracing::warn!("{note}");
            }
        }
        self.notes = now.into_iter().map(|(_, note)| note).collect();
    }
}
