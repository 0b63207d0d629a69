//! Statistics of bins of load: of each arm the median over the slices that count, with its interval,
//! and which of two arms is the slower one, from pairs of slices at the same place of their climbs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::moment::{Moment, Slice};
use crate::arm::Arm;
use crate::engine::{Ratio, Verdict, pairs};

/// Arms that differ by less than this factor are alike.
pub const ALIKE: f64 = 1.25;
/// A load under which requests take longer than this on average is more than can be carried, as in
/// the load generator's own judgement, ns.
pub const TOO_LONG: f64 = 5e6;

/// How an arm compares with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    Slower,
    Faster,
    /// They differ by less than [`ALIKE`].
    Alike,
    /// The run does not tell.
    Undecided,
}

impl Order {
    /// Of an arm over another one.
    fn of(ratio: Option<&Ratio>) -> Self {
        let above = |bar| Verdict::at_least(ratio, bar);
        match (above(ALIKE), above(1.0 / ALIKE)) {
            (Verdict::Met, _) => Self::Slower,
            (_, Verdict::Missed) => Self::Faster,
            (Verdict::Missed, Verdict::Met) => Self::Alike,
            _ => Self::Undecided,
        }
    }
}

/// What a load was to an arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carried {
    /// A request took about so long, ns.
    In(f64),
    /// A request took something between these, ns.
    Between(f64, f64),
    /// It was more than could be carried.
    TooMuch,
    /// Too little time is left after stalls were cut, or it was not measured.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bin {
    /// The load in its middle, requests a second.
    pub offered_rps: f64,
    /// By arm: the median of mean latencies (ns) with its interval; only with enough slices.
    pub latency_ns: BTreeMap<Arm, Ratio>,
    /// TCP_NODELAY against Nagle's algorithm; `None` if one of them is not known, or none could carry
    /// the load: two that have collapsed are not compared.
    pub nodelay: Option<Order>,
}

impl Bin {
    /// What the load was to an arm.
    pub fn carried(&self, arm: Arm) -> Carried {
        match self.latency_ns.get(&arm) {
            None => Carried::Unknown,
            Some(found) if found.low > TOO_LONG => Carried::TooMuch,
            Some(found) if found.high > 2.0 * found.low => Carried::Between(found.low, found.high),
            Some(found) => Carried::In(found.median),
        }
    }
}

/// All bins, by load. Arms with fewer than `enough` slices are left out of a bin. `value` is what is
/// compared of a slice.
pub fn bins(moments: &[Moment], enough: usize, value: fn(&Slice) -> Option<f64>) -> Vec<Bin> {
    let mut by_load: BTreeMap<u64, Vec<&Moment>> = BTreeMap::new();
    for moment in moments {
        let load = moment.offered_rps.round() as u64 / 100;
        by_load.entry(load).or_default().push(moment);
    }
    let bins = by_load.values().map(|bin| of_bin(bin, enough, value));
    bins.collect()
}

fn of_bin(moments: &[&Moment], enough: usize, value: fn(&Slice) -> Option<f64>) -> Bin {
    let mut samples = Vec::new();
    for moment in moments {
        for (place, slice) in moment.slices.iter().enumerate() {
            if let Some(value) = value(slice).filter(|_| !slice.stalled) {
                samples.push(((moment.pass, place), moment.arm, value));
            }
        }
    }
    let latency = |arm: &Arm| {
        let of_arm = samples.iter().filter(|s| s.1 == *arm);
        let found = Ratio::of(&of_arm.map(|s| (s.2, 1.0)).collect::<Vec<_>>())?;
        (found.pairs >= enough).then_some((*arm, found))
    };
    let mut bin = Bin {
        offered_rps: moments.first().map_or(0.0, |m| m.offered_rps),
        latency_ns: Arm::ALL.iter().filter_map(latency).collect(),
        nodelay: None,
    };
    let (arm, base) = (Arm::Nodelay, Arm::Nagle);
    let both = [arm, base].map(|arm| bin.carried(arm));
    if !both.contains(&Carried::Unknown) && both != [Carried::TooMuch; 2] {
        let ratio = Ratio::of(&pairs(&samples, |s| (s.0, s.1), arm, base, |s| s.2));
        bin.nodelay = Some(Order::of(ratio.as_ref()));
    }
    bin
}

/// The load from which on TCP_NODELAY is the slower one at every load that can be compared.
pub fn slower_from(bins: &[Bin]) -> Option<f64> {
    let compared = bins.iter();
    let compared: Vec<_> = compared
        .filter_map(|bin| Some((bin.offered_rps, bin.nodelay?)))
        .collect();
    let last = compared.iter().rposition(|c| c.1 != Order::Slower);
    compared.get(last.map_or(0, |last| last + 1)).map(|c| c.0)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{climbs, moment};
    use super::*;
    use crate::engine::ratio::ENOUGH_PAIRS;

    fn of(moments: &[Moment]) -> Vec<Bin> {
        bins(moments, ENOUGH_PAIRS, Slice::latency)
    }

    #[test]
    fn stalls_of_the_machine_move_no_bin_and_leave_it_out_if_they_take_too_much() {
        let mut moments = climbs(|_, _| 20e3);
        for moment in moments.iter_mut().filter(|m| m.arm == Arm::Nodelay) {
            let stalled = if moment.offered_rps > 300e3 { 9 } else { 4 };
            for slice in &mut moment.slices[..stalled] {
                (slice.mean_ns, slice.stalled) = (Some(14e6), true);
            }
        }
        let found = of(&moments);
        assert_eq!(found[0].nodelay, Some(Order::Alike), "{:?}", found[0]);
        assert!((found[0].latency_ns[&Arm::Nodelay].median - 20e3).abs() < 2e3);
        assert_eq!(found[9].carried(Arm::Nodelay), Carried::Unknown);
        assert_eq!(found[9].nodelay, None);
    }

    #[test]
    fn stalls_that_were_not_seen_widen_the_interval_until_nothing_is_said() {
        let mut moments = climbs(|_, _| 20e3);
        for moment in moments.iter_mut().filter(|m| m.arm == Arm::Nodelay) {
            for slice in moment.slices.iter_mut().step_by(2) {
                slice.mean_ns = Some(14e6);
            }
        }
        let bin = &of(&moments)[0];
        assert_eq!(bin.nodelay, Some(Order::Undecided));
        assert!(matches!(bin.carried(Arm::Nodelay), Carried::Between(low, high) if low < high));
    }

    #[test]
    fn a_load_is_too_much_if_its_interval_says_so_and_two_of_these_are_not_compared() {
        let found = of(&climbs(|arm, load| match (arm, load) {
            (Arm::Nodelay, 200_000..) | (Arm::Nagle, 300_000..) => 20e6,
            _ => 20e3,
        }));
        assert_eq!(found[6].carried(Arm::Nodelay), Carried::TooMuch);
        assert_eq!(found[6].nodelay, Some(Order::Slower));
        assert_eq!(found[9].nodelay, None);
        assert_eq!(slower_from(&found), Some(215e3));
    }

    #[test]
    fn from_a_load_on_is_said_only_if_no_higher_load_contradicts() {
        let slow = |arm, load: u64| match (arm, load) {
            (Arm::Nodelay, 150_000..280_000) => 60e3,
            _ => 20e3,
        };
        assert_eq!(slower_from(&of(&climbs(slow))), None);
        assert_eq!(slower_from(&of(&[])), None);
    }

    #[test]
    fn without_slices_and_with_one_climb_nothing_is_decided() {
        let mut old = moment(Arm::Nodelay, 0, 0, 20e3);
        old.slices.clear();
        let one_climb = moment(Arm::Nagle, 0, 0, 80e3);
        assert_eq!(of(&[old, one_climb])[0].nodelay, None);
    }
}
