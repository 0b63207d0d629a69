//! Ladders: a workload is put on with one load after another until an arm collapses, which
//! takes two measurements. Above it the arm is not measured again: it counts as collapsed there.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Ratio, SATURATED_ATTEMPTS};
use crate::stats::median;

/// A mean latency after a collapse, where ratios are taken, ns: worse than any that is measured.
const COLLAPSED_NS: f64 = 1e9;

/// A workload and the loads that it is put on with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    pub name: &'static str,
    pub value_size: u32,
    /// Share of GETs; the rest are SETs.
    pub get_ratio: f64,
    /// The client sleeps while it has nothing to do.
    pub sleeping: bool,
    /// An agent at the server, too.
    pub both_ends: bool,
    /// Requests a second, ascending.
    pub steps: &'static [u64],
    pub quick_steps: &'static [u64],
}

impl Workload {
    pub const fn new(
        name: &'static str,
        (value_size, get_ratio): (u32, f64),
        steps: &'static [u64],
        quick_steps: &'static [u64],
    ) -> Self {
        Self {
            name,
            value_size,
            get_ratio,
            sleeping: false,
            both_ends: false,
            steps,
            quick_steps,
        }
    }

    /// The same from a client that sleeps while it has nothing to do.
    pub const fn sleeping(self) -> Self {
        Self {
            sleeping: true,
            ..self
        }
    }

    /// The same with an agent at the server, too.
    pub const fn at_both_ends(self) -> Self {
        Self {
            both_ends: true,
            ..self
        }
    }

    /// The steps of a quick or a full run.
    pub fn steps(&self, quick: bool) -> &'static [u64] {
        match quick {
            true => self.quick_steps,
            false => self.steps,
        }
    }

    /// Its name as part of a file's; a colon does not travel well.
    pub fn file_name(&self) -> String {
        self.name.replace(':', "-")
    }
}

/// Where on a ladder a point was measured.
#[derive(Clone, Copy, Debug)]
pub struct Rung<'a> {
    pub workload: &'a str,
    /// Requests a second.
    pub step_rps: u64,
    pub repeat: u32,
    pub attempt: u32,
    /// Whether the load was more than could be carried.
    pub saturated: bool,
}

/// What was measured on a ladder.
pub trait OnLadder {
    fn rung(&self) -> Rung<'_>;
}

/// A summary of each workload's points, by name.
pub fn per_workload<P: OnLadder, S>(
    points: &[P],
    summary: impl Fn(&[&P]) -> S,
) -> BTreeMap<String, S> {
    let names: BTreeSet<_> = points.iter().map(|p| p.rung().workload).collect();
    let one = |name: &str| {
        let of_it: Vec<_> = points
            .iter()
            .filter(|p| p.rung().workload == name)
            .collect();
        (name.to_owned(), summary(&of_it))
    };
    names.into_iter().map(one).collect()
}

/// The loads of these points, ascending.
pub fn steps<P: OnLadder>(points: &[&P]) -> BTreeSet<u64> {
    points.iter().map(|p| p.rung().step_rps).collect()
}

/// A value by repeat.
pub type Repeats = BTreeMap<u32, f64>;

/// The value of an arm's points at a step, by repeat. The last attempt counts, also if its value is
/// not known; a repeat whose ladder had ended below the step has `collapsed`.
pub fn by_repeat<'a, P: OnLadder + 'a>(
    of_arm: impl Iterator<Item = &'a P>,
    step: u64,
    value: impl Fn(&P) -> Option<f64>,
    collapsed: f64,
) -> Repeats {
    let mut found: BTreeMap<u32, Option<f64>> = BTreeMap::new();
    for point in of_arm {
        let rung = point.rung();
        if rung.step_rps == step {
            found.insert(rung.repeat, value(point));
        } else if rung.step_rps < step && rung.saturated && rung.attempt + 1 == SATURATED_ATTEMPTS {
            found.insert(rung.repeat, Some(collapsed));
        }
    }
    let known = |(repeat, value): (u32, Option<f64>)| Some((repeat, value?));
    found.into_iter().filter_map(known).collect()
}

/// The median over repeats.
pub fn middle(of: &Repeats) -> Option<f64> {
    median(&of.values().copied().collect::<Vec<_>>())
}

/// The values of each repeat that has both; a collapse counts as a latency of a second. Two
/// collapses cannot be told apart.
pub fn pairs(above: &Repeats, below: &Repeats) -> Vec<(f64, f64)> {
    let limited = |(a, b): (f64, f64)| (a.min(COLLAPSED_NS), b.min(COLLAPSED_NS));
    told_apart(above, below).map(limited).collect()
}

/// The median of the repeats' ratios, which may be infinite, and the interval of their [`pairs`].
pub fn compare(above: &Repeats, below: &Repeats) -> Option<(f64, Option<Ratio>)> {
    let ratios: Vec<_> = told_apart(above, below).map(|(a, b)| a / b).collect();
    Some((median(&ratios)?, Ratio::of(&pairs(above, below))))
}

fn told_apart(above: &Repeats, below: &Repeats) -> impl Iterator<Item = (f64, f64)> {
    let both = above
        .iter()
        .filter_map(|(repeat, &a)| Some((a, *below.get(repeat)?)));
    both.filter(|(a, b)| *b > 0.0 && (a.is_finite() || b.is_finite()))
}
