//! The end of an interval: what was seen becomes weights, tables and lines.

use std::time::Instant;

use batchwise_bpf::balance::{self as bpf, Balancer};
use batchwise_core::balance::report::{Line, Policy, State, TotalsLine};

use super::super::service::{Service, Table};
use super::super::status::{AgentLine, Status};
use super::{Agent, Tallies};
use crate::frame::clock::wall_clock_ns;

impl Agent {
    /// Brings what must not wait into force: backends and tables.
    pub(super) fn push(&mut self) -> anyhow::Result<()> {
        let (policy, now) = (self.config.policy, wall_clock_ns());
        for at in 0..self.services.len() {
            let service = &mut self.services[at];
            let table = service.react(policy, now);
            let filled = table.is_some();
            write(&self.balancer, service, table)?;
            if filled {
                self.take_epochs()?;
            }
        }
        Ok(())
    }

    pub(super) fn interval(&mut self, now: Instant) -> anyhow::Result<Status> {
        let epochs = self.balancer.sweep()?;
        self.count_epochs(epochs);
        self.count()?;
        let tallies: Tallies = self.balancer.backend_tallies()?.into_iter().collect();
        let (policy, ts_ns) = (self.config.policy, wall_clock_ns());
        for at in 0..self.services.len() {
            let service = &mut self.services[at];
            for backend in &mut service.backends {
                let counted = self.census.get(usize::from(backend.index));
                backend.connections = counted.map(|c| c.active);
                backend.busy = counted.map_or(0, |c| c.busy);
                backend.grown = grown(&self.tallies, &tallies, backend.index);
            }
            service.close_interval(now);
            let change = service.decide(policy, ts_ns);
            write(&self.balancer, service, change.table)?;
            if policy != Policy::Static || change.line.moved_slots > 0 {
                self.journal.decision(change.line);
            }
            // a table takes milliseconds; neither events nor health wait for all of them
            self.take_epochs()?;
            self.sense()?;
        }
        for leaving in &mut self.leaving {
            let backend = &mut leaving.backend;
            backend.grown = grown(&self.tallies, &tallies, backend.index);
        }
        self.tallies.extend(tallies);
        self.vacate_leaving(now)?;
        self.say_empty();
        let news = self.journal.take();
        self.status(news)
    }

    /// An empty table drops everything: that is said.
    pub(super) fn say_empty(&mut self) {
        let empty: Vec<String> = self
            .services
            .iter()
            .filter(|s| s.ring.iter().all(|slot| *slot == 0))
            .map(|s| s.spec.name.clone())
            .collect();
        for name in empty.iter().filter(|name| !self.empty.contains(name)) {
            let detail = "no backend serves: its packets are dropped until one does";
            self.journal.warn("empty", &[name], detail);
        }
        for name in self.empty.iter().filter(|name| !empty.contains(name)) {
            self.journal.event("empty", &[name], "it is served again");
        }
        self.empty = empty;
    }

    pub(super) fn status(&mut self, news: Vec<Line>) -> anyhow::Result<Status> {
        let (ts_ns, now) = (wall_clock_ns(), Instant::now());
        let outcomes = self.balancer.outcomes()?;
        let kept = self.balancer.flow_counts();
        let by_name = outcomes.by_name().into_iter();
        Ok(Status {
            agent: AgentLine {
                kind: "agent".to_owned(),
                ts_ns,
                name: self.config.name.clone(),
                pid: std::process::id(),
                policy: self.config.policy,
                interfaces: self.config.interfaces.clone(),
                detached: self.balancer.detached(),
                config: self.config.file.display().to_string(),
                generation: self.generation,
                config_error: self.config_error.clone(),
                taken_over: self.taken_over,
            },
            backends: self
                .services
                .iter()
                .flat_map(|s| s.lines(ts_ns, now))
                .chain(self.leaving_lines(ts_ns, now))
                .collect(),
            totals: TotalsLine {
                ts_ns,
                outcomes: by_name.map(|(name, n)| (name.to_owned(), n)).collect(),
                unknown_flows: outcomes.unknown_flow,
                insert_failed: outcomes.insert_failed,
                flows_settled: kept.settled.into(),
                flows_young: kept.young.into(),
                lost_events: self.balancer.measured()?.lost_events,
            },
            events: self.journal.recent().to_vec(),
            news,
        })
    }
}

/// Writes a service's backends and table so that no packet finds a place that is not ready: who serves
/// before the table, and who does not after it.
fn write(balancer: &Balancer, service: &mut Service, table: Option<Table>) -> anyhow::Result<()> {
    let states = service.states();
    let write_those = |service: &mut Service, serve: bool| -> anyhow::Result<()> {
        for (backend, state) in service.backends.iter_mut().zip(&states) {
            let wanted = backend.wanted(&service.spec, *state);
            if (*state == State::Serving) == serve && wanted != backend.written {
                balancer.set_backend(backend.index, &wanted)?;
                backend.written = wanted;
            }
        }
        Ok(())
    };
    write_those(service, true)?;
    if let Some(table) = table {
        if !table.delta.is_empty() {
            balancer.write_ring(service.number, &table.delta)?;
        }
        service.written(table);
    }
    write_those(service, false)
}

fn grown(before: &Tallies, now: &Tallies, index: u16) -> bpf::Tally {
    let of = |tallies: &Tallies| tallies.get(&index).copied().unwrap_or_default();
    let (before, now) = (of(before), of(now));
    bpf::Tally {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
        opened: now.opened.saturating_sub(before.opened),
        closed: now.closed.saturating_sub(before.closed),
    }
}
