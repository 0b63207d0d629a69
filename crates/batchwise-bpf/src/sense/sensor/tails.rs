//! Reads the histograms of latencies that the programs keep for each service.

use std::collections::HashMap;
use std::net::SocketAddr;

use batchwise_core::passive::address;
use batchwise_core::sense::report::Side;
use batchwise_core::sense::tails::Histogram;
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
pub(super) struct Before(HashMap<u32, Histogram>);

impl Sensor {
    /// The latencies of each service's requests since the last call.
    pub fn tails(&mut self) -> Result<Vec<(SocketAddr, Side, Histogram)>, Error> {
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
            let now = self.histogram(index)?;
            let before = self.before.0.entry(index).or_default();
            let new = now.since(before);
            *before = now;
            let side = match service.server {
                0 => Side::Client,
                _ => Side::Server,
            };
            found.push((
                SocketAddr::new(address(service.addr), service.port),
                side,
                new,
            ));
        }
        Ok(found)
    }

    fn histogram(&self, index: u32) -> Result<Histogram, Error> {
        let all = |index| {
            let cpus =
                percpu::<types::sense_hist>(&self.skel.maps.tails, index, "reading latencies")?;
            let (mut counts, mut sum) = (Vec::new(), 0);
            for cpu in cpus {
                sum += cpu.sum;
                counts.resize(cpu.count.len(), 0);
                for (all, one) in counts.iter_mut().zip(cpu.count) {
                    *all += u64::from(one);
                }
            }
            Ok::<_, Error>((counts, sum))
        };
        let (over, sum) = all(index)?;
        let (unfinished, _) = all(index + MOST)?;
        Ok(Histogram {
            over,
            unfinished,
            sum,
            shift: SHIFT,
        })
    }
}
