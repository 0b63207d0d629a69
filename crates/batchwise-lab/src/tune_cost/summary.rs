//! What the runs say: medians of ratios between runs of the same round, which a drift of the
//! machine does not touch.

use serde::Serialize;

use super::{Agents, Point};
use crate::engine::{Ratio, pairs};
use crate::stats::{Spread, median};

/// The experiment. Ratios are with agents over without, with their 95 % bootstrap intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Throughput of the benchmark: the median, if there are enough rounds.
    pub throughput_ratio: Option<f64>,
    pub throughput: Option<Ratio>,
    /// Throughput in the runs before, while the agents learn.
    pub learning: Option<Ratio>,
    /// Of the server process, a request of the benchmark.
    pub server_cpu: Option<Ratio>,
    pub open_server_cpu: Option<Ratio>,
    pub open_latency: Option<Ratio>,
    /// Both agents' CPU time, as a share of one CPU.
    pub agents_cpu_share: Option<f64>,
    pub rps_off: Option<Spread>,
    pub rps_on: Option<Spread>,
    /// Rounds that have both.
    pub rounds: usize,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let ratio = |value: fn(&Point) -> f64| Ratio::of(&of_rounds(points, value));
        let rps = |agents| {
            let of_it = points.iter().filter(|p| p.agents == agents);
            Spread::of(&of_it.map(|p| p.rps).collect::<Vec<_>>())
        };
        let shares: Vec<f64> = points.iter().filter_map(|p| p.agents_cpu_share).collect();
        let throughput = ratio(|p| p.rps);
        Self {
            throughput_ratio: Ratio::decided(throughput.as_ref()),
            throughput,
            learning: ratio(|p| p.learning_rps),
            server_cpu: ratio(|p| p.server_cpu_ns_per_request),
            open_server_cpu: ratio(|p| p.open_server_cpu_ns_per_request),
            open_latency: ratio(|p| p.open_mean_ns),
            agents_cpu_share: median(&shares),
            rps_off: rps(Agents::Off),
            rps_on: rps(Agents::On),
            rounds: throughput.map_or(0, |ratio| ratio.pairs),
        }
    }
}

/// A value with agents and that without, of each round that has both.
pub fn of_rounds(points: &[Point], value: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    pairs(
        points,
        |p| (p.round, p.agents),
        Agents::On,
        Agents::Off,
        value,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: u32, agents: Agents, rps: f64) -> Point {
        Point {
            round,
            position: 0,
            agents,
            rps,
            learning_rps: rps,
            server_cpu_ns_per_request: 1e9 / rps,
            open_mean_ns: 20_000.0,
            open_server_cpu_ns_per_request: 4000.0,
            agents_cpu_share: (agents == Agents::On).then_some(0.02),
            why_invalid: Vec::new(),
        }
    }

    #[test]
    fn ratios_are_within_rounds_so_that_drift_cancels() {
        let round = |i: u32| {
            let speed = f64::from(i % 3 + 1) * 100.0;
            [
                point(i, Agents::Off, speed),
                point(i, Agents::On, speed * 0.98),
            ]
        };
        let mut points: Vec<_> = (0..15).flat_map(round).collect();
        points.push(point(15, Agents::On, 1.0));
        let summary = Summary::of(&points);
        assert!((summary.throughput_ratio.unwrap() - 0.98).abs() < 1e-9);
        assert!((summary.server_cpu.unwrap().median - 1.0 / 0.98).abs() < 1e-9);
        assert_eq!(summary.open_latency.unwrap().median, 1.0);
        assert_eq!((summary.rounds, summary.agents_cpu_share), (15, Some(0.02)));
    }

    #[test]
    fn two_rounds_give_an_interval_but_no_number() {
        let points = [point(0, Agents::Off, 100.0), point(0, Agents::On, 98.0)];
        let summary = Summary::of(&points);
        assert_eq!((summary.rounds, summary.throughput_ratio), (1, None));
        assert!(Ratio::text(summary.throughput.as_ref()).contains("undecided"));
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
