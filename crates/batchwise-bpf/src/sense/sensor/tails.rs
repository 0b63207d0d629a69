//! Reads the histograms of latencies that the programs keep for each service.

use std::collections::HashMap;
use std::net::SocketAddr;

use batchwise_core::passive::address;
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Side;
use batchwise_core::sense::tails::{Histogram, Latencies};
use libbpf_rs::MapCore as _;

use super::Sensor;
use crate::Error;
use crate::object::percpu;
use crate::plain::read;
use crate::sense_skel::types;

/// So many services have histograms.
const MOST: u32 = types::sense_tails_size::SENSE_TAILS.0;
const SHIFT: u32 = types::sense_hist_size::SENSE_HIST_SHIFT.0;

/// What was read last, to tell what is new.
#[derive(Debug, Default)]
pub(super) struct Before(HashMap<u32, Latencies>);

impl Sensor {
    /// The latencies of each service's requests since the last call.
    pub fn tails(&mut self) -> Result<Vec<(ServiceKey, Latencies)>, Error> {
        let mut found = Vec::new();
        let services = &self.skel.maps.services;
        for key in services.keys() {
            let service = read::<types::sense_service>(&key);
            let index = services.lookup(&key, libbpf_rs::MapFlags::ANY);
            let index = index.map_err(Error::bpf("looking up a service"))?;
            let index = index.and_then(|bytes| read::<u32>(&bytes));
            let (Some(service), Some(index)) = (service, index) else {
                continue;
            };
            let now = self.found(index)?;
            let before = self.before.0.entry(index).or_default();
            let new = now.since(before);
            *before = now;
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
        Ok(found)
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
