//! Telling peers: where applications say when their requests begin and end, the exchange tells that
//! queue, and no other (§3.3).

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use batchwise_bpf::{Connection, Sensor};
use batchwise_core::queue::QueueState;
use batchwise_core::report::Side;

use super::HintReading;

/// Remembers which connections' queues are being told.
#[derive(Debug, Default)]
pub struct Teller {
    told: HashSet<u64>,
}

impl Teller {
    /// Hands the kernel what is to be told. A hint of a whole service is told on each of its
    /// connections: sums of equal windows give the same latency.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn tell(
        &mut self,
        sensor: &Sensor,
        readings: &[HintReading],
        connections: &[Connection],
    ) -> anyhow::Result<()> {
        if readings.is_empty() && self.told.is_empty() {
            return Ok(());
        }
        let mut by_cookie: HashMap<u64, QueueState> = HashMap::new();
        let mut by_service: HashMap<SocketAddr, QueueState> = HashMap::new();
        for r in readings {
            match r.cookie {
                Some(cookie) => merge(by_cookie.entry(cookie).or_default(), &r.queue),
                None => merge(by_service.entry(r.service).or_default(), &r.queue),
            }
        }
        let mut told = HashSet::new();
        for c in connections.iter().filter(|c| c.side == Side::Client) {
            let own = by_cookie.get(&c.cookie);
            if let Some(queue) = own.or_else(|| by_service.get(&c.remote)) {
                sensor.hint(c.cookie, Some(queue))?;
                told.insert(c.cookie);
            }
        }
        for gone in self.told.difference(&told) {
            sensor.hint(*gone, None)?;
        }
        self.told = told;
        Ok(())
    }
}

/// Several handles about the same requests' way are one queue.
fn merge(all: &mut QueueState, one: &QueueState) {
    all.time = all.time.max(one.time);
    all.integral = all.integral.wrapping_add(one.integral);
    all.total = all.total.wrapping_add(one.total);
    all.size = all.size.saturating_add(one.size);
}
