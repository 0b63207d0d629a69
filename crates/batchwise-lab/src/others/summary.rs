//! What the turns say: ratios of the time with a tool to the times without just before and after.

use std::collections::BTreeMap;

use serde::Serialize;

use super::tools::{TOOLS, Tells, Tool};
use super::{More, Point};
use crate::busy::MOST_CUT;
use crate::engine::Ratio;
use crate::stats::{Spread, median};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolSummary {
    /// With it over without: median of the turns, if there are enough.
    pub throughput_ratio: Option<f64>,
    /// The same with its 95 % interval.
    pub interval: Option<Ratio>,
    /// CPU time of the server a request.
    pub server_cpu_ratio: Option<f64>,
    pub server_cpu_interval: Option<Ratio>,
    /// CPU time of the tool, as a share of one CPU; mean.
    pub agent_cpu_share: Option<f64>,
    /// From its start until it was attached and calm, s; median.
    pub start_s: Option<f64>,
    /// CPU time that it used until then, s; median.
    pub start_cpu_s: Option<f64>,
    /// The typical latency that it said, ns; median of the turns.
    pub says_ns: Option<f64>,
    /// What a request took meanwhile, ns: connections over throughput; median.
    pub request_ns: Option<f64>,
    pub tells: Tells,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub per_tool: BTreeMap<&'static str, ToolSummary>,
    /// Tools that could not be measured, and why.
    pub missing: BTreeMap<String, String>,
    /// Requests a second with nothing attached.
    pub rps: Option<Spread>,
    /// Share of the turns' time that the host took away, and that is cut; mean.
    pub cut_share: Option<f64>,
    /// Turns that decide nothing because too much of them was cut.
    pub turns_left_out: usize,
}

impl Summary {
    pub fn of(points: &[Point], more: &More) -> Self {
        let per_tool = TOOLS
            .iter()
            .filter_map(|tool| Some((tool.name, tool_summary(points, tool)?)));
        let base: Vec<_> = points.iter().map(|p| p.base.rps).collect();
        Self {
            per_tool: per_tool.collect(),
            missing: more.missing.clone(),
            rps: Spread::of(&base),
            cut_share: mean(points.iter().map(|p| p.cut_share)),
            turns_left_out: points.iter().filter(|p| !counts(p)).count(),
        }
    }
}

/// A value with the tool and without, of each turn that counts.
pub fn of_turns(points: &[Point], tool: &str, value: fn(&super::Cost) -> f64) -> Vec<(f64, f64)> {
    let own = points.iter().filter(|p| p.tool == tool && counts(p));
    own.map(|p| (value(&p.with), value(&p.base))).collect()
}

fn counts(point: &Point) -> bool {
    point.cut_share <= MOST_CUT
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<_> = values.collect();
    let count = values.len() as f64;
    (count > 0.0).then(|| values.iter().sum::<f64>() / count)
}

fn tool_summary(points: &[Point], tool: &Tool) -> Option<ToolSummary> {
    let own: Vec<_> = points.iter().filter(|p| p.tool == tool.name).collect();
    own.first()?;
    let middle = |value: fn(&Point) -> Option<f64>| {
        let values: Vec<_> = own.iter().filter_map(|p| value(p)).collect();
        median(&values)
    };
    let interval = Ratio::of(&of_turns(points, tool.name, |cost| cost.rps));
    let server_cpu_interval = Ratio::of(&of_turns(points, tool.name, |cost| {
        cost.server_cpu_ns_per_request
    }));
    Some(ToolSummary {
        throughput_ratio: Ratio::decided(interval.as_ref()),
        interval,
        server_cpu_ratio: Ratio::decided(server_cpu_interval.as_ref()),
        server_cpu_interval,
        agent_cpu_share: mean(own.iter().map(|p| p.agent_cpu_share)),
        start_s: middle(|p| Some(p.start_s)),
        start_cpu_s: middle(|p| Some(p.start_cpu_s)),
        says_ns: middle(|p| p.says_ns),
        request_ns: middle(|p| Some(p.request_ns)),
        tells: tool.tells,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::others::Cost;

    fn cost(rps: f64) -> Cost {
        Cost {
            rps,
            server_cpu_ns_per_request: 1e9 / rps,
            client_cpu_ns_per_request: 1e9 / rps,
        }
    }

    fn point(round: u32, tool: &str, ratio: f64) -> Point {
        let rps = f64::from(round % 4 + 1) * 1e4;
        Point {
            round,
            position: 0,
            tool: tool.into(),
            with: cost(rps * ratio),
            base: cost(rps),
            cut_share: 0.0,
            agent_cpu_share: 0.01,
            start_s: 1.0,
            start_cpu_s: 0.5,
            says_ns: None,
            request_ns: 1e5,
        }
    }

    #[test]
    fn a_tool_is_compared_with_the_times_beside_it_so_that_drift_cancels() {
        let turns = (0..16).flat_map(|i| [point(i, "ss", 1.0), point(i, "tcpdump", 0.6)]);
        let summary = Summary::of(&turns.collect::<Vec<_>>(), &More::default());
        let ratio = |tool| summary.per_tool[tool].throughput_ratio.unwrap();
        assert!((ratio("tcpdump") - 0.6).abs() < 1e-9 && (ratio("ss") - 1.0).abs() < 1e-9);
        let cpu = summary.per_tool["tcpdump"].server_cpu_ratio.unwrap();
        assert!((cpu - 1.0 / 0.6).abs() < 1e-9);
    }

    #[test]
    fn few_turns_give_an_interval_and_no_number_and_a_missing_tool_gives_its_reason() {
        let turns: Vec<_> = (0..4).map(|i| point(i, "ss", 0.9)).collect();
        let mut more = More::default();
        more.missing.insert("tcprtt".into(), "no kprobes".into());
        let summary = Summary::of(&turns, &more);
        let ss = &summary.per_tool["ss"];
        assert_eq!((ss.throughput_ratio, ss.server_cpu_ratio), (None, None));
        assert_eq!(ss.interval.unwrap().pairs, 4);
        assert!(!summary.per_tool.contains_key("tcprtt"));
        assert_eq!(summary.missing["tcprtt"], "no kprobes");
    }

    #[test]
    fn a_turn_that_the_host_took_away_decides_nothing_and_is_counted() {
        let mut turns: Vec<_> = (0..18).map(|i| point(i, "ss", 0.9)).collect();
        for turn in &mut turns[..2] {
            (turn.with.rps, turn.cut_share) = (1.0, 0.5);
        }
        let summary = Summary::of(&turns, &More::default());
        assert_eq!(summary.per_tool["ss"].interval.unwrap().pairs, 16);
        assert_eq!(summary.turns_left_out, 2);
    }
}
