//! What the controller remembers of a backend.

use super::{Params, Seen, UNIT, Verdict, Why};
use crate::balance::maglev::BackendId;

/// Share of a new estimate in a backend's own past.
const PAST: f64 = 0.03;
/// Latencies from here on (11 days, in ns) are nonsense.
const LONGEST: f64 = 1e15;
/// Times its usual latency: slower than usual.
const UNUSUAL: f64 = 2.0;

#[derive(Clone, Debug)]
pub(super) struct Backend {
    /// Configured weight.
    pub base: f64,
    /// Weight over configured weight; kept while it does not serve.
    pub factor: f64,
    /// What it deserves, from the floor to 1, before all are made to add up.
    pub merit: f64,
    /// What [`Self::factor`] was at the interval's begin.
    pub old: f64,
    pub serving: bool,
    pub returning: bool,
    pub vouched: bool,
    pub freshness: Option<f64>,
    pub connections: u64,
    /// Responses and their sum of latencies, older ones fading.
    samples: f64,
    sum: f64,
    flows: f64,
    /// Intervals since the estimate last had enough new responses.
    age: u32,
    pending: f64,
    /// Latency of this interval alone, if it had enough responses.
    pub latest: Option<f64>,
    /// What its latency usually is.
    pub past: Option<f64>,
    /// Intervals for which its latency has not been believed.
    pub suspect: Option<u32>,
    pub why: Why,
    weight: u32,
    before: u32,
    resumed: Option<u32>,
    /// It has been seen before.
    known: bool,
}

fn scale(weight: u32, from: u32, to: u32) -> u32 {
    let scaled = u64::from(weight) * u64::from(to) / u64::from(from.max(1));
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

impl Default for Backend {
    fn default() -> Self {
        Self {
            base: 0.0,
            factor: 1.0,
            merit: 1.0,
            old: 1.0,
            serving: false,
            returning: false,
            vouched: false,
            freshness: None,
            connections: 0,
            samples: 0.0,
            sum: 0.0,
            flows: 0.0,
            age: 0,
            pending: 0.0,
            latest: None,
            past: None,
            suspect: None,
            why: Why::Steady,
            weight: 0,
            before: 0,
            resumed: None,
            known: false,
        }
    }
}

impl Backend {
    pub(super) fn resumed(weight: u32) -> Self {
        Self {
            weight,
            resumed: Some(weight),
            serving: weight > 0,
            known: true,
            ..Self::default()
        }
    }

    /// Its configured weight has changed; its weight from now on.
    pub(super) fn rebase(&mut self, from: u32, to: u32) -> u32 {
        self.weight = scale(self.weight, from, to);
        self.resumed = self.resumed.map(|weight| scale(weight, from, to));
        self.weight
    }

    /// Takes in an interval.
    pub(super) fn observe(&mut self, seen: &Seen, params: &Params) {
        let first = !self.known;
        self.known = true;
        let serving = seen.serving && seen.base > 0;
        self.before = if first {
            seen.base.saturating_mul(UNIT)
        } else {
            self.weight
        };
        self.base = f64::from(seen.base);
        if let Some(weight) = self.resumed.take().filter(|w| *w > 0 && seen.base > 0) {
            let factor = f64::from(weight) / (self.base * f64::from(UNIT));
            self.factor = factor.clamp(params.floor, params.most);
            self.merit = self.factor.min(1.0);
        }
        if serving && !self.serving && !first {
            self.factor = self.factor.min(params.start).max(params.floor);
            self.merit = self.factor;
            self.returning = true;
            self.forget();
        }
        if !serving {
            self.returning = false;
        }
        self.serving = serving;
        self.vouched = seen.vouched;
        self.connections = seen.connections;
        self.freshness =
            (seen.connections > 0).then(|| seen.samples as f64 / seen.connections as f64);
        self.old = self.factor;
        self.why = match () {
            () if serving => Why::Steady,
            () if seen.serving || seen.base == 0 => Why::Drained,
            () => Why::Down,
        };
        self.learn(seen, params);
    }

    fn forget(&mut self) {
        (self.samples, self.sum, self.flows) = (0.0, 0.0, 0.0);
        (self.pending, self.age) = (0.0, 0);
        (self.past, self.suspect) = (None, None);
    }

    fn learn(&mut self, seen: &Seen, params: &Params) {
        let latency = seen.latency_ns.filter(|l| *l > 0.0 && *l < LONGEST);
        let new = if latency.is_some() {
            seen.samples as f64
        } else {
            0.0
        };
        self.latest = latency.filter(|_| seen.samples >= params.min_samples);
        self.pending += new;
        self.age = self.age.saturating_add(1);
        // What few responses say is kept until there are enough.
        if self.pending >= params.min_samples as f64 || self.age > params.stale_intervals {
            self.samples *= params.memory;
            self.sum *= params.memory;
            self.flows *= params.memory;
        }
        self.samples += new;
        self.sum += new * latency.unwrap_or(0.0);
        if latency.is_some() {
            self.flows += seen.flows.min(seen.samples) as f64;
        }
        if self.pending >= params.min_samples as f64 {
            (self.pending, self.age) = (0.0, 0);
        }
    }

    /// The latency to judge it by, ns.
    pub(super) fn latency(&self, params: &Params) -> Option<f64> {
        let known = self.samples >= params.min_samples as f64 && self.age < params.stale_intervals;
        (known && self.samples > 0.0).then(|| self.sum / self.samples)
    }

    /// By how much, of itself, the latency may be wrong. Connections are taken to spread as the
    /// responses of a queue do, a standard deviation as large as the mean, and the responses on one
    /// to be alike.
    pub(super) fn uncertainty(&self, params: &Params) -> f64 {
        params.certainty / libm::sqrt(self.flows.max(1.0))
    }

    /// Nothing is known of it since long.
    pub(super) fn is_stale(&self, params: &Params) -> bool {
        self.age >= params.stale_intervals
    }

    pub(super) fn is_slower_than_usual(&self, params: &Params) -> bool {
        let pair = self.latency(params).zip(self.past);
        pair.is_some_and(|(latency, past)| latency > UNUSUAL * past)
    }

    /// Its latency is believed: it becomes part of what is usual.
    pub(super) fn believe(&mut self, latency: f64) {
        let past = self.past.get_or_insert(latency);
        *past += PAST * (latency - *past);
    }

    pub(super) fn verdict(&mut self, id: BackendId) -> Verdict {
        self.weight = if self.serving {
            ((self.base * self.factor * f64::from(UNIT) + 0.5) as u32).max(1)
        } else {
            0
        };
        Verdict {
            id,
            weight: self.weight,
            before: self.before,
            why: self.why,
            freshness: self.freshness,
        }
    }
}
