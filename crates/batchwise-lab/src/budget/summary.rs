//! What follows: a row a load, and whether all of them kept the budget.

use std::collections::BTreeMap;

use batchwise_core::sense::report::Estimator;
use serde::Serialize;

use super::{End, Point, Truth};
use crate::engine::Verdict;

/// The default budget, and what measuring it may add.
pub const BUDGET: f64 = 0.01;
const MOST: f64 = 0.011;

/// What one agent took, and how far it was from what the client says (over that, less 1).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndRow {
    pub cost: f64,
    pub cost_max: f64,
    pub agent_cpu: Option<f64>,
    pub coverage: f64,
    pub estimator: Estimator,
    pub throughput_error: Option<f64>,
    pub latency_error: Option<f64>,
    pub p50_error: Option<f64>,
    pub p99_error: Option<f64>,
}

/// A load: the client's end, and the server's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// As the client says.
    pub rps: f64,
    #[serde(flatten)]
    pub client: EndRow,
    pub server: EndRow,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub per_load: BTreeMap<String, Row>,
    /// Whether the mean cost of each row, at both ends, is within the budget.
    pub within_budget: Verdict,
    /// The ends at which it is not: `LOAD client` or `LOAD server`.
    pub beyond_budget: Vec<String>,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let rows = points.iter().filter_map(|point| {
            let row = Row::of(&point.truth, point.client.as_ref()?, point.server.as_ref()?);
            Some((point.load.name(), row))
        });
        let rows: Vec<_> = rows.collect();
        let beyond = rows.iter().flat_map(|(name, row)| {
            let ends = [("client", row.client.cost), ("server", row.server.cost)];
            let beyond = ends.into_iter().filter(|(_, cost)| *cost > MOST);
            beyond.map(move |(end, _)| format!("{name} {end}"))
        });
        let beyond_budget: Vec<_> = beyond.collect();
        Self {
            within_budget: match (rows.is_empty(), beyond_budget.is_empty()) {
                (true, _) => Verdict::Undecided,
                (false, true) => Verdict::Met,
                (false, false) => Verdict::Missed,
            },
            beyond_budget,
            per_load: rows.into_iter().collect(),
        }
    }
}

impl Row {
    fn of(truth: &Truth, client: &End, server: &End) -> Self {
        Self {
            rps: truth.rps,
            client: EndRow::of(truth, client),
            server: EndRow::of(truth, server),
        }
    }
}

/// Over what the client says, less 1; `None` where one of the two is not known.
pub fn error(estimate: Option<f64>, truth: Option<f64>) -> Option<f64> {
    let (estimate, truth) = estimate.zip(truth)?;
    (truth > 0.0).then(|| estimate / truth - 1.0)
}

impl EndRow {
    fn of(truth: &Truth, end: &End) -> Self {
        Self {
            cost: end.cost,
            cost_max: end.cost_max,
            agent_cpu: end.agent_cpu,
            coverage: end.coverage,
            estimator: end.estimator,
            throughput_error: error(Some(end.throughput_per_s), Some(truth.rps)),
            latency_error: error(end.mean_ns, truth.mean_ns),
            p50_error: error(end.p50_ns, truth.p50_ns),
            p99_error: error(end.p99_ns, truth.p99_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::load::Load;

    fn point(load: Load, costs: [f64; 2]) -> Point {
        let end = |cost| {
            Some(End {
                cost,
                cost_max: 2.0 * cost,
                agent_cpu: Some(0.001),
                coverage: 0.5,
                estimator: Estimator::Matched,
                lines: 8,
                throughput_per_s: 990.0,
                mean_ns: Some(110e3),
                p50_ns: None,
                p99_ns: None,
                matched: 100,
                lost_events: 0,
            })
        };
        Point {
            load,
            truth: Truth {
                rps: 1_000.0,
                mean_ns: Some(100e3),
                p99_ns: Some(300e3),
                ..Truth::default()
            },
            client: end(costs[0]),
            server: end(costs[1]),
        }
    }

    #[test]
    fn an_error_is_the_estimate_over_what_the_client_says_less_1() {
        let summary = Summary::of(&[point(Load::Wrk, [0.01, 0.005])]);
        let row = &summary.per_load["wrk"];
        assert!((row.client.throughput_error.unwrap() + 0.01).abs() < 1e-9);
        assert!((row.client.latency_error.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(row.client.p99_error, None);
    }

    #[test]
    fn the_budget_is_kept_when_each_end_of_each_load_keeps_it() {
        let kept = point(Load::Rate(10), [0.0109, 0.001]);
        let mut summary = Summary::of(std::slice::from_ref(&kept));
        assert_eq!(summary.within_budget, Verdict::Met);
        let dear = point(Load::Benchmark(16), [0.012, 0.02]);
        let blind = Point {
            server: None,
            ..dear.clone()
        };
        summary = Summary::of(&[kept, dear]);
        assert_eq!(summary.within_budget, Verdict::Missed);
        let ends = ["redis-benchmark-p16 client", "redis-benchmark-p16 server"];
        assert_eq!(summary.beyond_budget, ends);
        assert_eq!(Summary::of(&[blind]).within_budget, Verdict::Undecided);
    }

    #[test]
    fn the_clients_fields_stand_in_the_row_itself() {
        let summary = Summary::of(&[point(Load::Idle, [0.01, 0.005])]);
        let json = serde_json::to_value(&summary).unwrap();
        let row = &json["per_load"]["idle-10k"];
        assert_eq!(
            (&row["cost"], &row["server"]["cost"]),
            (&0.01.into(), &0.005.into())
        );
        assert_eq!(row["rps"], 1_000.0);
    }
}
