//! Reads the histograms of latencies that the programs keep for each service.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use batchwise_core::passive::address;
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Side;
use batchwise_core::sense::tails::{Histogram, Latencies};
use libbpf_rs::MapCore as _;

use super::shared::Tally;
use super::{Sensor, store};
use crate::Error;
use crate::object::percpu;
use crate::plain::read;
use crate::sense_skel::types;

/// So many services have histograms.
const MOST: u32 = types::sense_tails_size::SENSE_TAILS.0;
const SHIFT: u32 = types::sense_hist_size::SENSE_HIST_SHIFT.0;

/// What was read last, to tell what is new.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// By index, whichever service's.
    read: HashMap<u32, Latencies>,
    /// Indices that were taken from services, a bit each; programs that ran meanwhile have ended at the next reading.
    leaving: u64,
    warned: bool,
}

impl Sensor {
    /// The latencies of each service's requests since the last call.
    pub fn tails(&mut self) -> Result<Vec<(ServiceKey, Latencies)>, Error> {
        let held = self.shared.tally(Tally::TailsHeld).swap(0, Relaxed);
        let wanted = self.shared.tally(Tally::TailsWanted).swap(0, Relaxed);
        self.give_back()?;
        let taken = self.shared.tally(Tally::TailsTaken).load(Relaxed);
        let mut found = Vec::new();
        let keys: Vec<_> = self.skel.maps.services.keys().collect();
        for key in keys {
            let services = &self.skel.maps.services;
            let service = read::<types::sense_service>(&key);
            let id = services.lookup(&key, libbpf_rs::MapFlags::ANY);
            let id = id.map_err(Error::bpf("looking up a service"))?;
            let id = id.and_then(|bytes| read::<u32>(&bytes));
            let (Some(service), Some(id)) = (service, id) else {
                continue;
            };
            let index = id % MOST;
            let new = self.new_at(index)?;
            let idle = held >> index & 1 == 0 && new.is_empty();
            if idle && taken == u64::MAX {
                let services = &self.skel.maps.services;
                let deleted = services.delete(&key);
                deleted.map_err(Error::bpf("forgetting a service"))?;
                store!(self.shared, tails_owner[index as usize], 0);
                self.before.leaving |= 1 << index;
                continue;
            }
            let key = ServiceKey {
                server: SocketAddr::new(address(service.addr), service.port),
                netns: service.netns,
                side: match service.server {
                    0 => Side::Client,
                    _ => Side::Server,
                },
            };
            found.push((key, new));
        }
        if taken == u64::MAX && wanted > 0 && self.before.leaving == 0 && !self.before.warned {
            self.before.warned = true;
            tracing::warn!(
                "{MOST} services, from either side, have percentiles at once: the others have means alone"
            );
        }
        Ok(found)
    }

    /// Gives indices back; what came last is not the next service's.
    fn give_back(&mut self) -> Result<(), Error> {
        let leaving = std::mem::take(&mut self.before.leaving);
        for index in (0..MOST).filter(|index| leaving >> index & 1 == 1) {
            self.new_at(index)?;
        }
        let taken = self.shared.tally(Tally::TailsTaken);
        taken.fetch_and(!leaving, Relaxed);
        Ok(())
    }

    /// What was counted since the last time.
    fn new_at(&mut self, index: u32) -> Result<Latencies, Error> {
        let now = self.found(index)?;
        let before = self.before.read.entry(index).or_default();
        let new = now.since(before);
        *before = now;
        Ok(new)
    }

    fn found(&self, index: u32) -> Result<Latencies, Error> {
        let all = |index| {
            let tails = &self.skel.maps.tails;
            let cpus = percpu::<types::sense_tails>(tails, index, "reading latencies")?;
            Ok::<Vec<_>, Error>(cpus.collect())
        };
        let (over, unfinished) = (all(index)?, all(index + MOST)?);
        let histogram = |of: fn(&types::sense_tails) -> &types::sense_hist| Histogram {
            over: counts(over.iter().map(of)),
            unfinished: counts(unfinished.iter().map(of)),
            sum: over.iter().map(|cpu| of(cpu).sum).sum(),
            shift: SHIFT,
        };
        Ok(Latencies {
            turns: histogram(|tails| &tails.turns),
            matched: histogram(|tails| &tails.matched),
        })
    }
}

/// All CPUs' together.
fn counts<'a>(cpus: impl Iterator<Item = &'a types::sense_hist>) -> Vec<u64> {
    let mut counts = Vec::new();
    for cpu in cpus {
        counts.resize(cpu.count.len(), 0);
        for (all, one) in counts.iter_mut().zip(cpu.count) {
            *all += u64::from(one);
        }
    }
    counts
}
