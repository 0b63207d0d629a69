//! What programs read of the experiment: ratios to drop-tail with an equal buffer.

use serde::Serialize;

use super::discipline::Which;
use super::rules::Variant;
use super::tcp::Recovery;
use super::{FlowsPoint, Point};
use crate::engine::Ratio;
use crate::stats::{MedianInterval, median};

#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// Every scenario and discipline.
    pub cases: Vec<Case>,
    /// The paper's 49 + 1.
    pub one_of_50: Vec<One>,
    /// 1 less what endless flows carry beside short ones under batchwise, over drop-tail; the worst.
    pub long_flow_loss: Option<f64>,
    /// What honest flows carry beside one liar, over drop-tail; of the worst strategy that was found.
    pub worst_abuse: Option<f64>,
    pub worst_strategy: Option<String>,
    /// Without one of the rules.
    pub without: Vec<Without>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Case {
    pub scenario: String,
    pub recovery: Recovery,
    pub discipline: Which,
    /// Over drop-tail, pairs by seed.
    pub fct_ratio_mean: Option<Ratio>,
    pub fct_ratio_p99: Option<Ratio>,
    pub long_ratio: Option<Ratio>,
}

#[derive(Debug, Serialize)]
pub(crate) struct One {
    pub scenario: String,
    pub recovery: Recovery,
    pub discipline: Which,
    /// What the one carries over the mean of the others.
    pub over_others: Option<MedianInterval>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Without {
    pub rule: Variant,
    /// The scenario, or the strategy of a liar.
    pub what: String,
    pub recovery: Option<Recovery>,
    pub fct_ratio_mean: Option<Ratio>,
    pub fct_ratio_p99: Option<Ratio>,
    /// Of honest flows.
    pub abuse: Option<f64>,
}

fn ratio(own: &[f64], base: &[f64]) -> Option<Ratio> {
    let pairs: Vec<_> = own.iter().copied().zip(base.iter().copied()).collect();
    Ratio::of(&pairs)
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let flows = || points.iter().filter_map(Point::flows);
        let base = |of: &FlowsPoint| {
            flows().find(|p| {
                let same = (&p.scenario, p.recovery) == (&of.scenario, of.recovery);
                same && p.discipline == Which::DropTail
            })
        };
        let cases: Vec<_> = flows()
            .filter(|p| p.without.is_none() && p.one.is_empty())
            .filter_map(|p| Some(Case::of(p, base(p)?)))
            .collect();
        let ones = flows().filter(|p| !p.one.is_empty()).map(|p| One {
            scenario: p.scenario.clone(),
            recovery: p.recovery,
            discipline: p.discipline,
            over_others: MedianInterval::of(&p.one),
        });
        let own = |c: &&Case| c.discipline == Which::Batchwise;
        let losses = cases.iter().filter(own).filter_map(|c| c.long_ratio);
        let abuse = points.iter().filter_map(Point::abuse);
        let of_one = abuse
            .clone()
            .filter(|p| p.without.is_none() && p.strategy.is_of_one());
        let worst = of_one
            .filter_map(|p| Some((median(&p.honest)?, p.strategy.name())))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let without_flows = flows().filter_map(|p| {
            let case = Case::of(p, base(p)?);
            Some(Without {
                rule: p.without?,
                what: case.scenario,
                recovery: Some(p.recovery),
                fct_ratio_mean: case.fct_ratio_mean,
                fct_ratio_p99: case.fct_ratio_p99,
                abuse: None,
            })
        });
        let without_abuse = abuse.filter_map(|p| {
            Some(Without {
                rule: p.without?,
                what: p.strategy.name(),
                recovery: None,
                fct_ratio_mean: None,
                fct_ratio_p99: None,
                abuse: median(&p.honest),
            })
        });
        let without = without_flows.chain(without_abuse).collect();
        Self {
            one_of_50: ones.collect(),
            long_flow_loss: losses.map(|r| 1.0 - r.median).reduce(f64::max),
            worst_abuse: worst.as_ref().map(|w| w.0),
            worst_strategy: worst.map(|w| w.1),
            without,
            cases,
        }
    }
}

impl Case {
    fn of(own: &FlowsPoint, base: &FlowsPoint) -> Self {
        Self {
            scenario: own.scenario.clone(),
            recovery: own.recovery,
            discipline: own.discipline,
            fct_ratio_mean: ratio(&own.fct_mean_ns, &base.fct_mean_ns),
            fct_ratio_p99: ratio(&own.fct_p99_ns, &base.fct_p99_ns),
            long_ratio: ratio(&own.long, &base.long),
        }
    }
}

impl Point {
    pub(super) fn flows(&self) -> Option<&FlowsPoint> {
        match self {
            Self::Flows(point) => Some(point),
            Self::Abuse(_) => None,
        }
    }

    pub(super) fn abuse(&self) -> Option<&super::AbusePoint> {
        match self {
            Self::Abuse(point) => Some(point),
            Self::Flows(_) => None,
        }
    }
}
