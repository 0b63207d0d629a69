//! Which of a watcher's lines belong to a measured window, and what they say together.

use std::collections::BTreeMap;

use batchwise_core::sense::report::{Estimator, Line, Nagle, Side, Unit, View};
use batchwise_core::sense::spread::SYSTEMATIC;
use serde::{Deserialize, Serialize};

/// Estimated delays of one stage, ns; `None` is "not known".
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageMeans {
    /// Handed over, not yet acknowledged.
    pub unacked: Option<f64>,
    /// Received here, not yet read.
    pub unread_local: Option<f64>,
    /// Received by the peer, not yet read.
    pub unread_remote: Option<f64>,
    /// Received, not yet acknowledged, at the opposite end.
    pub ackdelay_remote: Option<f64>,
}

/// The consecutive parts of a request's time, in the order of [`EndEstimate::parts`].
pub const PARTS: [&str; 4] = [
    "unacked − remote ack delay",
    "unread, this end",
    "unread, other end",
    "turnaround",
];

/// What one end estimated over a window, in one unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndEstimate {
    /// How; `two_sided` when any line of the window is.
    pub estimator: Estimator,
    /// The view that won in most lines.
    pub view: Option<View>,
    /// How many lines these means are of.
    pub lines: usize,
    /// Mean confidence, 0 to 1.
    pub confidence: f64,
    /// Items a second.
    pub throughput_per_s: f64,
    /// What the client feels, ns.
    pub total_ns: Option<f64>,
    /// Its standard error, ns.
    #[serde(default)]
    pub total_stderr_ns: Option<f64>,
    /// The paper's L, ns.
    pub network_ns: Option<f64>,
    /// The server application's own time, ns.
    pub turnaround_ns: Option<f64>,
    /// Where the network's part comes from.
    pub stages_ns: StageMeans,
    /// Batching state at this end, in the last line.
    pub nagle: Nagle,
    /// Events that the watcher had lost, in the last line.
    pub lost_events: u64,
}

impl EndEstimate {
    /// Where a request spends its time, ns, in the order of [`PARTS`].
    pub fn parts(&self) -> [Option<f64>; 4] {
        let stages = &self.stages_ns;
        let under_way = stages.unacked.zip(stages.ackdelay_remote);
        [
            under_way.map(|(unacked, delay)| (unacked - delay).max(0.0)),
            stages.unread_local,
            stages.unread_remote,
            self.turnaround_ns,
        ]
    }
}

/// Combines the lines whose interval lies wholly within `from..=to` (ns since the Unix epoch) and
/// that are of `side`, by unit. Means are weighted by the items of each line.
pub fn estimates_in(lines: &[Line], side: Side, from: u64, to: u64) -> BTreeMap<Unit, EndEstimate> {
    let mut by_unit: BTreeMap<Unit, Vec<Part<'_>>> = BTreeMap::new();
    for line in lines {
        let begin = line.ts_ns.saturating_sub(line.interval_ns);
        if line.side == side && begin >= from && line.ts_ns <= to {
            by_unit.entry(line.unit).or_default().push(Part {
                line,
                time_ns: line.interval_ns,
            });
        }
    }
    by_unit
        .into_iter()
        .filter_map(|(unit, lines)| Some((unit, combine(&lines)?)))
        .collect()
}

/// Combines the lines of `side` and `unit` whose interval overlaps `from..=to` (ns since the Unix
/// epoch), each as far as it does: for windows that are not much longer than a line's interval.
pub fn estimate_across(
    lines: &[Line],
    side: Side,
    unit: Unit,
    from: u64,
    to: u64,
) -> Option<EndEstimate> {
    let parts: Vec<_> = lines
        .iter()
        .filter(|line| line.side == side && line.unit == unit)
        .filter_map(|line| {
            let begin = line.ts_ns.saturating_sub(line.interval_ns).max(from);
            let time_ns = line.ts_ns.min(to).saturating_sub(begin);
            (time_ns > 0).then_some(Part { line, time_ns })
        })
        .collect();
    combine(&parts)
}

/// A line, and how much of its interval counts.
#[derive(Clone, Copy)]
struct Part<'a> {
    line: &'a Line,
    time_ns: u64,
}

impl Part<'_> {
    fn items(&self) -> f64 {
        self.line.throughput_per_s * self.time_ns as f64
    }
}

fn combine(lines: &[Part<'_>]) -> Option<EndEstimate> {
    // Lines without the peer's half say something else: they do not dilute those with it.
    let two_sided: Vec<_> = lines
        .iter()
        .copied()
        .filter(|l| l.line.estimator == Estimator::TwoSided)
        .collect();
    let lines = if two_sided.is_empty() {
        lines
    } else {
        &two_sided
    };
    let last = lines.last()?.line;
    let mean =
        |value: fn(&Line) -> Option<u64>| weighted_mean(lines, |l| value(l).map(|v| v as f64));
    let remote_views = lines
        .iter()
        .filter(|l| l.line.view == Some(View::Remote))
        .count();
    let views = lines.iter().filter(|l| l.line.view.is_some()).count();
    let time: f64 = lines.iter().map(|l| l.time_ns as f64).sum();
    let items: f64 = lines.iter().map(Part::items).sum();
    Some(EndEstimate {
        estimator: last.estimator,
        view: match (remote_views * 2 > views, views) {
            (_, 0) => None,
            (true, _) => Some(View::Remote),
            (false, _) => Some(View::Local),
        },
        lines: lines.len(),
        confidence: weighted_mean(lines, |l| Some(l.confidence)).unwrap_or(0.0),
        throughput_per_s: if time > 0.0 { items / time } else { 0.0 },
        total_ns: mean(|l| l.latency_ns.total),
        total_stderr_ns: standard_error(lines),
        network_ns: mean(|l| l.latency_ns.network),
        turnaround_ns: mean(|l| l.latency_ns.turnaround),
        stages_ns: StageMeans {
            unacked: mean(|l| l.stages_ns.unacked),
            unread_local: mean(|l| l.stages_ns.unread_local),
            unread_remote: mean(|l| l.stages_ns.unread_remote),
            ackdelay_remote: mean(|l| l.stages_ns.ackdelay_remote),
        },
        nagle: last.nagle,
        lost_events: last.lost_events,
    })
}

/// Of the mean of the lines' totals: chance is another in each line, what is systematic is not. ns.
fn standard_error(lines: &[Part<'_>]) -> Option<f64> {
    let total = weighted_mean(lines, |l| l.latency_ns.total.map(|ns| ns as f64))?;
    let items: f64 = lines.iter().map(Part::items).sum();
    let mut by_chance = 0.0;
    for part in lines {
        let mean = part.line.latency_ns.total? as f64;
        let error = part.line.stderr_ns.total? as f64;
        let share = part.items() / items;
        by_chance += share * share * (error * error - (SYSTEMATIC * mean).powi(2)).max(0.0);
    }
    Some((by_chance + (SYSTEMATIC * total).powi(2)).sqrt())
}

fn weighted_mean(lines: &[Part<'_>], value: impl Fn(&Line) -> Option<f64>) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for part in lines {
        if let Some(value) = value(part.line) {
            sum += value * part.items();
            weights += part.items();
        }
    }
    (weights > 0.0).then(|| sum / weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchwise_core::sense::report::{Latency, Stages, Tails};

    fn line(ts_ns: u64, per_s: f64, total: Option<u64>) -> Line {
        Line {
            ts_ns,
            interval_ns: 100,
            service: "10.77.0.1:6379".into(),
            netns: 0,
            side: Side::Client,
            process: None,
            advice: None,
            connection: None,
            vantage: "socket".into(),
            estimator: if total.is_some() {
                Estimator::TwoSided
            } else {
                Estimator::Local
            },
            view: total.map(|_| View::Remote),
            unit: Unit::Sends,
            connections: 1,
            confidence: 1.0,
            throughput_per_s: per_s,
            why: None,
            stderr_ns: Latency::default(),
            latency_ns: Latency {
                network: Some(10),
                turnaround: None,
                total,
            },
            stages_ns: Stages::default(),
            tails_ns: Tails::default(),
            matched: 0,
            under_way: Some(0),
            oldest_ns: None,
            nagle: Nagle::On,
            cost: 0.0,
            coverage: 1.0,
            lost_events: 0,
        }
    }

    fn total(lines: &[Line], from: u64, to: u64) -> Option<f64> {
        estimates_in(lines, Side::Client, from, to)
            .get(&Unit::Sends)?
            .total_ns
    }

    #[test]
    fn only_lines_wholly_inside_the_window_count() {
        let lines: Vec<_> = (1..=5).map(|i| line(i * 100, 1.0, Some(i * 10))).collect();
        assert_eq!(
            total(&lines, 100, 400),
            Some(30.0),
            "those that end at 200, 300 and 400"
        );
        assert_eq!(total(&lines, 150, 250), None);
    }

    #[test]
    fn lines_weigh_as_much_as_they_carry() {
        let lines = [line(100, 1.0, Some(10)), line(200, 3.0, Some(50))];
        assert_eq!(total(&lines, 0, 200), Some(40.0));
    }

    #[test]
    fn lines_across_an_edge_count_as_far_as_they_reach_into_the_window() {
        let lines = [
            line(100, 1.0, Some(10)),
            line(200, 1.0, Some(50)),
            line(300, 1.0, Some(1000)),
        ];
        let found = estimate_across(&lines, Side::Client, Unit::Sends, 50, 150).unwrap();
        assert_eq!((found.total_ns, found.lines), (Some(30.0), 2));
        assert_eq!(
            estimate_across(&lines, Side::Client, Unit::Sends, 300, 400),
            None
        );
    }

    #[test]
    fn a_part_that_is_not_known_stays_unknown() {
        let lines = [line(100, 1.0, Some(10))];
        let found = estimate_across(&lines, Side::Client, Unit::Sends, 0, 100).unwrap();
        assert_eq!(found.parts(), [None; 4]);
    }

    #[test]
    fn an_idle_window_gives_no_latency_rather_than_zero() {
        assert_eq!(total(&[line(100, 0.0, Some(0))], 0, 100), None);
    }

    #[test]
    fn lines_with_the_peers_half_are_preferred_over_those_without() {
        let lines = [line(100, 100.0, None), line(200, 1.0, Some(70))];
        let all = estimates_in(&lines, Side::Client, 0, 200);
        let sends = &all[&Unit::Sends];
        assert_eq!(
            (sends.estimator, sends.total_ns, sends.lines),
            (Estimator::TwoSided, Some(70.0), 1)
        );
        assert_eq!(sends.view, Some(View::Remote));
    }

    #[test]
    fn lines_of_the_other_side_do_not_count() {
        let lines = [line(100, 1.0, Some(10))];
        assert!(estimates_in(&lines, Side::Server, 0, 100).is_empty());
    }
}
