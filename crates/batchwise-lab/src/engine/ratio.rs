//! Ratios of paired measurements: the median with its 95 % bootstrap interval, and what that says
//! about a bar.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::MedianInterval;

/// With fewer pairs nothing is decided.
pub const ENOUGH_PAIRS: usize = 15;

/// The values of `arm` and `base` of each round that has both. `key` gives a point's round and arm.
pub fn pairs<P, R: Ord, A: PartialEq>(
    points: &[P],
    key: impl Fn(&P) -> (R, A),
    arm: A,
    base: A,
    value: impl Fn(&P) -> f64,
) -> Vec<(f64, f64)> {
    let mut rounds: BTreeMap<R, (Option<f64>, Option<f64>)> = BTreeMap::new();
    for point in points {
        let (round, of) = key(point);
        let slot = rounds.entry(round).or_default();
        if of == arm {
            slot.0 = Some(value(point));
        } else if of == base {
            slot.1 = Some(value(point));
        }
    }
    let both = rounds.into_values();
    both.filter_map(|(above, below)| Some((above?, below?)))
        .collect()
}

/// The median of paired ratios with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub pairs: usize,
}

impl Ratio {
    /// Of these pairs; one with a value that is not positive does not count. `None` without pairs.
    /// A median need not take logarithms: it is the same pair's ratio either way. The same pairs
    /// always give the same interval.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let ratio = |&(arm, base): &(f64, f64)| {
            let ratio = arm / base;
            (arm > 0.0 && base > 0.0 && ratio.is_finite()).then_some(ratio)
        };
        let ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
        let MedianInterval { median, low, high } = MedianInterval::of(&ratios)?;
        Some(Self {
            median,
            low,
            high,
            pairs: ratios.len(),
        })
    }

    /// Whether there are enough pairs to say anything.
    pub fn has_power(&self) -> bool {
        self.pairs >= ENOUGH_PAIRS
    }

    /// The median if there are enough pairs: never a number without power.
    pub fn decided(of: Option<&Self>) -> Option<f64> {
        of.filter(|ratio| ratio.has_power())
            .map(|ratio| ratio.median)
    }

    /// For people: the median with its interval, or with the word that it decides nothing.
    pub fn text(of: Option<&Self>) -> String {
        match of {
            Some(r) if r.has_power() => format!("{:.3} ({:.3} – {:.3})", r.median, r.low, r.high),
            Some(r) => format!("{:.3} (undecided: pairs: {})", r.median, r.pairs),
            None => "undecided".into(),
        }
    }
}

/// What an interval says about a bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of the interval is on the good side.
    Met,
    /// All of it is on the bad side.
    Missed,
    /// The bar is inside the interval, or there are too few pairs: run longer.
    #[default]
    Undecided,
}

impl Verdict {
    /// Whether the ratio is at most `bar`.
    pub fn at_most(ratio: Option<&Ratio>, bar: f64) -> Self {
        match ratio.filter(|ratio| ratio.has_power()) {
            Some(ratio) if ratio.high <= bar => Self::Met,
            Some(ratio) if ratio.low > bar => Self::Missed,
            _ => Self::Undecided,
        }
    }

    /// Whether the ratio is at least `bar`.
    pub fn at_least(ratio: Option<&Ratio>, bar: f64) -> Self {
        match ratio.filter(|ratio| ratio.has_power()) {
            Some(ratio) if ratio.low >= bar => Self::Met,
            Some(ratio) if ratio.high < bar => Self::Missed,
            _ => Self::Undecided,
        }
    }

    /// Of several that must all be met: one that is missed is enough, one that is undecided leaves
    /// it open.
    pub fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        let all: Vec<_> = verdicts.into_iter().collect();
        match (all.contains(&Self::Missed), all.contains(&Self::Undecided)) {
            (true, _) => Self::Missed,
            (_, true) => Self::Undecided,
            _ if all.is_empty() => Self::Undecided,
            _ => Self::Met,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use rand_distr::{Distribution as _, StandardNormal};

    /// Pairs with this true ratio: a drift of the machine that both share, and noise of each.
    fn drifting(ratio: f64, count: usize, seed: u64) -> Vec<(f64, f64)> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut noise = |scale: f64| {
            let unit: f64 = StandardNormal.sample(&mut rng);
            (unit * scale).exp()
        };
        (0..count)
            .map(|_| {
                let speed = 1e5 * noise(0.3);
                (speed * ratio * noise(0.05), speed * noise(0.05))
            })
            .collect()
    }

    #[test]
    fn the_interval_covers_the_truth_about_95_times_of_100_whatever_the_drift() {
        for count in [ENOUGH_PAIRS, 60] {
            let covers = |seed| {
                let ratio = Ratio::of(&drifting(0.97, count, seed)).unwrap();
                (ratio.low..=ratio.high).contains(&0.97)
            };
            let covered = (0..300).filter(|&seed| covers(seed)).count();
            // 95 % of 300 are 285; its standard deviation is 3.8.
            assert!((270..=298).contains(&covered), "{count}: {covered} of 300");
        }
    }

    #[test]
    fn four_hundred_pairs_tell_one_percent() {
        let ratio = Ratio::of(&drifting(0.97, 400, 7)).unwrap();
        assert!(ratio.high - ratio.low < 0.02, "{ratio:?}");
    }

    #[test]
    fn stalls_in_a_few_pairs_do_not_move_the_ratio() {
        let calm = drifting(1.0, 200, 3);
        let mut stalled = calm.clone();
        for pair in stalled.iter_mut().step_by(20) {
            pair.0 *= 0.2;
        }
        let [calm, stalled] = [calm, stalled].map(|pairs| Ratio::of(&pairs).unwrap().median);
        assert!((calm - stalled).abs() < 0.01, "{calm} {stalled}");
    }

    #[test]
    fn a_bar_inside_the_interval_and_too_few_pairs_decide_nothing() {
        let ratio = |median, low, high, pairs| Ratio {
            median,
            low,
            high,
            pairs,
        };
        let at_most = |r: Ratio| Verdict::at_most(Some(&r), 1.05);
        assert_eq!(at_most(ratio(1.0, 0.99, 1.02, 30)), Verdict::Met);
        assert_eq!(at_most(ratio(1.1, 1.06, 1.2, 30)), Verdict::Missed);
        assert_eq!(at_most(ratio(1.04, 1.0, 1.08, 30)), Verdict::Undecided);
        assert_eq!(at_most(ratio(1.0, 0.99, 1.02, 14)), Verdict::Undecided);
        assert_eq!(Verdict::at_most(None, 1.05), Verdict::Undecided);
        let at_least = |r: Ratio| Verdict::at_least(Some(&r), 0.95);
        assert_eq!(at_least(ratio(0.98, 0.96, 0.99, 30)), Verdict::Met);
        assert_eq!(at_least(ratio(0.9, 0.88, 0.94, 30)), Verdict::Missed);
        assert_eq!(at_least(ratio(0.9, 0.88, 0.99, 30)), Verdict::Undecided);
        let one = ratio(0.77, 0.77, 0.77, 1);
        assert_eq!(Ratio::text(Some(&one)), "0.770 (undecided: pairs: 1)");
    }

    #[test]
    fn only_runs_of_one_round_are_compared_whatever_their_order() {
        let runs = [
            (0, 'a', 2.0),
            (0, 'b', 3.0),
            (1, 'b', 30.0),
            (1, 'a', 10.0),
            (2, 'b', 7.0),
        ];
        let found = pairs(&runs, |r| (r.0, r.1), 'b', 'a', |r| r.2);
        assert_eq!(found, [(3.0, 2.0), (30.0, 10.0)]);
        assert_eq!(Ratio::of(&[(1.0, 0.0)]), None, "nothing is compared with 0");
    }
}
