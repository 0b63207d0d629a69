//! What a run of the demo showed: how near the estimates were, and from which load on Nagle's
//! algorithm was the better setting.

use std::collections::BTreeMap;

use batchwise_core::sense::report::Side;
use batchwise_testbed::load::LoadReport;
use serde::Serialize;

use super::moment::Moment;
use crate::arm::Arm;
use crate::plot::thousands;
use crate::stats::{median, quantile};

/// Two moments of the climbs are of one load when they differ by less than this share.
const SAME_LOAD: f64 = 0.08;
/// A larger share of the time without its CPU shows in the generator's latencies.
const CPU_WAIT: f64 = 0.05;

/// How near one end's estimates were, over the moments that were not saturated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EndSummary {
    /// Median of |estimated − measured| / measured.
    pub median_abs_rel_error: Option<f64>,
    /// Its 90th percentile.
    pub p90_abs_rel_error: Option<f64>,
    /// Moments with a two-sided estimate.
    pub moments: usize,
}

/// What one setting carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Carried {
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
        /// Requests a second.
        rps: f64,
    },
    /// At every load.
    Always,
    /// At none.
    Never,
    /// There is nothing to compare.
    Unknown,
}

/// The run as a whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How near the estimates were.
    pub per_end: BTreeMap<Side, EndSummary>,
    /// Moments in all.
    pub moments: usize,
    /// Moments in which the load was more than could be carried.
    pub saturated_moments: usize,
    /// What the client carried with TCP_NODELAY.
    pub nodelay: Carried,
    /// What it carried with Nagle's algorithm.
    pub nagle: Carried,
    /// What it carried with batchwise tuning.
    pub batchwise: Carried,
    /// By what the generator measured.
    pub measured_cutoff: Cutoff,
    /// By what the client's end estimated.
    pub estimated_cutoff: Cutoff,
    /// All that in words.
    pub sentences: Vec<String>,
}

impl Summary {
    /// Of these moments.
    pub fn of(moments: &[Moment]) -> Self {
        let ends = [Side::Client, Side::Server];
        let measured = |m: &Moment| match m.saturated {
            true => Some(f64::INFINITY),
            false => m.truth.mean_from_send_ns,
        };
        let mut summary = Self {
            per_end: ends.map(|side| (side, end_summary(moments, side))).into(),
            moments: moments.len(),
            saturated_moments: moments.iter().filter(|m| m.saturated).count(),
            nodelay: carried(moments, Arm::Nodelay),
            nagle: carried(moments, Arm::Nagle),
            batchwise: carried(moments, Arm::Batchwise),
            measured_cutoff: cutoff(moments, measured),
            estimated_cutoff: cutoff(moments, |m| m.estimated_ns(Side::Client)),
            sentences: Vec::new(),
        };
        summary.sentences = [summary.about_errors(), summary.about_limits()]
            .into_iter()
            .flatten()
            .chain(summary.about_cutoff())
            .collect();
        summary
    }

    fn about_errors(&self) -> Option<String> {
        let error = |side| self.per_end.get(&side)?.median_abs_rel_error;
        let shown =
            |side| error(side).map_or_else(|| "nothing".into(), |e| format!("{:.0} %", e * 100.0));
        if error(Side::Client).is_none() && error(Side::Server).is_none() {
            return Some("No second has both a measured and an estimated latency.".into());
        }
        let moments = self.per_end.values().map(|e| e.moments).max().unwrap_or(0);
        Some(format!(
            "While the load could be carried ({moments} s), batchwise's estimate of the \
             mean latency was off by {} at the client's end and by {} at the server's (medians), \
             with no packet captured and no application changed.",
            shown(Side::Client),
            shown(Side::Server),
        ))
    }

    fn about_limits(&self) -> Option<String> {
        let one =
            |name: &str, carried: &Carried| match (carried.carried_rps, carried.saturated_from_rps)
            {
                (None, None) => None,
                (None, Some(_)) => Some(format!("{name} every load was too much")),
                (Some(_), Some(from)) => Some(format!(
                    "{name} the load was too much from {}/s on",
                    rounded(from)
                )),
                (Some(most), None) => Some(format!(
                    "{name} it was carried up to the highest offered, {}/s",
                    rounded(most)
                )),
            };
        let nodelay = one("With TCP_NODELAY", &self.nodelay)?;
        let nagle = one("with Nagle's algorithm", &self.nagle)?;
        let tuned = one("with batchwise choosing", &self.batchwise);
        let tuned = tuned.map_or_else(String::new, |tuned| format!("; {tuned}"));
        Some(format!("{nodelay}; {nagle}{tuned}."))
    }

    fn about_cutoff(&self) -> Option<String> {
        let words = |cutoff| match cutoff {
            Cutoff::From { rps } => format!("from about {}/s on", rounded(rps)),
            Cutoff::Always => "at every load".into(),
            Cutoff::Never => "at no load".into(),
            Cutoff::Unknown => "unknown".into(),
        };
        if self.measured_cutoff == Cutoff::Unknown {
            return None;
        }
        let measured = words(self.measured_cutoff);
        let estimated = match self.estimated_cutoff {
            Cutoff::Unknown => "the estimates do not tell".to_owned(),
            other => format!("by batchwise's estimates, {}", words(other)),
        };
        let overload = self.nodelay.saturated_from_rps.is_some();
        let why = if overload && self.estimated_cutoff != self.measured_cutoff {
            " (Under overload, what the client could not send yet is in no TCP queue: it lengthens \
             the time since a request was due, not the estimate.)"
        } else {
            ""
        };
        Some(format!(
            "Nagle's algorithm gave the lower latency {measured}; {estimated}.{why}"
        ))
    }
}

/// Other work on the machine, if it kept the generator waiting for long.
pub fn about_cpu_wait<'a>(reports: impl Iterator<Item = &'a LoadReport>) -> Option<String> {
    let (mut waited, mut measured) = (0, 0);
    for report in reports {
        waited += report.cpu_wait_ns.unwrap_or(0);
        measured += report
            .measured_to_ts_ns
            .saturating_sub(report.measured_from_ts_ns);
    }
    let share = waited as f64 / measured.max(1) as f64;
    (share > CPU_WAIT).then(|| {
        format!(
            "Other work kept the load generator waiting for its CPU for {:.0} % of the time: on an \
             idle machine latencies are lower and more load can be carried.",
            share * 100.0
        )
    })
}

/// A load to the nearest thousand.
fn rounded(rps: f64) -> String {
    thousands((rps / 1000.0).round() * 1000.0)
}

fn end_summary(moments: &[Moment], side: Side) -> EndSummary {
    let errors: Vec<f64> = moments
        .iter()
        .filter(|m| !m.saturated)
        .filter_map(|m| Some(m.error(side)?.abs()))
        .collect();
    EndSummary {
        median_abs_rel_error: median(&errors),
        p90_abs_rel_error: quantile(&errors, 0.9),
        moments: errors.len(),
    }
}

fn climb(moments: &[Moment], arm: Arm) -> Vec<&Moment> {
    let mut climb: Vec<_> = moments.iter().filter(|m| m.arm == arm).collect();
    climb.sort_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
    climb
}

fn carried(moments: &[Moment], arm: Arm) -> Carried {
    let climb = climb(moments, arm);
    let last = climb.iter().rposition(|m| !m.saturated);
    let rps = |index: usize| climb.get(index).map(|m| m.offered_rps);
    Carried {
        carried_rps: last.and_then(rps),
        saturated_from_rps: rps(last.map_or(0, |last| last + 1)),
    }
}

/// The load that best parts those at which Nagle's algorithm had the higher latency from those at
/// which it had the lower one: single seconds that a disturbance turned around do not move it.
fn cutoff(moments: &[Moment], latency: impl Fn(&Moment) -> Option<f64>) -> Cutoff {
    let nagle = climb(moments, Arm::Nagle);
    let mut better = Vec::new();
    for nodelay in climb(moments, Arm::Nodelay) {
        let load = nodelay.offered_rps;
        let distance = |m: &Moment| (m.offered_rps / load - 1.0).abs();
        let nearest = nagle
            .iter()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .filter(|m| distance(m) < SAME_LOAD);
        let both = nearest.and_then(|m| latency(m)).zip(latency(nodelay));
        // Two that have collapsed cannot be told apart.
        if let Some((with, without)) = both.filter(|(a, b)| a.is_finite() || b.is_finite()) {
            better.push((load, with < without));
        }
    }
    let wrong = |at: usize| {
        let (below, above) = better.split_at(at);
        below.iter().filter(|b| b.1).count() + above.iter().filter(|b| !b.1).count()
    };
    match (0..=better.len()).min_by_key(|&at| wrong(at)) {
        _ if better.is_empty() => Cutoff::Unknown,
        Some(0) => Cutoff::Always,
        Some(at) => better
            .get(at)
            .map_or(Cutoff::Never, |b| Cutoff::From { rps: b.0 }),
        None => Cutoff::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::moment;
    use super::*;

    /// Both climbs from 50k to 300k; with NODELAY `worse` loads are slower, `collapsed` ones
    /// saturated.
    fn climbs(worse: &[u64], collapsed: &[u64]) -> Vec<Moment> {
        let loads = [50, 100, 150, 200, 250, 300];
        let mut moments = Vec::new();
        for (i, &load) in (0..).zip(&loads) {
            let rps = load as f64 * 1000.0;
            let slow = if worse.contains(&load) { 60e3 } else { 20e3 };
            let truth = if collapsed.contains(&load) {
                20e6
            } else {
                slow
            };
            moments.push(moment(i, true, rps, truth, truth * 0.9));
            moments.push(moment(i + 30, false, rps * 1.01, 25e3, 25e3 * 1.1));
        }
        moments
    }

    #[test]
    fn the_cutoff_is_where_nagle_becomes_and_stays_better() {
        let summary = Summary::of(&climbs(&[200, 250, 300], &[]));
        let at = Cutoff::From { rps: 200_000.0 };
        assert_eq!(
            (summary.measured_cutoff, summary.estimated_cutoff),
            (at, at)
        );
    }

    #[test]
    fn one_disturbed_second_does_not_move_the_cutoff() {
        let summary = Summary::of(&climbs(&[50, 250, 300], &[]));
        assert_eq!(summary.measured_cutoff, Cutoff::From { rps: 250_000.0 });
    }

    #[test]
    fn a_setting_that_is_always_or_never_better_has_no_cutoff() {
        let all = [50, 100, 150, 200, 250, 300];
        assert_eq!(
            Summary::of(&climbs(&all, &[])).measured_cutoff,
            Cutoff::Always
        );
        assert_eq!(
            Summary::of(&climbs(&[], &[])).measured_cutoff,
            Cutoff::Never
        );
        assert_eq!(Summary::of(&[]).measured_cutoff, Cutoff::Unknown);
    }

    #[test]
    fn saturated_seconds_do_not_count_as_errors_and_bound_what_was_carried() {
        let summary = Summary::of(&climbs(&[], &[250, 300]));
        assert_eq!(summary.saturated_moments, 2);
        assert_eq!(summary.per_end[&Side::Client].moments, 10);
        assert_eq!(summary.nodelay.carried_rps, Some(200e3));
        assert_eq!(summary.nodelay.saturated_from_rps, Some(250e3));
        assert_eq!(summary.nagle.saturated_from_rps, None);
        let error = summary.per_end[&Side::Client].median_abs_rel_error.unwrap();
        assert!((error - 0.1).abs() < 1e-3, "{error}");
    }

    #[test]
    fn the_sentences_name_errors_limits_and_the_cutoff() {
        let sentences = Summary::of(&climbs(&[200], &[250, 300])).sentences;
        assert_eq!(sentences.len(), 3);
        assert!(sentences[0].contains("(10 s)") && sentences[0].contains("10 %"));
        assert!(sentences[1].contains("too much from 250k/s on"));
        assert!(sentences[2].contains("from about 200k/s on"));
    }

    #[test]
    fn a_setting_under_which_nothing_was_carried_is_named_as_well() {
        let sentences = Summary::of(&climbs(&[], &[50, 100, 150, 200, 250, 300])).sentences;
        assert!(sentences[1].contains("With TCP_NODELAY every load was too much; with Nagle"));
    }

    #[test]
    fn a_backlog_that_no_tcp_queue_holds_is_given_as_the_reason_for_different_cutoffs() {
        let mut moments = climbs(&[], &[250, 300]);
        for moment in moments.iter_mut().filter(|m| m.saturated) {
            if let Some(end) = &mut moment.client {
                end.total_ns = Some(20e3);
            }
        }
        let summary = Summary::of(&moments);
        assert_eq!(summary.estimated_cutoff, Cutoff::Never);
        assert!(summary.sentences[2].contains("no TCP queue"));
    }

    #[test]
    fn a_run_that_was_stopped_at_once_says_that_there_is_nothing() {
        let sentences = Summary::of(&[]).sentences;
        assert_eq!(sentences.len(), 1);
        assert!(sentences[0].starts_with("No second"));
    }
}
