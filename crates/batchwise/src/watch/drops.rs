//! Connections that listeners drop, since their queues are full: the kernel counts these, whoever samples what.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use batchwise_bpf::Sensor;
use batchwise_core::sense::connection::ServiceKey;

/// Looking takes at most one in so many parts of the time: all processes are asked for their network namespaces, and
/// each namespace takes 0.1 ms.
const SHARE: u32 = 500;

/// By namespace and address.
#[derive(Debug, Default)]
pub struct Drops {
    /// So far.
    all: HashMap<(u32, SocketAddr), u32>,
    /// Between the last two looks.
    new: HashMap<(u32, SocketAddr), u32>,
    next: Option<Instant>,
}

impl Drops {
    /// An interval is over.
    pub fn look(&mut self, sensor: &Sensor) -> anyhow::Result<()> {
        self.new.clear();
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return Ok(());
        }
        let mut all: HashMap<_, u32> = HashMap::new();
        for (netns, listener) in sensor.listeners()? {
            // several share a port by SO_REUSEPORT
            let so_far = all.entry((netns, listener.at)).or_default();
            *so_far = so_far.wrapping_add(listener.drops);
        }
        for (at, so_far) in &all {
            let before = self.all.get(at).copied().unwrap_or(*so_far);
            // a listener that has closed takes its count along
            let new = so_far.checked_sub(before).filter(|new| *new > 0);
            self.new.extend(new.map(|new| (*at, new)));
        }
        self.all = all;
        let took: Duration = begin.elapsed();
        self.next = Some(begin + took * SHARE);
        Ok(())
    }

    /// Of this service's listener.
    pub fn of(&self, service: &ServiceKey) -> u64 {
        let found = service.at_its_listener(|at| self.new.get(&at).copied());
        found.unwrap_or(0).into()
    }
}
