//! What a service's connections move in a time that spans many readings, and the one estimate that
//! is made of it.

use alloc::collections::BTreeMap;

use super::estimate::Estimate;
use super::queue::Window;
use super::report::{Side, Unit};
use super::sample::Flow;
use super::service::ServiceSum;
use super::tracker::TrackedConnection;
use super::wire::{Item, Queue};

/// The flows of a service's connections since `since`.
#[derive(Clone, Debug)]
pub struct Period {
    side: Side,
    since: u64,
    /// By cookie and birth.
    flows: BTreeMap<(u64, u64), Flow>,
    /// What the applications said of their own requests.
    application: Window,
}

impl Period {
    /// Begins at `since`, ns.
    pub fn new(side: Side, since: u64) -> Self {
        Self {
            side,
            since,
            flows: BTreeMap::new(),
            application: Window::default(),
        }
    }

    /// Takes in what has passed since the last reading.
    pub fn add(&mut self, c: &TrackedConnection) {
        if let Some(flow) = &c.flow {
            let key = (c.last.cookie, c.last.born);
            let whole = self.flows.entry(key).or_default();
            whole.append(flow);
        }
    }

    /// Takes in what the applications at this end said of their requests.
    pub fn hear(&mut self, application: &Window) {
        self.application.add(application);
    }

    /// The estimate up to `now`, and the mean size of a message, bytes; `None` when there was none.
    pub fn estimate(&self, unit: Unit, now: u64) -> Option<(Estimate, f64)> {
        let interval = now.saturating_sub(self.since).max(1);
        let mut sum = ServiceSum::new(unit, self.side);
        sum.hear(&self.application);
        let mut bytes = 0;
        for flow in self.flows.values() {
            sum.add(flow, interval);
            let passed = |queue| flow.here(Item::Bytes, queue).total;
            bytes += passed(Queue::Unacked) + passed(Queue::Unread);
        }
        let e = sum.estimate(interval);
        let messages = e.throughput * interval as f64 / 1e9;
        (messages > 0.0).then_some((e, bytes as f64 / messages))
    }
}
