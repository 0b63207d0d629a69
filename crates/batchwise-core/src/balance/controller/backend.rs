//! What the controller remembers of a backend.

use super::params::{CERTAINTY, FLOOR, MEMORY, MIN_SAMPLES, MOST, STALE_INTERVALS, START};
use super::{Observed, UNIT, Verdict, Why};
use crate::balance::maglev::BackendId;

/// Share of a new estimate in a backend's own past.
const PAST: f64 = 0.03;
/// Latencies from here on (11 days, in ns) are nonsense.
const LONGEST: f64 = 1e15;
/// Times its usual latency: slower than usual.
const UNUSUAL: f64 = 2.0;
/// Intervals after which of two undecided servers the slow one gives something (30 s at 500 ms).
pub(super) const PATIENCE: u32 = 60;
/// Intervals with enough responses after which a service has begun (2 s at 500 ms): who comes later
/// starts low, who is there before starts as the others did.
const BEGUN: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Backend {
    /// Configured weight.
    pub base: f64,
    /// Weight over configured weight; kept while it does not serve.
    pub factor: f64,
    /// What it deserves, from the floor to 1, before all are made to add up.
    pub score: f64,
    /// What [`Self::factor`] was at the interval's begin.
    pub old: f64,
    pub serving: bool,
    pub returning: bool,
    pub confirmed: bool,
    pub freshness: Option<f64>,
    pub connections: u64,
    /// Responses and their sum of latencies, older ones fading.
    samples: f64,
    sum: f64,
    flows: f64,
    /// The same three without this interval's.
    earlier: (f64, f64, f64),
    /// Intervals since the estimate last had enough new responses.
    age: u32,
    pending: f64,
    /// Latency of this interval alone, if it had enough responses.
    pub latest: Option<f64>,
    /// What its latency usually is.
    pub past: Option<f64>,
    /// Its latency is not believed.
    pub suspect: bool,
    /// Intervals for which it cannot be known whether it is slow or the other one fails fast.
    pub undecided: u32,
    /// Connections wait for an answer.
    pub waits: bool,
    pub why: Why,
    weight: u32,
    before: u32,
    resumed: Option<u32>,
    /// It has been seen before.
    known: bool,
    /// Intervals in which it had enough responses.
    judged: u32,
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
            score: 1.0,
            old: 1.0,
            serving: false,
            returning: false,
            confirmed: false,
            freshness: None,
            connections: 0,
            samples: 0.0,
            sum: 0.0,
            flows: 0.0,
            earlier: (0.0, 0.0, 0.0),
            age: 0,
            pending: 0.0,
            latest: None,
            past: None,
            suspect: false,
            undecided: 0,
            waits: false,
            why: Why::Steady,
            weight: 0,
            before: 0,
            resumed: None,
            known: false,
            judged: 0,
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
            judged: BEGUN,
            ..Self::default()
        }
    }

    /// Its configured weight has changed; its weight from now on.
    pub(super) fn rebase(&mut self, from: u32, to: u32) -> u32 {
        self.weight = scale(self.weight, from, to);
        self.resumed = self.resumed.map(|weight| scale(weight, from, to));
        self.weight
    }

    /// With it serving, the service has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.serving && (self.judged >= BEGUN || self.returning)
    }

    /// Whether it serves from now on. `begun`: others of its service do since long enough that it
    /// must not get its full share at once.
    pub(super) fn turn(&mut self, serving: bool, base: u32, begun: bool) {
        self.base = f64::from(base);
        if let Some(weight) = self.resumed.take().filter(|w| *w > 0 && base > 0) {
            let factor = f64::from(weight) / (self.base * f64::from(UNIT));
            self.factor = factor.clamp(FLOOR, MOST);
            self.score = self.factor.min(1.0);
        }
        let starts = serving && !self.serving;
        if starts && (begun || self.judged >= BEGUN) {
            self.factor = self.factor.clamp(FLOOR, START);
            self.score = self.factor;
            self.returning = true;
            self.why = Why::Returning;
            self.forget();
        }
        if !serving {
            self.returning = false;
        }
        self.serving = serving;
        self.known = true;
    }

    /// Takes in an interval.
    pub(super) fn observe(&mut self, seen: &Observed, begun: bool) {
        let first = !self.known;
        let serving = seen.serving && seen.base > 0;
        self.turn(serving, seen.base, begun);
        self.before = match first && !self.returning {
            true => seen.base.saturating_mul(UNIT),
            false => self.weight,
        };
        self.confirmed = seen.confirmed;
        self.waits = seen.busy > 0;
        self.connections = seen.connections;
        self.freshness =
            (seen.connections > 0).then(|| seen.samples as f64 / seen.connections as f64);
        self.old = self.factor;
        self.why = match () {
            () if serving => Why::Steady,
            () if seen.serving || seen.base == 0 => Why::Drained,
            () => Why::Down,
        };
        self.learn(seen);
    }

    fn forget(&mut self) {
        (self.samples, self.sum, self.flows) = (0.0, 0.0, 0.0);
        (self.pending, self.age) = (0.0, 0);
        self.past = None;
        (self.suspect, self.undecided) = (false, 0);
    }

    /// What it answered in this interval is not to be judged by, also not later when it is believed
    /// again.
    pub(super) fn unlearn(&mut self) {
        (self.samples, self.sum, self.flows) = self.earlier;
        self.pending = 0.0;
    }

    fn learn(&mut self, seen: &Observed) {
        let latency = seen.latency_ns.filter(|l| *l > 0.0 && *l < LONGEST);
        let new = if latency.is_some() {
            seen.samples as f64
        } else {
            0.0
        };
        self.latest = latency.filter(|_| seen.samples >= MIN_SAMPLES);
        self.pending += new;
        self.age = self.age.saturating_add(1);
        // What few responses say is kept until there are enough.
        if self.pending >= MIN_SAMPLES as f64 || self.age > STALE_INTERVALS {
            self.samples *= MEMORY;
            self.sum *= MEMORY;
            self.flows *= MEMORY;
        }
        self.earlier = (self.samples, self.sum, self.flows);
        self.samples += new;
        self.sum += new * latency.unwrap_or(0.0);
        if latency.is_some() {
            self.flows += seen.flows.min(seen.samples) as f64;
        }
        if self.pending >= MIN_SAMPLES as f64 {
            (self.pending, self.age) = (0.0, 0);
            self.judged = self.judged.saturating_add(1);
        }
    }

    /// The latency to judge it by, ns.
    pub(super) fn latency(&self) -> Option<f64> {
        let known = self.samples >= MIN_SAMPLES as f64 && self.age < STALE_INTERVALS;
        (known && self.samples > 0.0).then(|| self.sum / self.samples)
    }

    /// By how much, of itself, the latency may be wrong. Connections are taken to spread as the
    /// responses of a queue do, a standard deviation as large as the mean, and the responses on one
    /// to be alike.
    pub(super) fn uncertainty(&self) -> f64 {
        CERTAINTY / libm::sqrt(self.flows.max(1.0))
    }

    /// Nothing is known of it since long.
    pub(super) fn is_stale(&self) -> bool {
        self.age >= STALE_INTERVALS
    }

    pub(super) fn is_slower_than_usual(&self) -> bool {
        let pair = self.latency().zip(self.past);
        pair.is_some_and(|(latency, past)| latency > UNUSUAL * past)
    }

    /// Its latency is believed: it becomes part of what is usual.
    pub(super) fn believe(&mut self, latency: f64) {
        let past = self.past.get_or_insert(latency);
        *past += PAST * (latency - *past);
    }

    /// The largest factor that it may have: that of its configured weight while it is doubted.
    pub(super) fn most(&self) -> f64 {
        match self.suspect && self.undecided == 0 {
            true => 1.0,
            false => MOST,
        }
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
