//! What is shown of backends that were taken out and may still have connections.

use std::time::{Duration, Instant};

use batchwise_core::balance::Why;
use batchwise_core::balance::report::{BackendLine, Health, State};
use batchwise_core::passive::report::LatencyQuantiles;

use super::{Agent, Leaving};
use crate::frame::clock::nanos;

impl Agent {
    /// Those that leave, as of the last census.
    pub(super) fn leaving_lines(&self, ts_ns: u64, now: Instant) -> Vec<BackendLine> {
        let line = |leaving: &Leaving| {
            let counted = self.census.get(usize::from(leaving.index));
            leaving.line(counted.map(|c| c.kept), ts_ns, now)
        };
        self.leaving.iter().map(line).collect()
    }
}

impl Leaving {
    fn line(&self, kept: Option<u64>, ts_ns: u64, now: Instant) -> BackendLine {
        let left = self.until.saturating_duration_since(now);
        let since = nanos(now.saturating_duration_since(self.since));
        let seconds = humantime::format_duration(Duration::from_secs(left.as_secs()));
        BackendLine {
            ts_ns,
            service: self.service.clone(),
            backend: self.name.clone(),
            address: self.address.to_string(),
            state: State::Draining,
            health: Health::Unknown,
            health_why: Some(format!(
                "taken out of the configuration; gone when its last connection is over, or in {seconds}"
            )),
            base_weight: 0,
            weight: 0,
            share: 0.0,
            connections: kept,
            leaves_ns: Some(nanos(left)),
            opened: self.grown.opened,
            closed: self.grown.closed,
            packets: self.grown.packets,
            bytes: self.grown.bytes,
            latency_ns: LatencyQuantiles::default(),
            samples: 0,
            freshness: None,
            confidence: None,
            age_ns: None,
            vantage: "path".to_owned(),
            estimator: "passive".to_owned(),
            why: Why::Drained,
            changed_ts_ns: Some(ts_ns.saturating_sub(since)),
        }
    }
}
