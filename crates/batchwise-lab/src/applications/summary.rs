//! What follows: how far each end was off for each application and load, and whether lines are as true as
//! they claim.

use std::collections::{BTreeMap, BTreeSet};

use batchwise_core::sense::report::Side;
use serde::Serialize;

use super::{Missing, Point, Seen};
use crate::budget::agents::End;
use crate::budget::clients::Truth;
use crate::budget::summary::error;
use crate::stats::median;
use crate::tails::Budget;

/// A line this close to the truth is right.
const CLOSE: f64 = 0.15;
/// From this confidence on a line claims to be right.
const CLAIMS: f64 = 0.7;
/// Bins of confidence: where each begins.
const BINS: [f64; 4] = [0.0, 0.3, 0.5, CLAIMS];

/// Estimates over the truth, less 1. null: one of them is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    pub mean_error: Option<f64>,
    pub p50_error: Option<f64>,
    pub p99_error: Option<f64>,
}

impl Errors {
    pub fn of(end: &End, truth: &Truth) -> Self {
        Self {
            mean_error: error(end.mean_ns, truth.mean_ns),
            p50_error: error(end.p50_ns, truth.p50_ns),
            p99_error: error(end.p99_ns, truth.p99_ns),
        }
    }
}

/// What bounds the truth: `capture` where there is one beside the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    Log,
    Capture,
}

/// What one end's agent said of a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndRow {
    /// Against the client's log.
    #[serde(flatten)]
    pub errors: Errors,
    /// Against the capture.
    pub captured: Option<Errors>,
    /// Mean over lines.
    pub confidence: f64,
    /// Why lines had no number.
    pub null: BTreeSet<String>,
    /// In the last line: requests under way, and how long the oldest was, ns.
    pub under_way: Option<u64>,
    pub oldest_ns: Option<u64>,
    pub cost: f64,
}

type Ends = BTreeMap<Side, EndRow>;

/// A load of an application, with everything counted and with the default budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub truth: Against,
    /// Requests that were never answered, as the client says.
    pub unanswered: usize,
    #[serde(flatten)]
    pub off: Ends,
    pub default: Ends,
}

/// Lines whose confidence is from here to the next bin's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bin {
    pub from: f64,
    pub lines: usize,
    /// Share within 15 % of the mean of the client's log.
    pub within_15: Option<f64>,
    /// The same where a capture stands beside the log: within 15 % of either or between the two, as a client's read lies
    /// between the packet and its note, and a server adds the round trip through the client's kernel.
    pub within_15_captured: Option<f64>,
}

/// All lines with one budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lines {
    /// With a number, and without.
    pub lines: usize,
    pub without_number: usize,
    /// With confidence of at least 0.7; shares as in the bins.
    pub confident_lines: usize,
    pub confident_within_15: Option<f64>,
    pub confident_within_15_captured: Option<f64>,
    /// Of the sizes of the lines' errors of the mean.
    pub median_error: Option<f64>,
    pub worst_error: Option<f64>,
    /// Share of one CPU, of the median end and of the worst.
    pub cost: Option<f64>,
    pub cost_max: Option<f64>,
    pub calibration: Vec<Bin>,
}

#[derive(Serialize)]
pub struct Summary {
    /// By name and load: `nginx-1k/10`.
    pub per_application: BTreeMap<String, Row>,
    pub by_cost: BTreeMap<Budget, Lines>,
    /// What was left out, and why.
    pub missing: BTreeMap<String, String>,
}

impl Summary {
    pub fn of(points: &[Point], more: &Missing) -> Self {
        let mut per_application = BTreeMap::new();
        for point in points {
            let row = per_application.entry(point.name()).or_insert(Row {
                truth: match point.captured {
                    Some(_) => Against::Capture,
                    None => Against::Log,
                },
                unanswered: point.unanswered,
                off: Ends::new(),
                default: Ends::new(),
            });
            let of = |(side, seen): (&Side, &Seen)| (*side, EndRow::of(point, seen));
            row.of_mut(point.budget).extend(point.ends.iter().map(of));
        }
        Self {
            per_application,
            by_cost: Budget::ALL
                .map(|budget| (budget, Lines::of(points, budget)))
                .into(),
            missing: more.missing.clone(),
        }
    }
}

impl Row {
    fn of_mut(&mut self, budget: Budget) -> &mut Ends {
        match budget {
            Budget::Off => &mut self.off,
            Budget::Default => &mut self.default,
        }
    }
}

impl EndRow {
    pub fn of(point: &Point, Seen { end, lines }: &Seen) -> Self {
        let confidence: f64 = lines.iter().map(|line| line.confidence).sum();
        let captured = point.captured.as_ref();
        Self {
            errors: Errors::of(end, &point.log),
            captured: captured.map(|truth| Errors::of(end, truth)),
            confidence: confidence / lines.len() as f64,
            null: lines.iter().filter_map(|line| line.why.clone()).collect(),
            under_way: lines.last().and_then(|line| line.under_way),
            oldest_ns: lines.last().and_then(|line| line.oldest_ns),
            cost: end.cost,
        }
    }
}

/// A line with a number: how sure it is, its error against the log, and whether it is right by both truths.
struct Judged {
    confidence: f64,
    error: f64,
    is_right: bool,
}

/// Share of these within 15 %, by the log and by both truths.
fn shares<'a>(of: impl Iterator<Item = &'a Judged> + Clone) -> (usize, [Option<f64>; 2]) {
    let lines = of.clone().count();
    let share = |right: usize| (lines > 0).then(|| right as f64 / lines as f64);
    let close = of.clone().filter(|line| line.error.abs() <= CLOSE).count();
    (
        lines,
        [share(close), share(of.filter(|line| line.is_right).count())],
    )
}

impl Lines {
    fn of(points: &[Point], budget: Budget) -> Self {
        let (mut judged, mut costs, mut without_number) = (Vec::new(), Vec::new(), 0);
        for point in points.iter().filter(|point| point.budget == budget) {
            let Some(truth) = point.log.mean_ns else {
                continue;
            };
            let captured = point
                .captured
                .as_ref()
                .and_then(|captured| captured.mean_ns);
            let captured = captured.unwrap_or(truth);
            let (least, most) = (truth.min(captured), truth.max(captured));
            let close = least * (1.0 - CLOSE)..=most * (1.0 + CLOSE);
            for seen in point.ends.values() {
                costs.push(seen.end.cost);
                for line in &seen.lines {
                    let Some(total) = line.total_ns.map(|ns| ns as f64) else {
                        without_number += 1;
                        continue;
                    };
                    judged.push(Judged {
                        confidence: line.confidence,
                        error: total / truth - 1.0,
                        is_right: close.contains(&total),
                    });
                }
            }
        }
        let ends = BINS.into_iter().skip(1).chain([f64::INFINITY]);
        let bin = |(from, to): (f64, f64)| {
            let own = judged
                .iter()
                .filter(|line| (from..to).contains(&line.confidence));
            let (lines, [within_15, within_15_captured]) = shares(own);
            Bin {
                from,
                lines,
                within_15,
                within_15_captured,
            }
        };
        let claim = judged.iter().filter(|line| line.confidence >= CLAIMS);
        let (confident_lines, [confident_within_15, confident_within_15_captured]) = shares(claim);
        let sizes: Vec<_> = judged.iter().map(|line| line.error.abs()).collect();
        Self {
            lines: judged.len(),
            without_number,
            confident_lines,
            confident_within_15,
            confident_within_15_captured,
            median_error: median(&sizes),
            worst_error: sizes.into_iter().max_by(f64::total_cmp),
            cost: median(&costs),
            cost_max: costs.into_iter().max_by(f64::total_cmp),
            calibration: BINS.into_iter().zip(ends).map(bin).collect(),
        }
    }
}
