//! How far percentiles were off, by workload, budget and what they are compared with.

use std::collections::BTreeMap;

use batchwise_core::sense::report::Side;
use serde::Serialize;

use super::{Budget, End, Point};
use crate::engine::{Ratio, Verdict};
use crate::ladder::per_workload;
use crate::stats::{MedianInterval, median};

/// How far off the median point may be.
pub const BAR: f64 = 0.10;

/// Whose percentiles, and what they are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// A client's with the generator's, from the actual send.
    Client,
    /// A server's, as printed, with the same: the client's own wait is in the truth only.
    Server,
    /// A server's without the network's part with a capture at its link.
    ServerWire,
}

impl Against {
    pub const ALL: [Self; 3] = [Self::Client, Self::Server, Self::ServerWire];

    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::ServerWire => "server's own part",
        }
    }

    fn side(self) -> Side {
        match self {
            Self::Client => Side::Client,
            Self::Server | Self::ServerWire => Side::Server,
        }
    }
}

/// Which percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    P50,
    P99,
}

impl Share {
    pub const BOTH: [Self; 2] = [Self::P50, Self::P99];

    pub fn share(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P99 => 0.99,
        }
    }
}

/// Errors over the points below saturation.
#[derive(Clone, Debug, Serialize)]
pub struct Errors {
    /// Median of |estimate / truth - 1|.
    pub p50_rel_error: Option<f64>,
    pub p99_rel_error: Option<f64>,
    /// The same with its 95 % interval; `pairs` is the number of points.
    pub p50_interval: Option<Ratio>,
    pub p99_interval: Option<Ratio>,
    /// Whether it is at most [`BAR`].
    pub p50_verdict: Verdict,
    pub p99_verdict: Verdict,
    /// Median of estimate / truth - 1: which way it is off.
    pub p50_bias: Option<f64>,
    pub p99_bias: Option<f64>,
    pub points: usize,
    /// Those of them without a truth or an estimate of the p99.
    pub missing: usize,
    /// Medians over the points: requests in a line's percentiles, and their share of all.
    pub matched: Option<f64>,
    pub counted: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct WorkloadSummary {
    /// The headline: at a client alone with the default budget.
    #[serde(flatten)]
    pub headline: Errors,
    /// Points that are missing because the generator did not trust its own numbers in any attempt.
    pub load_invalid: usize,
    pub by_budget: BTreeMap<Budget, BTreeMap<Against, Errors>>,
}

#[derive(Debug, Serialize)]
pub struct Summary {
    pub per_workload: BTreeMap<String, WorkloadSummary>,
}

impl Summary {
    /// Of these points; invalid ones are only counted.
    pub fn of(points: &[Point], invalid: &[Point]) -> Self {
        let summary = |points: &[&Point]| {
            let same = |p: &&Point| points.iter().any(|point| point.workload == p.workload);
            let errors = |budget| {
                let below = points.iter().filter(|p| p.budget == budget && !p.saturated);
                let below: Vec<&Point> = below.copied().collect();
                Against::ALL.map(|against| (against, Errors::of(&below, against)))
            };
            let by_budget: BTreeMap<_, _> = Budget::ALL
                .map(|budget| (budget, BTreeMap::from(errors(budget))))
                .into();
            WorkloadSummary {
                headline: by_budget[&Budget::Default][&Against::Client].clone(),
                load_invalid: invalid.iter().filter(same).count(),
                by_budget,
            }
        };
        Self {
            per_workload: per_workload(points, summary),
        }
    }
}

/// A point's estimate and its truth, ns.
pub fn pair(point: &Point, against: Against, share: Share) -> Option<(f64, f64)> {
    let end = point.ends.get(&against.side())?;
    let load = &point.load.latency_from_send_ns;
    let captured = end.captured.unwrap_or_default();
    let (estimate, felt, captured) = match share {
        Share::P50 => (end.estimated.p50?, load.p50, captured.p50),
        Share::P99 => (end.estimated.p99?, load.p99, captured.p99),
    };
    match against {
        Against::ServerWire => Some((estimate - end.beside_ns as f64, captured?)),
        Against::Client | Against::Server => Some((estimate, felt)),
    }
}

impl Errors {
    fn of(points: &[&Point], against: Against) -> Self {
        let signed = |share| -> Vec<f64> {
            let pairs = points.iter().filter_map(|p| pair(p, against, share));
            let known = pairs.filter(|(_, truth)| *truth > 0.0 && truth.is_finite());
            known
                .map(|(estimate, truth)| estimate / truth - 1.0)
                .collect()
        };
        let [p50, p99] = Share::BOTH.map(signed);
        let [p50_interval, p99_interval] = [&p50, &p99].map(|signed| interval(signed));
        let of_ends = |value: fn(&Point, &End) -> f64| {
            let ends = points
                .iter()
                .filter_map(|p| Some((p, p.ends.get(&against.side())?)));
            median(
                &ends
                    .map(|(point, end)| value(point, end))
                    .collect::<Vec<_>>(),
            )
        };
        Self {
            p50_rel_error: p50_interval.map(|i| i.median),
            p99_rel_error: p99_interval.map(|i| i.median),
            p50_verdict: Verdict::at_most(p50_interval.as_ref(), BAR),
            p99_verdict: Verdict::at_most(p99_interval.as_ref(), BAR),
            p50_interval,
            p99_interval,
            p50_bias: median(&p50),
            p99_bias: median(&p99),
            points: points.len(),
            missing: points.len() - p99.len(),
            matched: of_ends(|_, end| end.matched as f64),
            counted: of_ends(Point::counted),
        }
    }
}

/// The median of their sizes.
fn interval(signed: &[f64]) -> Option<Ratio> {
    let sizes: Vec<_> = signed.iter().map(|e| e.abs()).collect();
    let MedianInterval { median, low, high } = MedianInterval::of(&sizes)?;
    let pairs = sizes.len();
    Some(Ratio {
        median,
        low,
        high,
        pairs,
    })
}
