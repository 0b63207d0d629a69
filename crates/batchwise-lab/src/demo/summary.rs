//! What a run of the demo showed: from which load on Nagle's algorithm is the better setting, what
//! batchwise makes of it, and how near the estimates were. Nothing is said that intervals do not
//! support.

use std::collections::BTreeMap;

use batchwise_core::sense::report::Side;
use serde::Serialize;

use super::bins::{Bin, Carried, Order, TOO_LONG, bins, slower_from};
use super::moment::{Moment, Slice};
use crate::arm::Arm;
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{duration, thousands};
use crate::stats::{median, quantile};

/// How near one end's estimates were, over the passages that were not saturated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EndSummary {
    /// Median of |estimated − measured| / measured.
    pub median_abs_rel_error: Option<f64>,
    pub p90_abs_rel_error: Option<f64>,
    /// The median of the 99th percentile's.
    pub p99_median_abs_rel_error: Option<f64>,
    /// Passages with an estimate of the whole latency.
    pub moments: usize,
}

/// What one setting carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Limit {
    /// The highest load that was not too much, requests a second.
    pub carried_rps: Option<f64>,
    /// The lowest load from which on every one was too much.
    pub saturated_from_rps: Option<f64>,
}

/// From which load on Nagle's algorithm gave the lower latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "nagle_better")]
pub enum Cutoff {
    /// From this load on, requests a second.
    From {
        rps: f64,
    },
    Always,
    Never,
    /// The run does not tell.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub per_end: BTreeMap<Side, EndSummary>,
    pub moments: usize,
    /// Passages in which the load was more than could be carried.
    pub saturated_moments: usize,
    pub nodelay: Limit,
    pub nagle: Limit,
    pub batchwise: Limit,
    /// By what the generator measured.
    pub measured_cutoff: Cutoff,
    /// By what the client's end estimated.
    pub estimated_cutoff: Cutoff,
    /// The share of time that is cut because the machine stood still or other work ran.
    pub cut_share: f64,
    /// What sensing cost at an end while it was watched, share of one CPU.
    pub sensing_cost: Option<f64>,
    pub bins: Vec<Bin>,
    /// All that in words; the first one is what the demo is about.
    pub sentences: Vec<String>,
}

impl Summary {
    pub fn of(moments: &[Moment]) -> Self {
        let ends = [Side::Client, Side::Server];
        let found = bins(moments, ENOUGH_PAIRS, Slice::latency);
        let estimated = bins(moments, ENOUGH_PAIRS, |slice| slice.estimate_ns);
        let cut: f64 = moments.iter().map(Moment::cut).sum();
        let mut summary = Self {
            per_end: ends.map(|side| (side, end_summary(moments, side))).into(),
            moments: moments.len(),
            saturated_moments: moments.iter().filter(|m| m.saturated).count(),
            nodelay: limit(&found, Arm::Nodelay),
            nagle: limit(&found, Arm::Nagle),
            batchwise: limit(&found, Arm::Batchwise),
            measured_cutoff: cutoff(&found),
            estimated_cutoff: cutoff(&estimated),
            cut_share: cut / moments.len().max(1) as f64,
            sensing_cost: mean(moments.iter().filter_map(|m| m.cost)),
            bins: found,
            sentences: Vec::new(),
        };
        let sentences = [
            Some(summary.headline()),
            summary.about_limits(),
            Some(summary.about_errors()),
            summary.about_estimated_cutoff(),
            Some(summary.about_stalls()),
            summary.about_cost(),
        ];
        summary.sentences = sentences.into_iter().flatten().collect();
        summary
    }

    /// What the demo is about, as far as the run tells.
    fn headline(&self) -> String {
        let slower = |from: &str, top| {
            let what = "TCP_NODELAY is slower than Nagle's algorithm";
            format!("{from}, {what}: {}", at(top))
        };
        let top = self.bins.iter().rfind(|bin| bin.nodelay.is_some());
        match (self.measured_cutoff, top) {
            (Cutoff::From { rps }, Some(top)) => {
                slower(&format!("From {} requests/s on", rounded(rps)), top)
            }
            (Cutoff::Always, Some(top)) => slower("At every load", top),
            (Cutoff::Never, Some(top)) => {
                let faster = self.bins.iter().any(|b| b.nodelay == Some(Order::Faster));
                format!(
                    "Up to {} requests/s, TCP_NODELAY is {} Nagle's algorithm on this machine: {}",
                    rounded(top.offered_rps),
                    if faster {
                        "never slower than"
                    } else {
                        "as fast as"
                    },
                    at(top)
                )
            }
            (Cutoff::Unknown, Some(_)) => self.what_is_clear(),
            (_, None) => format!(
                "This run does not compare TCP_NODELAY, Nagle's algorithm and batchwise: there is too \
                 little time at each load ({:.0} % was cut: the machine stood still, or other work took \
                 its CPUs).",
                self.cut_share * 100.0
            ),
        }
    }

    /// Load by load, where these do not fit together.
    fn what_is_clear(&self) -> String {
        let loads = |(order, words): (Order, &str)| {
            let those = self.bins.iter().filter(|bin| bin.nodelay == Some(order));
            let loads: Vec<_> = those.map(|bin| rounded(bin.offered_rps) + "/s").collect();
            (!loads.is_empty()).then(|| format!("{words} at {}", loads.join(", ")))
        };
        let clear = [
            (Order::Slower, "it is slower"),
            (Order::Faster, "it is faster"),
            (Order::Alike, "they are alike"),
            (Order::Undecided, "nothing is decided"),
        ];
        let clear: Vec<_> = clear.into_iter().filter_map(loads).collect();
        format!(
            "This run does not tell from which load on TCP_NODELAY is slower than Nagle's algorithm: \
             {}.",
            clear.join("; ")
        )
    }

    fn about_errors(&self) -> String {
        let shown = |side| {
            let error = self.per_end[&side].median_abs_rel_error;
            error.map_or_else(|| "nothing".into(), |e| format!("{:.0} %", e * 100.0))
        };
        if self.per_end.values().all(|end| end.moments == 0) {
            return "No moment has both a measured and an estimated latency.".into();
        }
        format!(
            "While the load could be carried, batchwise's estimate of the mean latency was off by {} \
             at the client's end and by {} at the server's (medians), with no packet captured and no \
             application changed.{}",
            shown(Side::Client),
            shown(Side::Server),
            self.about_tails().unwrap_or_default(),
        )
    }

    fn about_tails(&self) -> Option<String> {
        let error = |side| Some(self.per_end[&side].p99_median_abs_rel_error? * 100.0);
        let (client, server) = (error(Side::Client)?, error(Side::Server)?);
        Some(format!(
            " Its estimate of the 99th percentile was off by {client:.0} % and {server:.0} %."
        ))
    }

    fn about_limits(&self) -> Option<String> {
        let all = [
            ("TCP_NODELAY", self.nodelay),
            ("Nagle's algorithm", self.nagle),
            ("batchwise", self.batchwise),
        ];
        let one = |(name, limit): (&str, Limit)| {
            let carried = match (limit.carried_rps, limit.saturated_from_rps) {
                (None, None) => return None,
                (None, Some(_)) => "nothing that was offered".into(),
                (Some(most), Some(_)) => format!("up to {}/s", rounded(most)),
                (Some(_), None) => "all that was offered".into(),
            };
            Some(format!("{name} carried {carried}"))
        };
        let all: Vec<_> = all.into_iter().filter_map(one).collect();
        (!all.is_empty()).then(|| format!("{}.", all.join("; ")))
    }

    fn about_estimated_cutoff(&self) -> Option<String> {
        let words = match self.estimated_cutoff {
            Cutoff::From { rps } => format!("from {}/s on", rounded(rps)),
            Cutoff::Always => "at every load".into(),
            Cutoff::Never => "at no load".into(),
            Cutoff::Unknown => return None,
        };
        let overload = self.nodelay.saturated_from_rps.is_some();
        let why = match overload && self.estimated_cutoff != self.measured_cutoff {
            true => {
                " (Under overload, what the client could not send yet is in no TCP queue: it \
                 lengthens the time since a request was due, not the estimate.)"
            }
            false => "",
        };
        Some(format!(
            "By batchwise's estimates alone, TCP_NODELAY is the slower one {words}.{why}"
        ))
    }

    fn about_stalls(&self) -> String {
        format!(
            "{:.1} % of the time was cut, in all arms by the same rule, because the machine stood \
             still or other work took its CPUs.",
            self.cut_share * 100.0
        )
    }

    fn about_cost(&self) -> Option<String> {
        let share = self.sensing_cost? * 100.0;
        Some(format!("At each end, sensing cost {share:.1} % of a CPU."))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |all, value| (all.0 + value, all.1 + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// What requests take at a load, in each arm.
fn at(bin: &Bin) -> String {
    let all = [
        (Arm::Nodelay, "TCP_NODELAY"),
        (Arm::Nagle, "Nagle"),
        (Arm::Batchwise, "batchwise choosing"),
    ];
    let one = |(arm, name)| {
        let time = match bin.carried(arm) {
            Carried::In(ns) => duration(ns),
            Carried::Between(low, high) => {
                format!("between {} and {}", duration(low), duration(high))
            }
            Carried::TooMuch => format!("over {}", duration(TOO_LONG)),
            Carried::Unknown => return None,
        };
        Some(format!("{time} with {name}"))
    };
    let mut all: Vec<_> = all.into_iter().filter_map(one).collect();
    let last = all.pop().unwrap_or_default();
    let (load, first) = (rounded(bin.offered_rps), all.join(", "));
    format!("at {load}/s a request takes {first} and {last}.")
}

/// A load to the nearest thousand.
fn rounded(rps: f64) -> String {
    thousands((rps / 1000.0).round() * 1000.0)
}

fn end_summary(moments: &[Moment], side: Side) -> EndSummary {
    let errors = |of: fn(&Moment, Side) -> Option<f64>| -> Vec<f64> {
        let carried = moments.iter().filter(|m| !m.saturated);
        carried.filter_map(|m| Some(of(m, side)?.abs())).collect()
    };
    let of_p99 = errors(Moment::p99_error);
    let errors = errors(Moment::error);
    EndSummary {
        median_abs_rel_error: median(&errors),
        p90_abs_rel_error: quantile(&errors, 0.9),
        p99_median_abs_rel_error: median(&of_p99),
        moments: errors.len(),
    }
}

fn limit(bins: &[Bin], arm: Arm) -> Limit {
    let known = bins.iter().map(|bin| (bin.offered_rps, bin.carried(arm)));
    let known: Vec<_> = known.filter(|k| k.1 != Carried::Unknown).collect();
    let carried = |k: &(f64, Carried)| k.1 != Carried::TooMuch;
    let last = known.iter().rposition(carried);
    let rps = |index: usize| known.get(index).map(|k| k.0);
    Limit {
        carried_rps: last.and_then(rps),
        saturated_from_rps: rps(last.map_or(0, |last| last + 1)),
    }
}

fn cutoff(bins: &[Bin]) -> Cutoff {
    let orders: Vec<_> = bins.iter().filter_map(|bin| bin.nodelay).collect();
    let all = |among: &[Order]| orders.iter().all(|order| among.contains(order));
    match slower_from(bins) {
        _ if orders.is_empty() => Cutoff::Unknown,
        Some(_) if all(&[Order::Slower]) => Cutoff::Always,
        Some(rps) => Cutoff::From { rps },
        None if all(&[Order::Faster, Order::Alike]) => Cutoff::Never,
        None => Cutoff::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{climbs, cut};
    use super::*;

    fn slow_from(load: u64, ns: f64) -> impl Fn(Arm, u64) -> f64 {
        move |arm, at| match arm {
            Arm::Nodelay if at > load => ns,
            _ => 50e3,
        }
    }

    #[test]
    fn a_clear_win_is_said_with_what_all_three_take() {
        let summary = Summary::of(&climbs(slow_from(240_000, 14e6)));
        assert_eq!(
            summary.sentences[0],
            "From 245k requests/s on, TCP_NODELAY is slower than Nagle's algorithm: at 305k/s a \
             request takes over 5 ms with TCP_NODELAY, 50 µs with Nagle and 50 µs with batchwise \
             choosing."
        );
        assert_eq!(summary.measured_cutoff, Cutoff::From { rps: 245e3 });
        assert_eq!(summary.estimated_cutoff, Cutoff::From { rps: 245e3 });
        assert_eq!(summary.nodelay.carried_rps, Some(215e3));
        assert_eq!(summary.nodelay.saturated_from_rps, Some(245e3));
        assert_eq!(summary.nagle.saturated_from_rps, None);
        assert_eq!(summary.saturated_moments, 9);
        let carried = Summary::of(&climbs(slow_from(240_000, 200e3)));
        assert!(
            carried.sentences[0].contains("takes 200 µs with TCP_NODELAY"),
            "{carried:?}"
        );
    }

    #[test]
    fn what_is_undecided_is_not_said() {
        // Half of the slices of NODELAY are slow at high loads: no median stands.
        let mut moments = climbs(|_, _| 50e3);
        for moment in moments.iter_mut().filter(|m| m.arm == Arm::Nodelay) {
            if moment.offered_rps > 200e3 {
                let half = moment.slices.iter_mut().step_by(2);
                half.for_each(|slice| slice.mean_ns = Some(14e6));
            }
        }
        let summary = Summary::of(&moments);
        assert_eq!(summary.measured_cutoff, Cutoff::Unknown);
        let said = &summary.sentences[0];
        assert!(said.starts_with("This run does not tell"), "{said}");
        assert!(
            said.contains("alike at 35k") && !said.contains("slower at"),
            "{said}"
        );
        assert_eq!(summary.nodelay.saturated_from_rps, None);
    }

    #[test]
    fn stalls_alone_say_nothing_about_batching() {
        let mut moments = climbs(slow_from(0, 14e6));
        cut(&mut moments, 10);
        let summary = Summary::of(&moments);
        let said = &summary.sentences[0];
        assert!(said.starts_with("This run does not compare"), "{said}");
        assert!(said.contains("83 % was cut"), "{said}");
        assert_eq!(summary.measured_cutoff, Cutoff::Unknown);
        let [.., stalls, cost] = &summary.sentences[..] else {
            panic!("{summary:?}")
        };
        assert!(stalls.starts_with("83.3 % of the time"), "{stalls}");
        assert_eq!(cost, "At each end, sensing cost 0.9 % of a CPU.");
        let stopped_at_once = &Summary::of(&[]).sentences[0];
        assert!(stopped_at_once.starts_with("This run does not compare"));
    }

    #[test]
    fn a_machine_on_which_both_are_alike_or_one_always_wins_says_so() {
        let said = |mean: &dyn Fn(Arm, u64) -> f64| Summary::of(&climbs(mean)).sentences[0].clone();
        let alike = said(&|_, _| 50e3);
        assert!(
            alike.starts_with("Up to 305k requests/s, TCP_NODELAY is as fast as"),
            "{alike}"
        );
        let never = said(&|arm, _| if arm == Arm::Nagle { 90e3 } else { 50e3 });
        assert!(never.contains("is never slower than"), "{never}");
        let always = said(&slow_from(0, 90e3));
        assert!(
            always.starts_with("At every load, TCP_NODELAY is slower"),
            "{always}"
        );
    }

    #[test]
    fn a_backlog_that_no_tcp_queue_holds_is_given_as_the_reason_for_different_cutoffs() {
        let mut moments = climbs(slow_from(240_000, 20e6));
        for slice in moments.iter_mut().flat_map(|moment| &mut moment.slices) {
            slice.estimate_ns = Some(20e3);
        }
        let summary = Summary::of(&moments);
        assert_eq!(summary.estimated_cutoff, Cutoff::Never);
        assert!(summary.sentences.iter().any(|s| s.contains("no TCP queue")));
    }

    #[test]
    fn errors_are_of_what_could_be_carried() {
        let summary = Summary::of(&climbs(slow_from(240_000, 14e6)));
        let end = summary.per_end[&Side::Client];
        assert!((end.median_abs_rel_error.unwrap() - 0.1).abs() < 1e-3);
        assert!((end.p99_median_abs_rel_error.unwrap() - 0.1).abs() < 1e-2);
        assert_eq!(end.moments, 3 * (7 + 10));
    }
}
