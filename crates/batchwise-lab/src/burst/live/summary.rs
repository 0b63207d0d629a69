//! What completions say: quantiles, and ratios to drop-tail of the same round with what they say about the bars.

use serde::Serialize;

use crate::engine::report::Column;
use crate::engine::text::maybe_duration;
use crate::engine::{Ratio, Table, Verdict, pairs};
use crate::stats::{median, quantile};

/// The mean is to be at most so much of drop-tail's, and p99 no worse.
const MEAN_BAR: f64 = 0.8;
const P99_BAR: f64 = 1.0;

pub(super) fn p99(times: &[f64]) -> f64 {
    quantile(times, 0.99).unwrap_or(f64::INFINITY)
}

/// At 0, 1, … 100 percent.
pub(super) fn percentiles(times: &[f64]) -> Vec<f64> {
    let at = |percent| quantile(times, f64::from(percent) / 100.0);
    (0..=100).filter_map(at).collect()
}

/// Completion of flows with admission, and with drop-tail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    pub(crate) fct_mean_drop_tail_ns: Option<f64>,
    pub(crate) fct_mean_ns: Option<f64>,
    pub(crate) fct_p99_drop_tail_ns: Option<f64>,
    pub(crate) fct_p99_ns: Option<f64>,
    /// Over drop-tail's of the same round.
    pub(crate) fct_ratio_mean: Option<Ratio>,
    /// Whether it is at most 0.8.
    pub(crate) mean_verdict: Verdict,
    pub(crate) fct_ratio_p99: Option<Ratio>,
    /// Whether it is at most 1.
    pub(crate) p99_verdict: Verdict,
}

impl Compared {
    /// Of two arms: with admission, and drop-tail. `value` gives a point's mean and p99.
    pub(super) fn of<P, A: PartialEq + Copy>(
        points: &[P],
        key: impl Fn(&P) -> (u32, A),
        (arm, base): (A, A),
        value: impl Fn(&P) -> (f64, f64),
    ) -> Self {
        let all = |arm, which: fn((f64, f64)) -> f64| {
            let of = points.iter().filter(|p| key(p).1 == arm);
            median(&of.map(|p| which(value(p))).collect::<Vec<_>>())
        };
        let ratio = |which: fn((f64, f64)) -> f64| {
            Ratio::of(&pairs(points, &key, arm, base, |p| which(value(p))))
        };
        let (mean, p99) = (ratio(|v| v.0), ratio(|v| v.1));
        Self {
            fct_mean_drop_tail_ns: all(base, |v| v.0),
            fct_mean_ns: all(arm, |v| v.0),
            fct_p99_drop_tail_ns: all(base, |v| v.1),
            fct_p99_ns: all(arm, |v| v.1),
            mean_verdict: Verdict::at_most(mean.as_ref(), MEAN_BAR),
            p99_verdict: Verdict::at_most(p99.as_ref(), P99_BAR),
            fct_ratio_mean: mean,
            fct_ratio_p99: p99,
        }
    }

    /// Over drop-tail's, if there are enough rounds.
    pub(super) fn mean_decided(&self) -> Option<f64> {
        Ratio::decided(self.fct_ratio_mean.as_ref())
    }

    /// The same of p99.
    pub(super) fn p99_decided(&self) -> Option<f64> {
        Ratio::decided(self.fct_ratio_p99.as_ref())
    }

    /// A table of what has one, with columns before and after its own.
    pub(super) fn table<T: Clone>(
        rows: &[T],
        before: &[Column<'_, T>],
        of: impl Fn(&T) -> &Self + Copy,
        after: &[Column<'_, T>],
    ) -> Table {
        let own: [Column<'_, T>; 8] = [
            ("mean, drop-tail", &|t| {
                maybe_duration(of(t).fct_mean_drop_tail_ns)
            }),
            ("mean", &|t| maybe_duration(of(t).fct_mean_ns)),
            ("ratio", &|t| Ratio::text(of(t).fct_ratio_mean.as_ref())),
            ("at most 0.8", &|t| of(t).mean_verdict.name().to_owned()),
            ("p99, drop-tail", &|t| {
                maybe_duration(of(t).fct_p99_drop_tail_ns)
            }),
            ("p99", &|t| maybe_duration(of(t).fct_p99_ns)),
            ("ratio", &|t| Ratio::text(of(t).fct_ratio_p99.as_ref())),
            ("no worse", &|t| of(t).p99_verdict.name().to_owned()),
        ];
        Table::of(rows.iter().cloned(), &[before, &own, after].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_is_held_against_drop_tail_of_the_same_round() {
        let points: Vec<_> = (0..15)
            .flat_map(|i: u32| {
                let slow = f64::from(i % 3 + 1);
                [(i, 'd', 10.0 * slow), (i, 'b', 5.0 * slow)]
            })
            .collect();
        let compared = Compared::of(&points, |p| (p.0, p.1), ('b', 'd'), |p| (p.2, 100.0));
        assert_eq!(compared.mean_decided(), Some(0.5));
        assert_eq!(compared.mean_verdict, Verdict::Met);
        assert_eq!(compared.p99_verdict, Verdict::Met);
        assert_eq!(compared.fct_mean_drop_tail_ns, Some(20.0));
    }

    #[test]
    fn percentiles_go_from_the_shortest_to_the_longest() {
        let all = percentiles(&[3.0, 1.0, 2.0]);
        assert_eq!((all.len(), all[0], all[50], all[100]), (101, 1.0, 2.0, 3.0));
    }
}
