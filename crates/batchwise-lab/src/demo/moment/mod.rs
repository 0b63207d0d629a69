//! One second of the demo: what the load generator measured, and what both ends estimated over
//! just that second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use batchwise_core::sense::report::{Estimator, Line, Nagle, Side, Unit};
use batchwise_testbed::load::{LoadInterval, saturated};
use batchwise_testbed::window::{EndEstimate, estimate_across};
use serde::Serialize;

use super::plan::{Phase, Plan};
use crate::arm::Arm;
use crate::tuner::Decision;

/// How long to wait for the watchers' lines that complete a second: longer than their interval.
const PATIENCE: Duration = Duration::from_millis(800);

/// One second, or a little more or less.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// Its end, seconds since the first one began.
    pub at_s: f64,
    /// What decided about Nagle's algorithm at the client.
    pub arm: Arm,
    /// Whether it worked, at the end; `None` if that is not known.
    pub nagle: Option<Nagle>,
    /// The load by plan, requests a second. The generator's own figure is of the requests that it
    /// came to, which are fewer once it is behind.
    pub offered_rps: f64,
    /// What the load generator measured.
    pub truth: LoadInterval,
    /// Whether the load was more than could be carried.
    pub saturated: bool,
    /// What the client's end estimated; `None` if it had no line.
    pub client: Option<EndEstimate>,
    /// What the server's end estimated.
    pub server: Option<EndEstimate>,
}

impl Moment {
    /// What an end estimated.
    pub fn end(&self, side: Side) -> Option<&EndEstimate> {
        match side {
            Side::Client => self.client.as_ref(),
            Side::Server => self.server.as_ref(),
        }
    }

    /// The latency that an end estimated from both ends' queues, ns.
    pub fn estimated_ns(&self, side: Side) -> Option<f64> {
        let end = self.end(side)?;
        (end.estimator == Estimator::TwoSided).then_some(end.total_ns)?
    }

    /// How far that is from the measured mean since the send, as a share of it.
    pub fn error(&self, side: Side) -> Option<f64> {
        let truth = self.truth.mean_from_send_ns.filter(|&ns| ns > 0.0)?;
        Some(self.estimated_ns(side)? / truth - 1.0)
    }
}

/// Brings the generator's intervals and the watchers' shorter ones together.
#[derive(Debug)]
pub struct Matcher {
    plan: Plan,
    phase: Phase,
    climb_began_ns: Option<u64>,
    client: Vec<Line>,
    server: Vec<Line>,
    decisions: Vec<Decision>,
    waiting: VecDeque<(LoadInterval, Instant)>,
    began_ns: Option<u64>,
}

impl Matcher {
    /// For the climbs of this plan; the first one is `phase`.
    pub fn new(plan: Plan, phase: Phase) -> Self {
        Self {
            plan,
            phase,
            climb_began_ns: None,
            client: Vec::new(),
            server: Vec::new(),
            decisions: Vec::new(),
            waiting: VecDeque::new(),
            began_ns: None,
        }
    }

    /// What comes now is of another climb.
    pub fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.climb_began_ns = None;
        self.waiting.clear();
    }

    /// The watchers said this.
    pub fn lines(&mut self, client: Vec<Line>, server: Vec<Line>) {
        self.client.extend(client);
        self.server.extend(server);
    }

    /// The agents decided this.
    pub fn decisions(&mut self, decisions: Vec<Decision>) {
        self.decisions.extend(decisions);
    }

    /// The generator said this, just now.
    pub fn interval(&mut self, interval: LoadInterval, now: Instant) {
        self.waiting.push_back((interval, now));
    }

    /// Whether intervals wait for their lines.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next interval with its estimates, once both watchers are past its end or have had the
    /// time to be.
    pub fn next(&mut self, now: Instant) -> Option<Moment> {
        let (interval, since) = self.waiting.front()?;
        let past = |lines: &[Line]| {
            lines
                .last()
                .is_some_and(|line| line.ts_ns >= interval.ts_ns)
        };
        let complete = !self.phase.watched() || (past(&self.client) && past(&self.server));
        if !complete && now.saturating_duration_since(*since) < PATIENCE {
            return None;
        }
        let (truth, _) = self.waiting.pop_front()?;
        let (from, to) = (truth.ts_ns.saturating_sub(truth.interval_ns), truth.ts_ns);
        let began = *self.began_ns.get_or_insert(from);
        let climb_began = *self.climb_began_ns.get_or_insert(from);
        let middle = (from - climb_began.min(from)) + (to - from) / 2;
        let offered_rps = self.plan.offered_at(middle as f64 / 1e9);
        let mean = truth.mean_from_intended_ns.unwrap_or(f64::INFINITY);
        let estimate = |lines, side| estimate_across(lines, side, Unit::Sends, from, to);
        let client = estimate(&self.client, Side::Client);
        let decided = self.decisions.iter().filter(|d| d.ts_ns <= to);
        let mut decided = decided
            .filter(|d| d.side == Some(Side::Client))
            .filter_map(Decision::nagle_on);
        let nagle = match self.phase.watched() {
            true => client.as_ref().map(|end| end.nagle),
            false => decided
                .next_back()
                .map(|on| if on { Nagle::On } else { Nagle::Off }),
        };
        let moment = Moment {
            at_s: to.saturating_sub(began) as f64 / 1e9,
            arm: self.phase.arm,
            nagle,
            offered_rps,
            saturated: saturated(offered_rps, truth.achieved_rps, mean, 0),
            client,
            server: estimate(&self.server, Side::Server),
            truth,
        };
        // What ended before is in no later interval.
        for lines in [&mut self.client, &mut self.server] {
            lines.retain(|line| line.ts_ns > to);
        }
        Some(moment)
    }
}

#[cfg(test)]
mod tests;
