//! What the runs say: `tune` beside both settings by hand.

use std::collections::BTreeMap;

use batchwise_core::tune::report::DecisionEvent;
use serde::Serialize;

use super::{Cure, Load, Point, Who};
use crate::applications::Missing;

/// "Mean within 10 % of the better arm by hand."
const WITHIN: f64 = 1.1;

#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub server: String,
    pub cure: Cure,
    pub load: Load,
    pub own_ns: Option<f64>,
    pub hand_ns: Option<f64>,
    pub tune_ns: Option<f64>,
    /// Of the means: 1 is as good.
    pub tune_vs_better: Option<f64>,
    pub adopted_s: Option<f64>,
    pub held_after: Option<usize>,
    /// Requests that took 40 ms and more after the first three seconds.
    pub hand_slow_per_minute: Option<f64>,
    pub tune_slow_per_minute: Option<f64>,
    pub tests: usize,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    pub points: Vec<Compared>,
    pub points_met: usize,
    pub points_missed: usize,
    /// Requests that were held after the first adoption, of all points.
    pub held_after: usize,
    pub missing: BTreeMap<String, String>,
}

impl Summary {
    pub fn of(points: &[Point], more: &Missing) -> Self {
        let tuned = points.iter().filter(|p| p.who == Who::Tune);
        let points: Vec<_> = tuned.map(|p| Compared::of(points, p)).collect();
        let count = |met: bool| {
            let ratios = points.iter().filter_map(|c| c.tune_vs_better);
            ratios.filter(|ratio| (*ratio <= WITHIN) == met).count()
        };
        Self {
            points_met: count(true),
            points_missed: count(false),
            held_after: points.iter().filter_map(|c| c.held_after).sum(),
            missing: more.missing.clone(),
            points,
        }
    }
}

impl Compared {
    fn of(points: &[Point], tuned: &Point) -> Self {
        let of = |who| {
            let key = |p: &Point| (p.server.clone(), p.cure, p.load);
            let mut own = points.iter().filter(|p| key(p) == key(tuned));
            own.find(|p| p.who == who)
        };
        let mean = |who| of(who).and_then(|p| p.mean_ns);
        let (own, hand) = (mean(Who::Own), mean(Who::Hand));
        let better = own.into_iter().chain(hand).min_by(f64::total_cmp);
        let probes = tuned.events.iter().filter(|e| **e == DecisionEvent::Probe);
        Self {
            server: tuned.server.clone(),
            cure: tuned.cure,
            load: tuned.load,
            own_ns: own,
            hand_ns: hand,
            tune_ns: tuned.mean_ns,
            tune_vs_better: tuned
                .mean_ns
                .zip(better)
                .map(|(tune, better)| tune / better),
            adopted_s: tuned.adopted_s,
            held_after: tuned.held_after,
            hand_slow_per_minute: of(Who::Hand).map(|p| p.slow_per_minute),
            tune_slow_per_minute: Some(tuned.slow_per_minute),
            tests: probes.count(),
        }
    }
}
