//! What the points say: how much lower the 99th percentile is, pair by pair.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use super::{PAGES, Point, Policy, Servers};
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::{Spread, median, quantile};

/// The paper's reduction (its §5.6).
pub const PAPER_REDUCTION: f64 = 0.37;
/// Policies that are compared with static weights.
const COMPARED: [Policy; 3] = [Policy::Choices, Policy::Weights, Policy::Latency];
/// Resamples of a bootstrap over loads.
const RESAMPLES: usize = 2000;

/// All arms at a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Step {
    pub pairs: usize,
    /// Median over pairs of the latency-aware p99 over the static one, if there are enough pairs.
    pub ratio: Option<f64>,
    /// 1 less that, and as much for the parts of the policy alone.
    pub reduction: BTreeMap<Policy, Option<f64>>,
    /// p99 over the static one with its 95 % interval, by policy.
    pub ratios: BTreeMap<Policy, Ratio>,
    /// 99th percentiles, ns, by policy.
    pub p99_ns: BTreeMap<Policy, Spread>,
    /// 50th percentiles, ns, by policy.
    pub p50_ns: BTreeMap<Policy, Spread>,
}

/// The experiment. What has too few pairs is null; its interval says how far it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Mean over loads of the reduction of p99.
    pub p99_reduction: Option<f64>,
    /// p99 over the static one, mean over loads of the medians, with its 95 % interval.
    pub p99_ratio: Option<Ratio>,
    /// Whether that is below 1.
    pub verdict: Verdict,
    /// The same for each policy, over the loads at which it was tried.
    pub by_policy: BTreeMap<Policy, Option<f64>>,
    pub ratios: BTreeMap<Policy, Ratio>,
    /// Where all servers are equal: median over pairs of the latency-aware p99 over the static
    /// one, at the worst of the loads.
    pub equal_servers_ratio: Option<f64>,
    /// The same with its 95 % interval.
    pub equal_servers: Option<Ratio>,
    /// Distance of the quartiles of p99 between repeats, ns, mean over loads, by policy.
    pub spread: BTreeMap<Policy, f64>,
    /// By load, percent.
    pub per_load: BTreeMap<u32, Step>,
    /// With a connection for each page: mean over loads of the reduction of p99.
    pub visits_p99_reduction: Option<f64>,
    /// p99 over the static one there, with its 95 % interval.
    pub visits_ratio: Option<Ratio>,
    /// The same by load, percent.
    pub visits: BTreeMap<u32, Step>,
    /// With equal servers, by load, percent.
    pub equal: BTreeMap<u32, Step>,
    /// Broken connections, and those that could not be opened, over all points.
    pub broken_connections: u64,
}

impl Summary {
    /// Of these points; the invalid ones only show broken connections.
    pub fn of(points: &[Point], invalid: &[Point]) -> Self {
        let traced = part(points, Servers::Traced, PAGES);
        let visits = part(points, Servers::Traced, 1);
        let ratios: BTreeMap<_, _> = COMPARED
            .into_iter()
            .filter_map(|policy| Some((policy, over_loads(&traced, policy)?)))
            .collect();
        let per_load = steps(&traced);
        let spread = Policy::ALL.into_iter().filter_map(|policy| {
            let of_policy = per_load.values().filter_map(|s| s.p99_ns.get(&policy));
            let widths: Vec<_> = of_policy.map(|p99| p99.q3 - p99.q1).collect();
            Some((policy, mean(&widths)?))
        });
        let p99_ratio = ratios.get(&Policy::Latency).copied();
        let visits_ratio = over_loads(&visits, Policy::Latency);
        let equal = steps(&part(points, Servers::Equal, PAGES));
        let at_equal = equal
            .values()
            .filter_map(|s| s.ratios.get(&Policy::Latency));
        let equal_servers = at_equal
            .max_by(|a, b| a.median.total_cmp(&b.median))
            .copied();
        // the worst of loads is known only when all of them are
        let known = equal.values().all(|step| step.ratio.is_some());
        let all = points.iter().chain(invalid);
        Self {
            p99_reduction: reduction(p99_ratio.as_ref()),
            verdict: Verdict::at_most(p99_ratio.as_ref(), 1.0),
            p99_ratio,
            by_policy: reductions(&ratios),
            ratios,
            equal_servers_ratio: Ratio::decided(equal_servers.as_ref()).filter(|_| known),
            equal_servers,
            spread: spread.collect(),
            visits_p99_reduction: reduction(visits_ratio.as_ref()),
            visits_ratio,
            visits: steps(&visits),
            broken_connections: all.map(|p| p.broken_connections).sum(),
            per_load,
            equal,
        }
    }
}

fn reduction(ratio: Option<&Ratio>) -> Option<f64> {
    Ratio::decided(ratio).map(|ratio| 1.0 - ratio)
}

fn reductions(ratios: &BTreeMap<Policy, Ratio>) -> BTreeMap<Policy, Option<f64>> {
    let each = ratios.iter();
    each.map(|(policy, ratio)| (*policy, reduction(Some(ratio))))
        .collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Points with the same servers and pages, by load.
type Part<'a> = BTreeMap<u32, Vec<&'a Point>>;

fn part(points: &[Point], servers: Servers, pages: u32) -> Part<'_> {
    let mut part = Part::new();
    for point in points {
        if (point.arm.servers, point.arm.pages) == (servers, pages) {
            part.entry(point.arm.load_percent).or_default().push(point);
        }
    }
    part
}

fn steps(part: &Part<'_>) -> BTreeMap<u32, Step> {
    let each = part.iter();
    each.map(|(load, points)| (*load, Step::of(points)))
        .collect()
}

/// The mean over the loads at which a policy was tried of the pairs' medians. Its interval is that of
/// a bootstrap within loads. It is known as well as its least known load: as pairs count as many at
/// each load as that one has.
fn over_loads(part: &Part<'_>, policy: Policy) -> Option<Ratio> {
    let tried = |points: &&Vec<&Point>| points.iter().any(|p| p.arm.policy == policy);
    let of_load = |points: &Vec<&Point>| -> Vec<f64> {
        let pairs = p99_pairs(points, policy);
        pairs.into_iter().map(|(own, base)| own / base).collect()
    };
    let loads: Vec<_> = part.values().filter(tried).map(of_load).collect();
    let fewest = loads.iter().map(Vec::len).min()?;
    let of_medians = |loads: &[Vec<f64>]| {
        let medians: Vec<_> = loads.iter().filter_map(|load| median(load)).collect();
        mean(&medians)
    };
    let mut rng = StdRng::seed_from_u64(0);
    let mut again = |load: &Vec<f64>| -> Vec<f64> {
        let draw = |_: &f64| load[rng.random_range(0..load.len())];
        load.iter().map(draw).collect()
    };
    let resampled: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| of_medians(&loads.iter().map(&mut again).collect::<Vec<_>>()))
        .collect();
    Some(Ratio {
        median: of_medians(&loads)?,
        low: quantile(&resampled, 0.025)?,
        high: quantile(&resampled, 0.975)?,
        pairs: fewest * loads.len(),
    })
}

/// p99 of a policy and that of static weights, where servers and clients did the same.
fn p99_pairs(points: &[&Point], policy: Policy) -> Vec<(f64, f64)> {
    let key = |p: &&Point| ((p.round, p.arm.pair), p.arm.policy);
    pairs(points, key, policy, Policy::Static, |p| p.p99_ns)
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
        let ratios: BTreeMap<_, _> = COMPARED
            .into_iter()
            .filter_map(|p| Some((p, Ratio::of(&p99_pairs(points, p))?)))
            .collect();
        let own = ratios.get(&Policy::Latency);
        Self {
            pairs: own.map_or(0, |ratio| ratio.pairs),
            ratio: Ratio::decided(own),
            reduction: reductions(&ratios),
            ratios,
            p99_ns: spread(|point| point.p99_ns),
            p50_ns: spread(|point| point.p50_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arm;
    use super::*;

    fn pair(round: u32, servers: Servers, load_percent: u32, p99_ns: [f64; 2]) -> Vec<Point> {
        let both = [Policy::Static, Policy::Latency].into_iter().zip(p99_ns);
        both.map(|(policy, p99_ns)| Point {
            round,
            arm: Arm {
                servers,
                pages: PAGES,
                load_percent,
                pair: 0,
                policy,
            },
            offered_rps: 1.0,
            achieved_rps: 1.0,
            requests: 1,
            p50_ns: p99_ns / 2.0,
            p99_ns,
            broken_connections: 1,
            valid: true,
            why_invalid: Vec::new(),
            cpu_wait_share: 0.0,
            balancer: None,
        })
        .collect()
    }

    /// Rounds with these values at 50 %, and one lower by 30 % at 80 %.
    fn rounds(count: u32) -> Vec<Point> {
        use Servers::{Equal, Traced};
        let at_50 = [[10.0, 5.0], [20.0, 8.0], [10.0, 9.0]];
        let round = |i: u32| {
            let mut points = pair(i, Traced, 50, at_50[i as usize % 3]);
            points.extend(pair(i, Traced, 80, [10.0, 7.0]));
            points.extend(pair(i, Equal, 65, [10.0, 10.1]));
            points
        };
        (0..count).flat_map(round).collect()
    }

    #[test]
    fn the_reduction_is_the_mean_over_loads_of_paired_medians() {
        let points = rounds(15);
        let invalid = pair(1, Servers::Traced, 80, [1e9, 1.0]);
        let summary = Summary::of(&points, &invalid);
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-9;
        assert!(close(summary.p99_reduction, 0.4), "{summary:?}");
        let ratio = summary.p99_ratio.unwrap();
        assert!(ratio.low < ratio.median && ratio.median < ratio.high && ratio.pairs == 30);
        assert_eq!(summary.verdict, Verdict::Met);
        assert!(close(summary.equal_servers_ratio, 1.01), "{summary:?}");
        assert_eq!(summary.per_load[&80].pairs, 15);
        assert_eq!(summary.broken_connections, 15 * 6 + 2);
    }

    #[test]
    fn one_pair_decides_nothing() {
        let summary = Summary::of(&rounds(1), &[]);
        assert_eq!(summary.p99_reduction, None);
        assert_eq!(summary.verdict, Verdict::Undecided);
        assert_eq!(summary.equal_servers_ratio, None);
        assert_eq!(summary.per_load[&80].ratio, None);
        assert_eq!(summary.per_load[&80].ratios[&Policy::Latency].pairs, 1);
    }

    #[test]
    fn a_load_without_pairs_leaves_the_mean_undecided() {
        let mut points = rounds(15);
        points.retain(|p| p.arm.load_percent != 80 || p.arm.policy == Policy::Latency);
        let summary = Summary::of(&points, &[]);
        assert_eq!(summary.per_load[&50].pairs, 15);
        assert_eq!(summary.p99_ratio.unwrap().pairs, 0);
        assert_eq!(
            (summary.p99_reduction, summary.verdict),
            (None, Verdict::Undecided)
        );
    }

    #[test]
    fn of_nothing_there_is_nothing_to_say() {
        assert_eq!(Summary::of(&[], &[]), Summary::default());
    }
}
