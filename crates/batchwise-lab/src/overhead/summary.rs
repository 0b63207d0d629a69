//! What the slices say: medians, spread, and ratios between slices of the same block, which a drift
//! of the machine does not touch.

use std::collections::BTreeMap;

use serde::Serialize;

use super::budget::Kept;
use super::{Arm, HookCost, More, Point};
use crate::busy::MOST_CUT;
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::{MedianInterval, Spread, median};

/// What `watch` may cost: this share of the throughput stays.
const BAR: f64 = 0.99;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArmSummary {
    pub rps: Spread,
    /// The same with nothing cut.
    pub raw_rps: Option<Spread>,
    pub server_cpu_ns_per_request: Spread,
    pub client_cpu_ns_per_request: Spread,
    /// Over `off` in the same block, as are the next two.
    pub throughput_ratio: Option<Ratio>,
    pub server_cpu_ratio: Option<Ratio>,
    pub client_cpu_ratio: Option<Ratio>,
    /// Time inside the hooks for a request at one endpoint, ns, by the kernel's statistics (which
    /// add to it themselves).
    pub hook_ns_per_request: Option<f64>,
    /// CPU time of all agents while this arm is in force, as a share of one CPU; mean.
    pub agents_cpu_share: Option<f64>,
    /// What sensing cost: CPU time that server and client needed more, and the agents', as a share
    /// of one CPU.
    pub cost: Option<MedianInterval>,
    /// The same as the agents' lines say it; mean.
    pub cost_reported: Option<f64>,
    /// Share of the time that was cut; mean.
    pub cut_share: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// What `watch` with everything counted says that it costs, over what slices say.
    pub cost_reported: Option<f64>,
    /// `watch` over nothing attached: median of the ratios, if there are enough.
    pub throughput_ratio: Option<f64>,
    /// The same with its 95 % interval.
    pub interval: Option<Ratio>,
    /// Whether `watch` leaves 99 % of the throughput.
    pub verdict: Verdict,
    pub pairs: usize,
    /// Share of all slices' time that the host took away, and that is cut.
    pub cut_share: Option<f64>,
    /// Slices that decide nothing because too much of them was cut.
    pub slices_left_out: usize,
    /// `all`: time inside the hooks for a request at one endpoint, ns.
    pub hook_ns_per_request: Option<f64>,
    pub arms: BTreeMap<&'static str, ArmSummary>,
}

impl Summary {
    pub fn of(points: &[Point], more: &More) -> Self {
        let hooks = &more.hooks;
        let arms: BTreeMap<_, _> = Arm::EACH
            .into_iter()
            .filter_map(|arm| Some((arm.name(), arm_summary(points, more, arm)?)))
            .collect();
        let watch = arms.get(Arm::Watch.name());
        let interval = watch.and_then(|watch| watch.throughput_ratio);
        let all = arms.get(Arm::All.name());
        let costs = all.and_then(|all| Some((all.cost_reported?, all.cost?.median)));
        Self {
            cost_reported: costs.map(|(reported, measured)| reported / measured),
            throughput_ratio: Ratio::decided(interval.as_ref()),
            verdict: Verdict::at_least(interval.as_ref(), BAR),
            pairs: interval.map_or(0, |interval| interval.pairs),
            interval,
            cut_share: mean(points.iter().map(|p| p.cut_share)),
            slices_left_out: points.iter().filter(|p| !counts(p)).count(),
            hook_ns_per_request: hook_ns(hooks, Arm::All),
            arms,
        }
    }
}

/// A value with the agent and one without it: of each recording, or block of slices.
pub fn compared(
    points: &[Point],
    arm: Arm,
    value: fn(&Point) -> f64,
    of_kept: fn(&Kept) -> f64,
) -> Vec<(f64, f64)> {
    let own = points.iter().filter(|p| p.arm == arm && counts(p));
    let kept: Vec<_> = own.filter_map(|p| p.kept.as_ref()).collect();
    match kept.is_empty() {
        true => of_blocks(points, arm, value),
        false => kept.into_iter().map(|kept| (of_kept(kept), 1.0)).collect(),
    }
}

/// A value of `arm` and that of `off`, of each block that has both.
fn of_blocks(points: &[Point], arm: Arm, value: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let counted: Vec<_> = points.iter().filter(|p| counts(p)).collect();
    pairs(&counted, |p| (p.round, p.arm), arm, Arm::Off, |p| value(p))
}

fn counts(point: &Point) -> bool {
    point.cut_share <= MOST_CUT
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<_> = values.collect();
    let count = values.len() as f64;
    (count > 0.0).then(|| values.iter().sum::<f64>() / count)
}

fn hook_ns(hooks: &[HookCost], arm: Arm) -> Option<f64> {
    let of_arm = hooks.iter().filter(|h| h.arm == arm);
    median(&of_arm.map(|h| h.ns_per_request).collect::<Vec<_>>())
}

/// What `arm` costs over nothing attached, each block: share of one CPU.
fn costs(points: &[Point], arm: Arm) -> Vec<f64> {
    let cpu = |p: &Point| p.server_cpu_ns_per_request + p.client_cpu_ns_per_request;
    let rps = of_blocks(points, arm, |p| p.rps);
    let cpu = of_blocks(points, arm, cpu).into_iter().zip(rps);
    let agents = of_blocks(points, arm, |p| p.agents_cpu_share.unwrap_or(0.0));
    cpu.zip(agents)
        .map(|(((with, without), (rps, _)), (agents, idle))| {
            (with - without) * rps / 1e9 + agents - idle
        })
        .collect()
}

fn arm_summary(points: &[Point], more: &More, arm: Arm) -> Option<ArmSummary> {
    let own: Vec<_> = points.iter().filter(|p| p.arm == arm).collect();
    let spread = |value: fn(&Point) -> f64| {
        let counted = own.iter().filter(|p| counts(p));
        Spread::of(&counted.map(|p| value(p)).collect::<Vec<_>>())
    };
    let ratio = |value, of_kept| match arm {
        Arm::Off => None,
        _ => Ratio::of(&compared(points, arm, value, of_kept)),
    };
    let kept = own.iter().filter(|p| counts(p)).filter_map(|p| p.kept);
    let mut cost: Vec<_> = kept.map(|kept| kept.cost).collect();
    if cost.is_empty() {
        cost = costs(points, arm);
    }
    let reported = more.reported.iter().filter(|(of, _)| *of == arm);
    let raw: Vec<_> = own.iter().filter_map(|p| p.raw_rps).collect();
    Some(ArmSummary {
        rps: spread(|p| p.rps)?,
        raw_rps: Spread::of(&raw),
        server_cpu_ns_per_request: spread(|p| p.server_cpu_ns_per_request)?,
        client_cpu_ns_per_request: spread(|p| p.client_cpu_ns_per_request)?,
        throughput_ratio: ratio(|p| p.rps, |kept| kept.throughput_ratio),
        server_cpu_ratio: ratio(
            |p| p.server_cpu_ns_per_request,
            |kept| kept.server_cpu_ratio,
        ),
        client_cpu_ratio: ratio(
            |p| p.client_cpu_ns_per_request,
            |kept| kept.client_cpu_ratio,
        ),
        hook_ns_per_request: hook_ns(&more.hooks, arm),
        cost: (arm != Arm::Off)
            .then(|| MedianInterval::of(&cost))
            .flatten(),
        cost_reported: mean(reported.map(|(_, cost)| *cost)),
        agents_cpu_share: mean(own.iter().filter_map(|p| p.agents_cpu_share)),
        cut_share: mean(own.iter().map(|p| p.cut_share)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(round: u32, arm: Arm, rps: f64) -> Point {
        Point {
            round,
            position: 0,
            arm,
            rps,
            requests: 1000,
            server_cpu_ns_per_request: 1e9 / rps,
            client_cpu_ns_per_request: 1e9 / rps,
            cut_share: 0.0,
            raw_rps: Some(rps),
            agents_cpu_share: Some(0.01),
            kept: None,
        }
    }

    fn blocks(count: u32) -> Vec<Point> {
        let block = |i: u32| {
            let speed = f64::from(i % 4 + 1) * 100.0;
            [
                point(i, Arm::Watch, speed * 0.98),
                point(i, Arm::Off, speed),
            ]
        };
        (0..count).flat_map(block).collect()
    }

    #[test]
    fn ratios_are_within_blocks_so_that_drift_cancels() {
        let summary = Summary::of(&blocks(20), &More::default());
        assert!((summary.throughput_ratio.unwrap() - 0.98).abs() < 1e-9);
        assert_eq!((summary.verdict, summary.pairs), (Verdict::Missed, 20));
        let watch = &summary.arms["watch"];
        assert!((watch.server_cpu_ratio.unwrap().median - 1.0 / 0.98).abs() < 1e-9);
        assert_eq!(summary.arms["off"].throughput_ratio, None);
    }

    #[test]
    fn too_few_blocks_give_an_interval_and_no_number() {
        let summary = Summary::of(&blocks(6), &More::default());
        assert_eq!(summary.throughput_ratio, None);
        assert_eq!((summary.verdict, summary.pairs), (Verdict::Undecided, 6));
        let cut_short = [point(0, Arm::Watch, 98.0)];
        assert_eq!(Summary::of(&cut_short, &More::default()).interval, None);
    }

    #[test]
    fn a_slice_that_the_host_took_away_decides_nothing_and_is_counted() {
        let mut points = blocks(20);
        for i in 0..3 {
            points[2 * i].rps = 1.0;
            points[2 * i].cut_share = 0.5;
        }
        let summary = Summary::of(&points, &More::default());
        assert!((summary.throughput_ratio.unwrap() - 0.98).abs() < 1e-9);
        assert_eq!((summary.pairs, summary.slices_left_out), (17, 3));
        assert!((summary.cut_share.unwrap() - 1.5 / 40.0).abs() < 1e-9);
    }
}
