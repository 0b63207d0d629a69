//! What the points say: how much lower the 99th percentile is, pair by pair.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::{PAGES, Servers};
use super::{Arm, Point, Policy};
use crate::rounds::pairs;
use crate::stats::{Spread, median};

/// The paper's reduction (its §5.6).
pub const PAPER_REDUCTION: f64 = 0.37;

/// All arms at a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    /// Pairs that count.
    pub pairs: usize,
    /// Median over pairs of the latency-aware p99 over the static one.
    pub ratio: Option<f64>,
    /// 1 less that, and as much for the parts of the policy alone.
    pub reduction: BTreeMap<Policy, f64>,
    /// 99th percentiles, ns, by policy.
    pub p99_ns: BTreeMap<Policy, Spread>,
    /// 50th percentiles, ns, by policy.
    pub p50_ns: BTreeMap<Policy, Spread>,
}

/// The experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Mean over loads of the reduction of p99.
    pub p99_reduction: Option<f64>,
    /// The same for each policy, over the loads at which it was tried.
    pub by_policy: BTreeMap<Policy, f64>,
    /// Where all servers are equal: median over pairs of the latency-aware p99 over the static
    /// one, at the worst of the loads.
    pub equal_servers_ratio: Option<f64>,
    /// Distance of the quartiles of p99 between repeats, ns, mean over loads, by policy.
    pub spread: BTreeMap<Policy, f64>,
    /// By load, percent.
    pub per_load: BTreeMap<u32, Step>,
    /// With a connection for each page: mean over loads of the reduction of p99.
    pub visits_p99_reduction: Option<f64>,
    /// The same by load, percent.
    pub visits: BTreeMap<u32, Step>,
    /// With equal servers, by load, percent.
    pub equal: BTreeMap<u32, Step>,
    /// Broken connections, and those that could not be opened, over all points.
    pub broken_connections: u64,
}

impl Summary {
    /// Of these points; those that are not valid do not count.
    pub fn of(points: &[Point]) -> Self {
        let by_load = |servers: Servers, pages: u32| -> BTreeMap<u32, Step> {
            let of = |p: &&Point| p.arm.servers == servers && p.arm.pages == pages;
            let loads = points.iter().filter(of).map(|p| p.arm.load_percent);
            let step = |load: u32| {
                let counted = points.iter().filter(of).filter(|p| p.valid);
                let counted = counted.filter(|p| p.arm.load_percent == load);
                (load, Step::of(&counted.collect::<Vec<_>>()))
            };
            loads.map(step).collect()
        };
        let per_load = by_load(Servers::Traced, PAGES);
        let visits = by_load(Servers::Traced, 1);
        let equal = by_load(Servers::Equal, PAGES);
        let by_policy: BTreeMap<Policy, f64> = Policy::ALL
            .into_iter()
            .filter_map(|policy| {
                let own = per_load.values().filter_map(|s| s.reduction.get(&policy));
                Some((policy, mean(own.copied())?))
            })
            .collect();
        let spread = Policy::ALL.into_iter().filter_map(|policy| {
            let of_policy = per_load.values().filter_map(|s| s.p99_ns.get(&policy));
            Some((policy, mean(of_policy.map(|p99| p99.q3 - p99.q1))?))
        });
        Self {
            p99_reduction: by_policy.get(&Policy::Latency).copied(),
            by_policy,
            equal_servers_ratio: equal.values().filter_map(|s| s.ratio).reduce(f64::max),
            spread: spread.collect(),
            broken_connections: points.iter().map(|p| p.broken_connections).sum(),
            visits_p99_reduction: mean(
                visits
                    .values()
                    .filter_map(|s| s.reduction.get(&Policy::Latency).copied()),
            ),
            visits,
            per_load,
            equal,
        }
    }
}

impl Step {
    fn of(points: &[&Point]) -> Self {
        let spread = |value: fn(&Point) -> f64| {
            let of = |policy| {
                let of_policy = points.iter().filter(|p| p.arm.policy == policy);
                let values: Vec<_> = of_policy.map(|p| value(p)).collect();
                Some((policy, Spread::of(&values)?))
            };
            Policy::ALL.into_iter().filter_map(of).collect()
        };
        let ratios = |policy: Policy| -> Vec<f64> {
            let mut arms: Vec<Arm> = Vec::new();
            for arm in points.iter().map(|p| p.arm) {
                if arm.policy == policy && !arms.contains(&arm) {
                    arms.push(arm);
                }
            }
            let paired = arms.into_iter().flat_map(|arm| {
                let base = Arm {
                    policy: Policy::Static,
                    ..arm
                };
                pairs(points.iter().copied(), arm, base)
            });
            paired.map(|(own, base)| own.p99_ns / base.p99_ns).collect()
        };
        let others = Policy::ALL.into_iter().filter(|p| *p != Policy::Static);
        let reduction = others.filter_map(|p| Some((p, 1.0 - median(&ratios(p))?)));
        let reduction = reduction.collect();
        let ratios = ratios(Policy::Latency);
        let ratio = median(&ratios);
        Self {
            pairs: ratios.len(),
            ratio,
            reduction,
            p99_ns: spread(|point| point.p99_ns),
            p50_ns: spread(|point| point.p50_ns),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, n), value| (sum + value, n + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: u32, servers: Servers, load: u32, policy: Policy, p99_ns: f64) -> Point {
        let arm = Arm {
            servers,
            pages: PAGES,
            load_percent: load,
            pair: 0,
            policy,
        };
        Point {
            round,
            arm,
            offered_rps: 1.0,
            achieved_rps: 1.0,
            requests: 1,
            p50_ns: p99_ns / 2.0,
            p99_ns,
            broken_connections: 0,
            valid: true,
            why_invalid: Vec::new(),
            cpu_wait_share: 0.0,
            balancer: None,
        }
    }

    #[test]
    fn the_reduction_is_the_mean_over_loads_of_paired_medians() {
        use Policy::{Latency, Static};
        let mut points = Vec::new();
        for (round, (base, ours)) in [(10.0, 5.0), (20.0, 8.0), (10.0, 9.0)].iter().enumerate() {
            points.push(point(round as u32, Servers::Traced, 50, Static, *base));
            points.push(point(round as u32, Servers::Traced, 50, Latency, *ours));
        }
        points.push(point(0, Servers::Traced, 80, Static, 10.0));
        points.push(point(0, Servers::Traced, 80, Latency, 7.0));
        points.push(point(0, Servers::Equal, 65, Static, 10.0));
        points.push(point(0, Servers::Equal, 65, Latency, 10.1));
        let mut bad = point(1, Servers::Traced, 80, Latency, 1e9);
        bad.valid = false;
        points.push(bad);
        let summary = Summary::of(&points);
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-9;
        assert!(close(summary.p99_reduction, 0.4), "{summary:?}");
        assert!(close(summary.equal_servers_ratio, 1.01), "{summary:?}");
        assert_eq!(summary.per_load[&80].pairs, 1);
    }

    #[test]
    fn of_nothing_there_is_nothing_to_say() {
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
