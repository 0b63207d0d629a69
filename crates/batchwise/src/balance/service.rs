//! A service as the agent knows it: its backends, their weights and the table of slots that follows
//! from these.

use std::collections::BTreeMap;
use std::time::Instant;

use batchwise_bpf::balance as bpf;
use batchwise_core::balance::report::{BackendLine, DecisionBackend, DecisionLine, Policy, State};
use batchwise_core::balance::{
    Controller, Member, Observation, Observed, SLOTS, UNIT, Verdict, Why, maglev, standardise,
};
use batchwise_core::passive::{Epoch, server};

use super::backend::Backend;
use super::config;

#[cfg(test)]
mod tests;

/// A service as the agent knows it.
pub struct Service {
    pub spec: config::Service,
    /// Its number in the maps.
    pub number: u16,
    /// What the maps' table says.
    pub ring: Vec<u16>,
    /// In the configuration's order.
    pub backends: Vec<Backend>,
    controller: Controller,
    observed: BTreeMap<(u64, u16), (u64, f64)>,
    standard: BTreeMap<u16, f64>,
    /// What the ring was made from.
    filled: Option<Vec<Member>>,
    /// What was observed last: members, what the ring was made from, slots between the two.
    shadow: Option<(Vec<Member>, Option<Vec<Member>>, u64)>,
}

/// A table that is to be written.
pub struct Table {
    /// Slots that change.
    pub delta: Vec<(u32, u16)>,
    ring: Vec<u16>,
    members: Vec<Member>,
}

/// What a change of weights comes to.
pub struct Change {
    pub line: DecisionLine,
    /// The table, if it is another.
    pub table: Option<Table>,
}

impl Service {
    /// One whose controller remembers the weights that `backends` had.
    pub fn new(
        spec: config::Service,
        number: u16,
        ring: Vec<u16>,
        mut backends: Vec<Backend>,
    ) -> Self {
        let mut controller = Controller::default();
        for backend in backends.iter_mut().filter(|b| served(b)) {
            controller.resume(backend.index, backend.weight);
            // configured while no agent was there
            let (from, to) = (backend.written.base_weight, backend.spec.weight);
            rebase(&mut controller, backend, from, to);
        }
        Self {
            spec,
            number,
            ring,
            backends,
            controller,
            observed: BTreeMap::new(),
            standard: BTreeMap::new(),
            filled: None,
            shadow: None,
        }
    }

    /// Keeps what is known over a reload, and gives the backends that were taken out. A controller that
    /// did not decide has nothing that holds.
    pub fn inherit(&mut self, before: Self, policy: Policy) -> BTreeMap<u16, Backend> {
        let mut known: BTreeMap<u16, Backend> =
            before.backends.into_iter().map(|b| (b.index, b)).collect();
        self.observed = before.observed;
        self.standard = before.standard;
        self.controller = match policy {
            Policy::Static => Controller::default(),
            Policy::Observe | Policy::Latency => before.controller,
        };
        for backend in &mut self.backends {
            let Some(before) = known.remove(&backend.index) else {
                // it was leaving, and is taken back
                if served(backend) {
                    self.controller.resume(backend.index, backend.weight);
                }
                continue;
            };
            let (from, to) = (before.spec.weight, backend.spec.weight);
            backend.inherit(before);
            if policy == Policy::Static && backend.weight > 0 {
                self.controller.resume(backend.index, backend.weight);
            }
            rebase(&mut self.controller, backend, from, to);
        }
        known
    }

    /// What each backend is to be told, in their order.
    pub fn states(&self) -> Vec<State> {
        let proven = self.backends.iter().any(Backend::proven);
        self.backends.iter().map(|b| b.state(proven)).collect()
    }

    /// The table is in the maps.
    pub fn written(&mut self, table: Table) {
        self.ring = table.ring;
        self.filled = Some(table.members);
    }

    /// An epoch of a connection to the backend at this place closed.
    pub fn epoch(&mut self, at: usize, epoch: &Epoch) {
        let backend = &mut self.backends[at];
        backend.sum.add(epoch);
        let estimate = &epoch.estimate;
        if let (Some(tuple), Some(latency)) = (epoch.tuple, estimate.latency) {
            let group = standardise::group(tuple.client.ip());
            let sum = self.observed.entry((group, backend.index)).or_default();
            let samples = u64::from(estimate.batches);
            sum.0 += samples;
            sum.1 += samples as f64 * latency as f64;
        }
    }

    /// The interval is over: what was seen in it becomes what is known.
    pub fn close_interval(&mut self, now: Instant) {
        let observations: Vec<Observation> = std::mem::take(&mut self.observed)
            .into_iter()
            .filter(|(_, (samples, _))| *samples > 0)
            .map(|((group, backend), (samples, sum))| Observation {
                group,
                backend,
                samples,
                latency_ns: sum / samples as f64,
            })
            .collect();
        let standard = standardise::standardise(&observations);
        self.standard = standard
            .into_iter()
            .map(|s| (s.backend, s.latency_ns))
            .collect();
        for backend in &mut self.backends {
            let sum = std::mem::take(&mut backend.sum);
            if sum.batches() > 0 {
                backend.known = Some((now, sum.latency(), sum.confidence()));
            }
            backend.interval = Some(sum);
        }
    }

    pub fn decide(&mut self, policy: Policy, ts_ns: u64) -> Change {
        let seen = self.seen();
        for backend in &mut self.backends {
            backend.confirmed = false;
        }
        let verdicts = match policy {
            Policy::Static => self.configured(),
            Policy::Observe | Policy::Latency => self.controller.step(&seen),
        };
        let mut line = self.line(policy, ts_ns, &seen, &verdicts);
        if policy != Policy::Observe {
            let table = self.apply(&verdicts, ts_ns);
            line.moved_slots = table.as_ref().map_or(0, |t| t.delta.len() as u64);
            return Change { line, table };
        }
        line.applied = false;
        line.moved_slots = self.would_move(members(&self.backends, &verdicts));
        for (backend, verdict) in self.backends.iter_mut().zip(&verdicts) {
            backend.freshness = verdict.freshness;
        }
        let table = self.apply(&self.configured(), ts_ns);
        Change { line, table }
    }

    /// Slots between the ring and the table that `members` make: filled anew only if either changed.
    fn would_move(&mut self, members: Vec<Member>) -> u64 {
        match &self.shadow {
            Some((same, of, moved)) if *same == members && *of == self.filled => *moved,
            _ => {
                let ring = maglev::fill(&members, SLOTS);
                let moved = maglev::delta(&self.ring, &ring).len() as u64;
                self.shadow = Some((members, self.filled.clone(), moved));
                moved
            }
        }
    }

    /// What cannot wait for the interval's end: backends that must not get connections any more,
    /// and ones that may again.
    pub fn react(&mut self, policy: Policy, ts_ns: u64) -> Option<Table> {
        let states = self.states();
        let mut verdicts = self.configured();
        for ((verdict, backend), state) in verdicts.iter_mut().zip(&self.backends).zip(states) {
            if policy != Policy::Latency {
                continue;
            }
            let serves = state == State::Serving;
            let base = backend.spec.weight;
            let turned = self.controller.turn(backend.index, base, serves);
            if serves {
                *verdict = turned;
            }
        }
        self.apply(&verdicts, ts_ns)
    }

    fn seen(&self) -> Vec<Observed> {
        let of = |(backend, state): (&Backend, State)| {
            let interval = backend.interval.as_ref();
            Observed {
                id: backend.index,
                base: backend.spec.weight,
                serving: state == State::Serving,
                latency_ns: self.standard.get(&backend.index).copied(),
                samples: interval.map_or(0, server::Server::batches),
                connections: backend.connections.unwrap_or(0),
                busy: backend.busy,
                confirmed: backend.confirmed,
                flows: interval.map_or(0, server::Server::flows),
            }
        };
        self.backends.iter().zip(self.states()).map(of).collect()
    }

    /// Weights as configured.
    fn configured(&self) -> Vec<Verdict> {
        let of = |(backend, state): (&Backend, State)| {
            let (weight, why) = match state {
                State::Serving => (backend.spec.weight.saturating_mul(UNIT), Why::Static),
                State::Draining => (0, Why::Drained),
                State::Down => (0, Why::Down),
            };
            Verdict {
                id: backend.index,
                weight,
                before: backend.weight,
                why,
                freshness: None,
            }
        };
        self.backends.iter().zip(self.states()).map(of).collect()
    }

    /// Takes weights over; gives the table that they make, if it is another than the one that holds.
    fn apply(&mut self, verdicts: &[Verdict], ts_ns: u64) -> Option<Table> {
        for (backend, verdict) in self.backends.iter_mut().zip(verdicts) {
            if backend.weight != verdict.weight {
                backend.weight = verdict.weight;
                backend.changed_ts_ns = Some(ts_ns);
            }
            backend.why = verdict.why;
            backend.freshness = verdict.freshness.or(backend.freshness);
        }
        let members = members(&self.backends, verdicts);
        if self.filled.as_ref() == Some(&members) {
            return None;
        }
        let ring = maglev::fill(&members, SLOTS);
        Some(Table {
            delta: maglev::delta(&self.ring, &ring),
            ring,
            members,
        })
    }

    fn line(
        &self,
        policy: Policy,
        ts_ns: u64,
        seen: &[Observed],
        verdicts: &[Verdict],
    ) -> DecisionLine {
        let of = |((backend, seen), verdict): ((&Backend, &Observed), &Verdict)| DecisionBackend {
            backend: backend.spec.name.clone(),
            latency_ns: seen.latency_ns.map(|ns| ns as u64),
            samples: seen.samples,
            connections: seen.connections,
            freshness: verdict.freshness,
            before: verdict.before,
            after: verdict.weight,
            why: verdict.why,
        };
        DecisionLine {
            ts_ns,
            service: self.spec.name.clone(),
            policy,
            applied: true,
            moved_slots: 0,
            backends: self
                .backends
                .iter()
                .zip(seen)
                .zip(verdicts)
                .map(of)
                .collect(),
        }
    }

    pub fn lines(&self, ts_ns: u64, now: Instant) -> Vec<BackendLine> {
        let mut slots = vec![0_u32; config::MOST_BACKENDS + 1];
        for backend in &self.ring {
            slots[usize::from(*backend)] += 1;
        }
        let line = |(b, state): (&Backend, State)| {
            let share = f64::from(slots[usize::from(b.index)]) / SLOTS as f64;
            b.line(&self.spec.name, state, share, ts_ns, now)
        };
        self.backends.iter().zip(self.states()).map(line).collect()
    }
}

/// Its configured weight has changed.
fn rebase(controller: &mut Controller, backend: &mut Backend, from: u32, to: u32) {
    if from != to
        && let Some(weight) = controller.rebase(backend.index, from, to)
    {
        backend.weight = weight;
    }
}

/// The maps remember a weight of it that was in force.
fn served(backend: &Backend) -> bool {
    backend.weight > 0 && backend.written.state != bpf::State::Down
}

fn members(backends: &[Backend], verdicts: &[Verdict]) -> Vec<Member> {
    let member = |(b, verdict): (&Backend, &Verdict)| Member {
        id: b.index,
        identity: maglev::identity(&b.spec.name),
        weight: verdict.weight,
    };
    backends.iter().zip(verdicts).map(member).collect()
}
