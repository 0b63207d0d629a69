//! Backends that were taken out and may still have connections.

use std::time::{Duration, Instant};

use batchwise_bpf::balance as bpf;
use batchwise_core::balance::Why;
use batchwise_core::balance::report::{BackendLine, Health, State};
use batchwise_core::passive::report::LatencyQuantiles;

use super::super::backend::Backend;
use super::super::config;
use super::super::health::Checks;
use super::{Agent, Leaving};
use crate::frame::clock::nanos;

/// One that is in the maps, and in no configuration of this agent's.
pub(super) fn unnamed(index: u16, written: bpf::Backend) -> Backend {
    let spec = config::Backend {
        name: written.address.to_string(),
        address: written.address,
        weight: 0,
        line: 0,
    };
    let way = Err("it is not configured".to_owned());
    Backend::new(spec, index, written, Checks::new(Health::Unknown), way)
}

impl Agent {
    /// A backend was taken out and drains: it keeps its connections until its time is over.
    pub(super) fn leave(&mut self, service: String, backend: Backend) -> anyhow::Result<()> {
        self.balancer.set_backend(backend.index, &backend.written)?;
        let within = humantime::format_duration(self.config.drain_timeout);
        let detail = format!("taken out; its connections have {within}");
        self.journal
            .event("removed", &[&service, &backend.spec.name], detail);
        let since = Instant::now();
        self.leaving.push(Leaving {
            service,
            backend,
            since,
            until: since + self.config.drain_timeout,
        });
        Ok(())
    }

    /// Gives up those whose last connection, or whose time, is over.
    pub(super) fn vacate_leaving(&mut self, now: Instant) -> anyhow::Result<()> {
        let mut staying = Vec::new();
        for leaving in self.leaving.drain(..) {
            let (index, name) = (leaving.backend.index, &leaving.backend.spec.name);
            let counted = self.census.get(usize::from(index));
            let connections = counted.map_or(0, |c| c.kept);
            // it had flows of its own until it left
            let fresh = self.last_census.is_some_and(|c| c.is_after(leaving.since));
            if (connections > 0 || !fresh) && now < leaving.until {
                staying.push(leaving);
                continue;
            }
            self.balancer.vacate(index)?;
            let detail = format!("gone, with {connections} connections left");
            self.journal
                .event("removed", &[&leaving.service, name], detail);
        }
        self.leaving = staying;
        Ok(())
    }

    /// What is shown of them, as of the last census.
    pub(super) fn leaving_lines(&self, ts_ns: u64, now: Instant) -> Vec<BackendLine> {
        let line = |leaving: &Leaving| {
            let counted = self.census.get(usize::from(leaving.backend.index));
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
            health: Health::Unknown,
            health_why: Some(format!(
                "taken out of the configuration; gone when its last connection is over, or in {seconds}"
            )),
            base_weight: 0,
            weight: 0,
            connections: kept,
            leaves_ns: Some(nanos(left)),
            latency_ns: LatencyQuantiles::default(),
            samples: 0,
            freshness: None,
            confidence: None,
            age_ns: None,
            why: Why::Drained,
            changed_ts_ns: Some(ts_ns.saturating_sub(since)),
            ..self
                .backend
                .line(&self.service, State::Draining, 0.0, ts_ns, now)
        }
    }
}
