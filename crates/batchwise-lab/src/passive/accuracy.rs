//! Experiment `passive-accuracy`: how true the estimates from one direction are for a web workload
//! (the paper's Figures 3 to 5), beside other ways to estimate, and how fast they follow a server
//! whose speed changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::cpu_share::trace::Trace;
use serde::Serialize;

use super::curves::{Shown, Way};
use super::trial::{Point, Trial};
use super::trials::{Trials, by_arm, fine_percent, of, section};
use super::workload::Workload;
use crate::engine::Report;
use crate::engine::report::Part;
use crate::engine::text::percent;
use crate::truth::Errors;

/// How long the server keeps one speed, in the arm that changes it in steps.
const STEP: Duration = Duration::from_secs(5);
/// The speeds of that arm.
const STEPS: [f64; 2] = [1.0, 0.4];
/// Four requests in flight, the committed trace of CPU shares: Figures 3 and 4.
const WEB: &str = "web";
/// One request in flight: Figure 5.
const SINGLE: &str = "single";
const STEPPED: &str = "steps";

pub const ACCURACY: Trials<Summary> = Trials {
    name: "passive-accuracy",
    about: "latency from one direction of a web workload: estimate, truth and baselines",
    trials,
    summary: |points, _| Summary::of(points),
    report,
};

fn trials(quick: bool) -> Result<Vec<Trial>> {
    let web = |arm, (quick_s, full_s), in_flight, shows| {
        let duration = Duration::from_secs(if quick { quick_s } else { full_s });
        let workload = Workload::web(duration, in_flight);
        Trial::new(arm, workload, shows)
    };
    let stepped = web(STEPPED, (20, 60), 4, &[Shown::ServerOverTime]);
    let traced = |trial| {
        anyhow::Ok(Trial {
            share: Some(Trace::committed()?),
            baselines: true,
            ..trial
        })
    };
    let of_web = &[
        Shown::Latencies,
        Shown::AbsoluteErrors,
        Shown::RelativeErrors,
        Shown::ShareOff,
        Shown::SizeOff,
        Shown::ServerOverTime,
    ];
    let of_single = &[Shown::Latencies, Shown::ConnectionOverTime];
    Ok(vec![
        traced(web(WEB, (15, 120), 4, of_web))?,
        Trial {
            share: Some(Trace::steps_of(&STEPS, STEP, stepped.workload.duration)),
            follow: true,
            ..stepped
        },
        traced(web(SINGLE, (10, 60), 1, of_single))?,
    ])
}

/// The experiment. Errors are of the web arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Middle of `(truth - estimate) / truth` over responses: the paper's figure.
    pub median_rel_error: Option<f64>,
    /// Middle of its absolute value.
    pub median_abs_rel_error: Option<f64>,
    /// Share of the responses whose epoch's estimate is within 15 % of the truth.
    pub within_15_percent: Option<f64>,
    /// Share of the responses whose epoch has an estimate.
    pub covered: Option<f64>,
    /// How many times further off each baseline is, by the median absolute error.
    pub closer_than: BTreeMap<Way, Option<f64>>,
    /// Epochs until the server's estimate is within 15 % of the truth after its speed changed: the
    /// worst of all changes; `None` when one was not followed at all.
    pub epochs_to_follow: Option<usize>,
    pub epochs_to_follow_each: Vec<Option<usize>>,
    pub per_arm: BTreeMap<String, Errors>,
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let web = of(points, WEB);
        let errors = web.map(|point| point.errors).unwrap_or_default();
        let closer = |&way: &Way| Some((way, errors.closer_than(web?.baselines.get(&way)?)));
        let each = of(points, STEPPED).map_or(&[][..], |point| &point.followed);
        Self {
            median_rel_error: errors.median_rel_error,
            median_abs_rel_error: errors.median_abs_rel_error,
            within_15_percent: errors.within_15_percent,
            covered: web.map(|point| point.errors.covered),
            closer_than: Way::BASELINES.iter().filter_map(closer).collect(),
            epochs_to_follow: worst(each),
            epochs_to_follow_each: each.to_vec(),
            per_arm: by_arm(points, |point| point.errors),
        }
    }
}

/// The most of them; `None` when one is not known, or there is none.
fn worst(each: &[Option<usize>]) -> Option<usize> {
    each.iter().copied().reduce(|a, b| Some(a?.max(b?)))?
}

fn report(points: &[Point], summary: &Summary) -> Report {
    let mut words = vec![
        format!(
            "Median relative error over all responses: **{}** (the paper: 0.63 %); of its absolute \
             value: {}",
            fine_percent(summary.median_rel_error),
            fine_percent(summary.median_abs_rel_error)
        ),
        format!(
            "Within 15 % of the truth: **{}** of the responses with an estimate, which are {}",
            percent(summary.within_15_percent),
            percent(summary.covered)
        ),
    ];
    for (way, times) in &summary.closer_than {
        let times = times.map_or_else(|| "–".into(), |times| format!("{times:.1}"));
        words.push(format!("{} is **{times}** times as far off", way.label()));
    }
    let epochs = summary.epochs_to_follow;
    let epochs = epochs.map_or_else(|| "–".into(), |epochs| epochs.to_string());
    words.push(format!(
        "Epochs until a change of speed is followed, at worst: **{epochs}**"
    ));
    Report::new(
        "Passive accuracy: latency from one direction",
        "A web client's requests pass the vantage, nginx's responses do not; the server's CPU share \
         follows a trace. Errors are (truth − estimate) / truth by connection and epoch, each \
         counting as often as it has responses.",
    )
    .heading("Summary")
    .part(Part::List(words))
    .heading("Arms")
    .text(
        "`web` has four requests in flight on a connection (Figures 3 and 4), `single` one (Figure 5); \
         in `steps` the server's speed changes. An epoch is off when its estimate is more than 15 % \
         from the client's own time from request to triggered request.",
    )
    .parts(points.iter().flat_map(section))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_was_never_followed_leaves_no_number_for_the_worst() {
        assert_eq!(worst(&[Some(1), Some(3), Some(2)]), Some(3));
        assert_eq!(worst(&[Some(1), None, Some(2)]), None);
        assert_eq!(worst(&[]), None);
    }

    #[test]
    fn nothing_measured_is_not_known_and_not_zero() {
        let summary = Summary::of(&[]);
        assert_eq!((summary.median_rel_error, summary.covered), (None, None));
        assert!(summary.closer_than.is_empty() && summary.epochs_to_follow.is_none());
    }
}
