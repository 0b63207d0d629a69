//! What the points say: predictions over what was carried in the same round.

use std::collections::BTreeSet;

use batchwise_core::tune::Arm;
use serde::Serialize;

use super::{FEW, MANY, Point};
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::median;

/// How far a prediction may be off.
const BAR: f64 = 0.15;

/// A size, a load (tasks of the client) and a setting.
type Row = (u32, u32, Arm);

/// One of them. Rates are requests a second, medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    pub value_size: u32,
    pub tasks: u32,
    pub arm: Arm,
    /// When tune tested.
    pub load_rps: Option<f64>,
    pub predicted_rps: Option<f64>,
    pub carried_rps: Option<f64>,
    /// Predicted over carried, with its 95 % interval.
    pub ratio: Option<Ratio>,
    /// Whether that is within 15 % of 1.
    pub verdict: Verdict,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How far the ratio is off 1, as a share: median over sizes and settings, said at a modest load, …
    pub median_error: Option<f64>,
    /// … and at the limit.
    pub median_error_at_limit: Option<f64>,
    pub points: Vec<Predicted>,
    /// Rows that are within 15 %, that are not, and where it is not known.
    pub points_met: usize,
    pub points_missed: usize,
    pub points_undecided: usize,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let sizes: BTreeSet<u32> = points.iter().map(|p| p.value_size).collect();
        let loads = [FEW, MANY].map(|tasks| [(tasks, Arm::Off), (tasks, Arm::On)]);
        let rows = |size| {
            loads
                .as_flattened()
                .iter()
                .map(move |&(t, arm)| (size, t, arm))
        };
        let rows = sizes.into_iter().flat_map(rows);
        let points: Vec<_> = rows.map(|row| Predicted::of(points, row)).collect();
        let error = |tasks| {
            let of_load = points.iter().filter(|p| p.tasks == tasks);
            let errors = of_load.filter_map(|p| Some((p.ratio?.median - 1.0).abs()));
            median(&errors.collect::<Vec<_>>())
        };
        let count = |verdict| points.iter().filter(|p| p.verdict == verdict).count();
        Self {
            median_error: error(FEW),
            median_error_at_limit: error(MANY),
            points_met: count(Verdict::Met),
            points_missed: count(Verdict::Missed),
            points_undecided: count(Verdict::Undecided),
            points,
        }
    }

    /// In ascending order.
    pub fn sizes(&self) -> BTreeSet<u32> {
        self.points.iter().map(|p| p.value_size).collect()
    }
}

impl Predicted {
    fn of(points: &[Point], row: Row) -> Self {
        let (value_size, tasks, arm) = row;
        let of_size = || points.iter().filter(|p| p.value_size == value_size);
        let middle = |of: &dyn Fn(&Point) -> Option<f64>| {
            median(&of_size().filter_map(of).collect::<Vec<_>>())
        };
        let ratio = Ratio::of(&pairs_of(points, row));
        Self {
            value_size,
            tasks,
            arm,
            load_rps: middle(&|p| is_said(p, tasks).then_some(p.rps)),
            predicted_rps: middle(&|p| predicted(p, row)),
            carried_rps: middle(&|p| carried(p, row)),
            ratio,
            verdict: Verdict::of_all([
                Verdict::at_least(ratio.as_ref(), 1.0 - BAR),
                Verdict::at_most(ratio.as_ref(), 1.0 + BAR),
            ]),
        }
    }
}

fn is_said(p: &Point, tasks: u32) -> bool {
    p.carried.is_none() && p.tasks == tasks
}

fn carried(p: &Point, (_, _, arm): Row) -> Option<f64> {
    (p.carried == Some(arm)).then_some(p.rps)
}

fn predicted(p: &Point, (_, tasks, arm): Row) -> Option<f64> {
    let of_arm = p.predicted.iter().find(|(of, _)| *of == arm);
    of_arm.map(|(_, rps)| *rps).filter(|_| is_said(p, tasks))
}

/// What was predicted and what was carried, of each round that has both.
pub fn pairs_of(points: &[Point], row: Row) -> Vec<(f64, f64)> {
    let of_size = points.iter().filter(|p| p.value_size == row.0);
    let known = of_size.filter_map(|p| {
        let said = predicted(p, row).map(|rps| (p.round, true, rps));
        said.or_else(|| Some((p.round, false, carried(p, row)?)))
    });
    let known: Vec<_> = known.collect();
    pairs(&known, |k| (k.0, k.1), true, false, |k| k.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_held_against_what_the_same_setting_carried_in_the_same_round() {
        let mut points = Vec::new();
        for round in 0..15 {
            let speed = f64::from(round % 3 + 1);
            let point = |tasks, carried, rps: f64, predicted| Point {
                round,
                value_size: 64,
                rps: rps * speed,
                carried,
                tasks,
                predicted,
            };
            points.push(point(MANY, Some(Arm::On), 200.0, vec![]));
            points.push(point(MANY, Some(Arm::Off), 100.0, vec![]));
            let said = vec![(Arm::On, 180.0 * speed), (Arm::Off, 70.0 * speed)];
            points.push(point(FEW, None, 50.0, said));
        }
        let summary = Summary::of(&points);
        assert_eq!((summary.points_met, summary.points_missed), (1, 1));
        assert!((summary.median_error.unwrap() - 0.2).abs() < 1e-9);
        let off = &summary.points[0];
        assert_eq!((off.arm, off.load_rps), (Arm::Off, Some(100.0)));
        assert_eq!(summary.median_error_at_limit, None);
        assert!((off.ratio.unwrap().median - 0.7).abs() < 1e-9);
    }
}
