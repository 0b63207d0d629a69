//! What all rounds say of a pattern.

use std::collections::BTreeMap;

use batchwise_core::profile::Component;
use serde::Serialize;

use super::{Arm, End, Pattern, Point};
use crate::stats::median;

/// By component: the median over rounds, the lowest and the highest.
pub type Shares = BTreeMap<Component, [f64; 3]>;

/// A pattern. Shares: the median over rounds, the lowest and the highest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    pub pattern: Pattern,
    pub bytes_per_s: f64,
    /// Gbit/s over the CPUs' worth of time at the busier end: the median over rounds, the lowest and the highest.
    pub gbit_per_core: [f64; 3],
    pub sender: Shares,
    pub receiver: Shares,
    /// The worse end's.
    pub unclassified: f64,
    /// How far a share is from its median, at most.
    pub spread: f64,
}

impl Compared {
    pub fn of(points: &[Point], pattern: Pattern) -> Self {
        let points: Vec<_> = points
            .iter()
            .filter(|p| p.arm == Arm::Pattern(pattern))
            .collect();
        let senders: Vec<_> = points.iter().filter_map(|p| p.sender.as_ref()).collect();
        let receivers: Vec<_> = points.iter().filter_map(|p| p.receiver.as_ref()).collect();
        let (sender, receiver) = (shares(&senders), shares(&receivers));
        let middle = |of: &dyn Fn(&Point) -> f64| {
            median(&points.iter().map(|p| of(p)).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let busiest = |p: &Point| {
            let ends = p.sender.iter().chain(&p.receiver);
            highest(ends.map(|end| end.busy)).unwrap_or(f64::NAN)
        };
        let both = || sender.iter().chain(&receiver);
        let unknown = both().filter(|(c, _)| **c == Component::Unclassified);
        let far = |[share, low, high]: &[f64; 3]| (share - low).max(high - share);
        Self {
            pattern,
            bytes_per_s: middle(&|p| p.bytes_per_s),
            gbit_per_core: spread_of(points.iter().map(|p| p.bytes_per_s * 8e-9 / busiest(p)))
                .unwrap_or([f64::NAN; 3]),
            unclassified: highest(unknown.map(|(_, [.., high])| *high)).unwrap_or(f64::NAN),
            spread: highest(both().map(|(_, share)| far(share))).unwrap_or(f64::NAN),
            sender,
            receiver,
        }
    }
}

fn shares(ends: &[&End]) -> Shares {
    let share = |component: Component| {
        let of_ends = ends
            .iter()
            .filter_map(|end| end.shares.get(&component).copied());
        Some((component, spread_of(of_ends)?))
    };
    Component::ALL.into_iter().filter_map(share).collect()
}

/// The median, the lowest and the highest.
fn spread_of(values: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let all: Vec<_> = values.collect();
    let low = all.iter().copied().reduce(f64::min)?;
    let high = all.iter().copied().reduce(f64::max)?;
    Some([median(&all)?, low, high])
}

/// The highest of what is known.
pub fn highest(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.reduce(f64::max)
}
