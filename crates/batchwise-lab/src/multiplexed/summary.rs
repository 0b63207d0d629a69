//! What the runs say: ratios of the same round, which a drift of the machine hardly touches.

use serde::Serialize;

use super::{Arm, Load, Point};
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::median;

/// "Both reach the better of the two within 3 %", and "at most 2 % worse than the application's own".
const REACHES: f64 = 0.97;
const NO_WORSE: f64 = 0.98;

/// A client, and what its application asked for.
pub type Key = (Load, bool, bool);

#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub load: Load,
    pub nodelay: bool,
    pub older: bool,
    /// Throughput: the other setting by hand over the own, …
    pub other_vs_own: Option<Ratio>,
    /// … tune over the own, …
    pub tune_vs_own: Option<Ratio>,
    /// … and over the better of both.
    pub tune_vs_better: Option<Ratio>,
    /// The same of the median latency: below 1 is better.
    pub p50_other_vs_own: Option<Ratio>,
    pub p50_tune_vs_own: Option<Ratio>,
    pub p50_tune_vs_better: Option<Ratio>,
    /// Whether tune's throughput is within 3 % of the better one's.
    pub reaches_better: Verdict,
    /// Whether it is at most 2 % below the own one's.
    pub no_worse: Verdict,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    pub points: Vec<Compared>,
    /// Points whose throughput is within 3 % of the better setting's: met, missed, undecided.
    pub points_met: usize,
    pub points_missed: usize,
    pub points_undecided: usize,
    /// Points that are more than 2 % below the own setting.
    pub worse_missed: usize,
    /// The lowest of the medians of tune over the better setting.
    pub lowest_vs_better: Option<f64>,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let mut keys: Vec<Key> = points.iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let points: Vec<_> = keys.iter().map(|key| Compared::of(points, key)).collect();
        let count = |of: fn(&Compared) -> Verdict, verdict| {
            points.iter().filter(|p| of(p) == verdict).count()
        };
        let medians = points.iter().filter_map(|p| Some(p.tune_vs_better?.median));
        Self {
            points_met: count(|p| p.reaches_better, Verdict::Met),
            points_missed: count(|p| p.reaches_better, Verdict::Missed),
            points_undecided: count(|p| p.reaches_better, Verdict::Undecided),
            worse_missed: count(|p| p.no_worse, Verdict::Missed),
            lowest_vs_better: medians.min_by(f64::total_cmp),
            points,
        }
    }
}

impl Compared {
    fn of(points: &[Point], key: &Key) -> Self {
        let rps = |p: &Point| p.rps;
        let p50 = |p: &Point| p.p50_ns;
        let ratio = |arm, base, value: fn(&Point) -> f64| {
            Ratio::of(&pairs_of(points, key, arm, base, value))
        };
        let middle = |arm| {
            let of_arm = points
                .iter()
                .filter(|p| self::key(p) == *key && p.arm == arm);
            median(&of_arm.map(rps).collect::<Vec<_>>())
        };
        let better = match middle(Arm::Other) > middle(Arm::Own) {
            true => Arm::Other,
            false => Arm::Own,
        };
        let (tune_vs_own, tune_vs_better) = (
            ratio(Arm::Tune, Arm::Own, rps),
            ratio(Arm::Tune, better, rps),
        );
        Self {
            load: key.0,
            nodelay: key.1,
            older: key.2,
            other_vs_own: ratio(Arm::Other, Arm::Own, rps),
            tune_vs_own,
            tune_vs_better,
            p50_other_vs_own: ratio(Arm::Other, Arm::Own, p50),
            p50_tune_vs_own: ratio(Arm::Tune, Arm::Own, p50),
            p50_tune_vs_better: ratio(Arm::Tune, better, p50),
            reaches_better: Verdict::at_least(tune_vs_better.as_ref(), REACHES),
            no_worse: Verdict::at_least(tune_vs_own.as_ref(), NO_WORSE),
        }
    }

    pub fn key(&self) -> Key {
        (self.load, self.nodelay, self.older)
    }

    pub fn name(&self) -> String {
        let asked = if self.nodelay { "TCP_NODELAY" } else { "Nagle" };
        let age = if self.older { "older" } else { "younger" };
        format!(
            "{}, asked for {asked}, {age} than the agent",
            self.load.name()
        )
    }
}

fn key(p: &Point) -> Key {
    (p.load, p.nodelay, p.older)
}

/// The values of two arms in each round that has both.
pub fn pairs_of(
    points: &[Point],
    of: &Key,
    arm: Arm,
    base: Arm,
    value: impl Fn(&Point) -> f64,
) -> Vec<(f64, f64)> {
    let points: Vec<Point> = points.iter().filter(|p| key(p) == *of).cloned().collect();
    pairs(&points, |p| (p.round, p.arm), arm, base, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tune_is_held_against_the_setting_that_is_better_in_the_median() {
        let load = Load {
            tasks: 64,
            value_size: 64,
            gets: true,
            far: false,
        };
        let mut points = Vec::new();
        for round in 0..15 {
            let speed = f64::from(round % 3 + 1);
            let each = [(Arm::Own, 100.0), (Arm::Other, 200.0), (Arm::Tune, 198.0)];
            points.extend(each.map(|(arm, rps)| Point {
                round,
                load,
                nodelay: true,
                older: true,
                arm,
                rps: rps * speed,
                p50_ns: 1e9 / rps,
                events: Vec::new(),
            }));
        }
        let summary = Summary::of(&points);
        assert_eq!((summary.points_met, summary.worse_missed), (1, 0));
        assert!((summary.lowest_vs_better.unwrap() - 0.99).abs() < 1e-9);
        let of = &summary.points[0];
        assert!((of.tune_vs_own.unwrap().median - 1.98).abs() < 1e-9);
        assert!((of.p50_other_vs_own.unwrap().median - 0.5).abs() < 1e-9);
        assert_eq!(of.no_worse, Verdict::Met);
    }
}
