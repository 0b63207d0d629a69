//! What the runs of the passive-accuracy experiment say.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{EPOCH, Runs, STEPPED, WEB};
use crate::passive::trial::{Baseline, Outcome};
use crate::truth::{Errors, Paired, over_time, slots_to_follow};

/// The experiment. Errors are of the web arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Middle of `(truth - estimate) / truth` over responses: the paper's figure.
    pub median_rel_error: Option<f64>,
    /// Middle of its absolute value.
    pub median_abs_rel_error: Option<f64>,
    /// Share of the responses whose epoch's estimate is within 15 % of the truth.
    pub within_15_percent: Option<f64>,
    /// Share of the responses whose epoch has an estimate.
    pub covered: Option<f64>,
    /// How many times further off each baseline is, by the median absolute error.
    pub closer_than: BTreeMap<Baseline, Option<f64>>,
    /// Epochs until the server's estimate is within 15 % of the truth after its speed changed: the
    /// worst of all changes; `None` when one was not followed at all.
    pub epochs_to_follow: Option<usize>,
    /// The same for each change.
    pub epochs_to_follow_each: Vec<Option<usize>>,
    /// Errors of each arm.
    pub per_arm: BTreeMap<String, Errors>,
}

impl Summary {
    /// Of these runs.
    pub(super) fn of(runs: &Runs) -> Self {
        let per_arm: BTreeMap<_, _> = runs
            .outcomes
            .iter()
            .map(|outcome| (outcome.point.arm.clone(), outcome.point.errors))
            .collect();
        let web = runs.of(WEB).map(|outcome| &outcome.point);
        let errors = web.map(|point| point.errors).unwrap_or_default();
        let closer_than = web.map_or_else(BTreeMap::new, |point| {
            let others = point.baselines.iter();
            let others = others.filter(|(b, _)| Baseline::ESTIMATORS.contains(b));
            others
                .map(|(&b, other)| (b, errors.closer_than(other)))
                .collect()
        });
        let each = runs.of(STEPPED).map(follow).unwrap_or_default();
        Self {
            median_rel_error: errors.median_rel_error,
            median_abs_rel_error: errors.median_abs_rel_error,
            within_15_percent: errors.within_15_percent,
            covered: web.map(|point| point.errors.covered),
            closer_than,
            epochs_to_follow: worst(&each),
            epochs_to_follow_each: each,
            per_arm,
        }
    }
}

/// The most of them; `None` when one is not known, or there is none.
fn worst(each: &[Option<usize>]) -> Option<usize> {
    each.iter().copied().reduce(|a, b| Some(a?.max(b?)))?
}

/// The server over time.
pub(super) fn server_series(outcome: &Outcome, epochs: &[Paired]) -> Vec<Paired> {
    over_time(epochs, outcome.from_ns, EPOCH.as_nanos() as u64)
}

fn follow(outcome: &Outcome) -> Vec<Option<usize>> {
    let changes: Vec<_> = outcome
        .shares
        .windows(2)
        .filter(|pair| pair[0].share != pair[1].share && pair[1].at_ns > outcome.from_ns)
        .map(|pair| pair[1].at_ns)
        .collect();
    slots_to_follow(&server_series(outcome, &outcome.paired), &changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_was_never_followed_leaves_no_number_for_the_worst() {
        assert_eq!(worst(&[Some(1), Some(3), Some(2)]), Some(3));
        assert_eq!(worst(&[Some(1), None, Some(2)]), None);
        assert_eq!(worst(&[]), None);
    }

    #[test]
    fn nothing_measured_is_not_known_and_not_zero() {
        let summary = Summary::of(&Runs::default());
        assert_eq!((summary.median_rel_error, summary.covered), (None, None));
        assert!(summary.closer_than.is_empty() && summary.epochs_to_follow.is_none());
    }
}
