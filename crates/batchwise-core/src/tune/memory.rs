//! What each arm was worth under which load: a robust, exponentially weighted mean of the logarithm
//! of latency for every context and arm.
//!
//! Logarithms, because noise on a busy machine multiplies; exponential weights, because the world
//! drifts (Finch's incremental mean and variance, reference \[19\] of the paper).

use alloc::collections::BTreeMap;

use super::{Arm, Measurement};

/// Mean latency (ns) and throughput (messages/s) of an arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perf {
    /// ns.
    pub latency: f64,
    /// Messages a second.
    pub throughput: f64,
}

impl From<&Measurement> for Perf {
    fn from(m: &Measurement) -> Self {
        Self {
            latency: m.latency,
            throughput: m.throughput,
        }
    }
}

/// The conditions under which an arm was tried; what was learned under others does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Context {
    /// Twice the binary logarithm of the bytes in a message.
    pub size: i16,
    /// What the other end's own sockets do.
    pub peer: Option<Arm>,
    /// Twice the binary logarithm of the load, messages/s.
    pub load: i16,
}

/// Buckets an octave, of load and of size.
const PER_OCTAVE: f64 = 2.0;

/// How far beyond its edge, in buckets, a value still counts for the bucket it was in.
const STICKY: f64 = 0.25;

fn bucket(value: f64, before: Option<i16>) -> i16 {
    let x = PER_OCTAVE * libm::log2(value.max(1.0));
    match before {
        Some(b) if x > f64::from(b) - STICKY && x < f64::from(b) + 1.0 + STICKY => b,
        _ => libm::floor(x) as i16,
    }
}

impl Context {
    /// The context of a measurement; `before` is the one that was in force: near an edge it stays.
    pub fn of(m: &Measurement, peer: Option<Arm>, before: Option<&Self>) -> Self {
        Self {
            size: bucket(m.message_bytes, before.map(|c| c.size)),
            peer,
            load: bucket(m.throughput, before.map(|c| c.load)),
        }
    }
}

/// How sure the first observation of an arm is: half of them within 10 %.
const FIRST_SPREAD: f64 = 0.15;
/// No arm is known better than this.
const LEAST_SPREAD: f64 = 0.03;
/// The weight of a new observation, once there are enough.
const ALPHA: f64 = 0.25;
/// Observations count for no more than this many.
const MOST: f64 = 8.0;
/// What an octave's half of load may change in ln of the ratio of two arms.
const DRIFT: f64 = 0.2;
/// An observation further off than this (a factor of 1.35), and than three spreads, surprises.
const SURPRISE: f64 = 0.3;

/// What is remembered of one arm in one context.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Record {
    /// Mean of ln(latency in ns).
    mean: f64,
    variance: f64,
    count: f64,
    surprise: f64,
    /// What messages wait at a sender that falls behind, where no window shows it, ns.
    hidden: f64,
    /// Throughput when it was last seen.
    throughput: f64,
    /// When it was last seen, ns.
    at: u64,
}

impl Record {
    /// Adds an observation. An outlier is held back; a second one on the same side is a change:
    /// then all before is forgotten, and the answer is true.
    pub fn add(&mut self, perf: &Perf, at: u64) -> bool {
        let x = libm::log(perf.latency.max(1.0));
        self.throughput = perf.throughput;
        self.at = at;
        if self.count == 0.0 {
            self.restart(x);
            return false;
        }
        let mut d = x - self.mean;
        let limit = SURPRISE.max(3.0 * self.spread());
        if libm::fabs(d) > limit {
            let side = libm::copysign(1.0, d);
            if self.surprise == side {
                self.restart(x);
                return true;
            }
            self.surprise = side;
            d = side * limit;
        } else {
            self.surprise = 0.0;
        }
        let alpha = ALPHA.max(1.0 / (self.count + 1.0));
        self.mean += alpha * d;
        self.variance = (1.0 - alpha) * (self.variance + alpha * d * d);
        self.count = MOST.min(self.count + 1.0);
        false
    }

    /// What messages wait at a sender that falls behind, ns.
    pub(super) fn hidden(&self) -> f64 {
        self.hidden
    }

    /// Messages were found to have waited for so long, ns, before they were sent; 0: their sender keeps up.
    pub(super) fn add_hidden(&mut self, wait: f64, weight: f64) {
        self.hidden += weight * (wait - self.hidden);
    }

    fn restart(&mut self, x: f64) {
        self.mean = x;
        self.variance = FIRST_SPREAD * FIRST_SPREAD;
        self.count = 1.0;
        self.surprise = 0.0;
    }

    /// The world changed: what is remembered may still hold, but is trusted like a first look.
    pub(super) fn doubt(&mut self) {
        if self.count > 0.0 {
            self.restart(self.mean);
        }
    }

    /// Whether the last observation was an outlier.
    pub fn is_surprised(&self) -> bool {
        self.surprise != 0.0
    }

    /// Observations, at most 8.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// When it was last seen, ns.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Standard deviation of ln(latency).
    fn spread(&self) -> f64 {
        libm::sqrt(self.variance).max(LEAST_SPREAD)
    }

    /// ln of the mean latency, what is hidden included.
    pub fn mean(&self) -> f64 {
        libm::log(libm::exp(self.mean) + self.hidden)
    }

    /// Standard error of the mean of ln(latency).
    pub fn error(&self) -> f64 {
        self.spread() / libm::sqrt(self.count.max(1.0))
    }

    /// 0 to 1: how much more is known than nothing.
    pub fn confidence(&self) -> f64 {
        if self.count == 0.0 {
            return 0.0;
        }
        self.count / (self.count + 1.0) / (1.0 + self.error())
    }

    /// What the arm is worth where so much is served.
    pub fn perf_at(&self, throughput: f64) -> Perf {
        Perf {
            throughput,
            ..self.perf()
        }
    }

    /// What the arm is worth.
    pub fn perf(&self) -> Perf {
        Perf {
            latency: libm::exp(self.mean) + self.hidden,
            throughput: self.throughput,
        }
    }
}

/// What is remembered of one context.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page {
    arms: [Record; 2],
    /// No probe before, ns.
    pub next_probe: u64,
    /// Time between probes, ns; grows with every probe that changed nothing.
    pub interval: u64,
    /// When the last probe began, ns.
    pub probed_at: u64,
    /// The highest load of a probe, messages/s.
    pub probed_load: f64,
    /// The load has come back to this context since the last probe.
    pub may_recall: bool,
    /// Cost of the last probe, relative to what messages wait in a second.
    pub last_cost: Option<f64>,
}

impl Page {
    pub fn arm(&self, arm: Arm) -> &Record {
        &self.arms[arm as usize]
    }

    pub fn arm_mut(&mut self, arm: Arm) -> &mut Record {
        &mut self.arms[arm as usize]
    }
}

/// All that was learned about a service.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pages: BTreeMap<Context, Page>,
}

/// Contexts kept; the one that was not seen for longest goes first.
const MOST_PAGES: usize = 256;

impl Memory {
    pub(super) fn page(&mut self, context: Context) -> &mut Page {
        if self.pages.len() >= MOST_PAGES && !self.pages.contains_key(&context) {
            let age = |p: &Page| p.arms[0].at.max(p.arms[1].at);
            let oldest = self.pages.iter().min_by_key(|(_, p)| age(p));
            if let Some(oldest) = oldest.map(|(c, _)| *c) {
                self.pages.remove(&oldest);
            }
        }
        self.pages.entry(context).or_default()
    }

    /// What is known of an arm in a context.
    pub fn record(&self, context: &Context, arm: Arm) -> Option<&Record> {
        let record = self.pages.get(context)?.arm(arm);
        (record.count() > 0.0).then_some(record)
    }

    /// What the last probe cost here, or under the nearest load at which there was one.
    pub(super) fn cost_nearby(&self, context: &Context) -> Option<f64> {
        self.alike(context)
            .filter_map(|(c, p)| Some((c.load.abs_diff(context.load), p.last_cost?)))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, cost)| cost)
    }

    /// How many times as long messages wait under the arm that is not in force: what is known best under
    /// the nearest loads counts most, and nothing where they waited longer than `limit`, ns.
    pub(super) fn ratio_nearby(&self, context: &Context, arm: Arm, limit: f64) -> Option<f64> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (c, p) in self.alike(context) {
            let (here, there) = (p.arm(arm), p.arm(arm.other()));
            // beyond what an arm carries there is no ratio
            let carried = |r: &Record| r.count() > 0.0 && libm::exp(r.mean) < limit;
            if carried(here) && carried(there) {
                let error = libm::hypot(here.error(), there.error());
                let doubt = libm::hypot(error, DRIFT * f64::from(c.load.abs_diff(context.load)));
                sum += (there.mean - here.mean) / (doubt * doubt);
                weights += 1.0 / (doubt * doubt);
            }
        }
        (weights > 0.0).then(|| libm::exp(sum / weights))
    }

    /// The best latency (ns) that any arm gave to messages of this size under a load no higher.
    pub(super) fn best_below(&self, context: &Context) -> Option<f64> {
        self.best_of(self.alike(context).filter(|(c, _)| c.load <= context.load))
    }

    /// The best latency (ns) that any arm gave to messages of this size.
    pub(super) fn best(&self, context: &Context) -> Option<f64> {
        self.best_of(self.alike(context))
    }

    /// Whether messages of this size waited longer than `limit`, ns, with this arm under a load that
    /// the other one carried.
    pub(super) fn overwhelmed(&self, context: &Context, arm: Arm, limit: f64) -> bool {
        let latency = |p: &Page, arm| {
            let record = p.arm(arm);
            (record.count() > 0.0).then(|| record.perf().latency)
        };
        let failed = self
            .alike(context)
            .filter(|(_, p)| latency(p, arm).is_some_and(|l| l > limit))
            .map(|(c, _)| c.load)
            .min();
        self.alike(context).any(|(c, p)| {
            failed.is_some_and(|at| c.load >= at)
                && latency(p, arm.other()).is_some_and(|l| l < limit / 2.0)
        })
    }

    /// Whether messages of this size waited longer than `limit`, ns, with this arm under the nearest load
    /// no higher at which it was seen since `since`: then they will here.
    pub(super) fn is_lost(&self, context: &Context, arm: Arm, limit: f64, since: u64) -> bool {
        self.alike(context)
            .filter(|(c, _)| c.load <= context.load)
            .map(|(_, p)| p.arm(arm))
            .rfind(|r| r.count() > 0.0 && r.at() >= since)
            .is_some_and(|r| r.perf().latency > limit)
    }

    fn alike(&self, context: &Context) -> impl DoubleEndedIterator<Item = (&Context, &Page)> {
        let (size, peer) = (context.size, context.peer);
        self.pages
            .iter()
            .filter(move |(c, _)| c.size == size && c.peer == peer)
    }

    fn best_of<'a>(&self, pages: impl Iterator<Item = (&'a Context, &'a Page)>) -> Option<f64> {
        let arms = pages
            .flat_map(|(_, p)| p.arms.iter())
            .filter(|r| r.count() >= 2.0);
        arms.map(|r| r.perf().latency).reduce(f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perf(latency: f64) -> Perf {
        Perf {
            latency,
            throughput: 1e5,
        }
    }

    fn of(throughput: f64, message_bytes: f64) -> Measurement {
        Measurement {
            latency: 1e5,
            throughput,
            message_bytes,
            confidence: 1.0,
        }
    }

    #[test]
    fn one_stall_of_the_machine_moves_a_record_little() {
        let mut r = Record::default();
        for _ in 0..4 {
            r.add(&perf(30e3), 0);
        }
        assert!(!r.add(&perf(900e3), 0));
        assert!(r.is_surprised());
        assert!(r.perf().latency < 35e3, "{:?}", r.perf());
        assert!(!r.add(&perf(30e3), 0));
        assert!(!r.is_surprised());
    }

    #[test]
    fn two_surprises_on_the_same_side_are_a_change() {
        let mut r = Record::default();
        for _ in 0..4 {
            r.add(&perf(30e3), 0);
        }
        assert!(!r.add(&perf(900e3), 0));
        assert!(r.add(&perf(800e3), 0));
        assert!((r.perf().latency - 800e3).abs() < 1.0);
        assert_eq!(r.count(), 1.0);
    }

    #[test]
    fn a_load_that_wavers_around_an_edge_stays_in_its_bucket() {
        let edge = 65_536.0;
        let first = Context::of(&of(edge * 1.02, 100.0), None, None);
        let second = Context::of(&of(edge * 0.98, 100.0), None, Some(&first));
        assert_eq!(first, second);
        let third = Context::of(&of(edge * 0.8, 100.0), None, Some(&second));
        assert_ne!(first, third);
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_oldest_context() {
        let mut memory = Memory::default();
        let context = |load| Context {
            size: 7,
            peer: None,
            load,
        };
        for load in 0..2 * MOST_PAGES as i16 {
            let page = memory.page(context(load));
            page.arm_mut(Arm::On).add(&perf(1e3), load as u64 + 1);
        }
        assert_eq!(memory.pages.len(), MOST_PAGES);
        assert!(memory.record(&context(0), Arm::On).is_none());
        let last = context(2 * MOST_PAGES as i16 - 1);
        assert!(memory.record(&last, Arm::On).is_some());
    }
}
