//! Experiment `burst-mixed`: bursts of two short flows beside 25 that never end (the paper's section 5.4, live).
//! When are the short ones there, and what do the endless ones lose?

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::summary::{Compared, p99};
use super::{Answers, Endless, Fates, SEGMENT, Stage, Way, endless, told};
use crate::Context;
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{duration, name};
use crate::engine::{
    Experiment, Judgement, NoMore, Ratio, Report, Results, Round, Run, Turn, Verdict, pairs,
};

pub(crate) struct BurstMixed;

const ENDLESS: usize = 25;
/// Packets of a short flow, of which two come at a time.
const PACKETS: u64 = 10;
const RATES: [u32; 2] = [100, 1_000];
/// They carry less than so much less than beside drop-tail.
const LOSS_BAR: f64 = 0.01;
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Arm {
    pub(crate) mbit: u32,
    pub(crate) way: Way,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    round: u32,
    #[serde(flatten)]
    pub(crate) arm: Arm,
    /// Completion of the short flows, ns.
    fct_mean_ns: f64,
    fct_p99_ns: f64,
    flows: usize,
    incomplete: u64,
    /// Segments of theirs that were sent again.
    retransmissions: u64,
    /// What the endless flows carried, bytes a second.
    endless_per_s: f64,
    fates: Option<Fates>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// What endless flows lose against drop-tail, the most of all cases; below 0: they gain. …
    pub(crate) long_flow_loss: Option<f64>,
    /// … and whether it is less than 1 % in all.
    pub(crate) long_flow_verdict: Verdict,
    pub(crate) cases: Vec<CaseSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CaseSummary {
    #[serde(flatten)]
    pub(crate) arm: Arm,
    #[serde(flatten)]
    pub(crate) compared: Compared,
    /// What the endless flows carry, over drop-tail's of the same round.
    pub(crate) long_ratio: Option<Ratio>,
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let mut arms: Vec<_> = points.iter().map(|p| p.arm).collect();
        arms.sort_unstable();
        arms.dedup();
        arms.retain(|arm| arm.way != Way::DropTail);
        let key = |p: &Point| (p.round, p.arm);
        let case = |arm: Arm| {
            let base = Arm {
                way: Way::DropTail,
                ..arm
            };
            CaseSummary {
                arm,
                compared: Compared::of(points, key, (arm, base), |p| (p.fct_mean_ns, p.fct_p99_ns)),
                long_ratio: Ratio::of(&pairs(points, key, arm, base, |p| p.endless_per_s)),
            }
        };
        let cases: Vec<_> = arms.into_iter().map(case).collect();
        let ratios = || cases.iter().map(|c| c.long_ratio.as_ref());
        let losses = ratios().map(|r| Ratio::decided(r).map(|r| 1.0 - r));
        let losses: Option<Vec<f64>> = losses.collect();
        Self {
            long_flow_loss: losses.and_then(|l| l.into_iter().max_by(f64::total_cmp)),
            long_flow_verdict: Verdict::of_all(
                ratios().map(|r| Verdict::at_least(r, 1.0 - LOSS_BAR)),
            ),
            cases,
        }
    }
}

impl Experiment for BurstMixed {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "burst-mixed"
    }

    fn about(&self) -> &'static str {
        "bursts of two short flows beside 25 endless ones: when are they there, and what do those lose?"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        let ways = [Way::DropTail, Way::Bursts, Way::AllMark];
        let arms = RATES.map(|mbit| ways.map(|way| Arm { mbit, way })).concat();
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &arms))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(format!("{} Mbit/s", arm.mbit))
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        Stage::build("b-mixed", context, 2)
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm, site) = (run.context, *turn.arm, &stage.site);
        let measured = Duration::from_millis(if context.quick { 1_200 } else { 5_000 });
        site.set_queue(arm.mbit)?;
        let agents = site.agents(context, arm.way)?;
        let flows = Endless::start(site, context, &[endless(ENDLESS)], measured)?;
        let questions = measured.as_millis() / 75;
        let args = format!(
            "--senders 2 --bytes {} --questions {questions} --pause 20ms",
            SEGMENT * PACKETS
        );
        let answers = Answers::to(site, context, &args)?;
        let carried = flows.finish(context)?.iter().sum();
        let fates = agents.map(super::Agents::finish).transpose()?;
        let times = &answers.completions_ns;
        Ok(vec![Point {
            round: turn.round,
            arm,
            fct_mean_ns: times.iter().sum::<f64>() / times.len() as f64,
            fct_p99_ns: p99(times),
            flows: times.len(),
            incomplete: answers.incomplete,
            retransmissions: answers.retransmissions,
            endless_per_s: carried,
            fates,
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        Judgement::valid_if(point.incomplete == 0, "an answer did not come")
    }

    fn describe(&self, point: &Point) -> String {
        let (mean, p99) = (duration(point.fct_mean_ns), duration(point.fct_p99_ns));
        let bursts = told(point.fates);
        format!(
            "round {}: {} Mbit/s, {}: {mean}, p99 {p99}, endless {:.1} Mbit/s; {} sent again{bursts}",
            point.round + 1,
            point.arm.mbit,
            name(point.arm.way),
            point.endless_per_s * 8e-6,
            point.retransmissions
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let table = Compared::table(
            &summary.cases,
            &[
                ("Mbit/s", &|c| c.arm.mbit.to_string()),
                ("", &|c| name(c.arm.way)),
            ],
            |c| &c.compared,
            &[("endless flows carry", &|c| {
                Ratio::text(c.long_ratio.as_ref())
            })],
        );
        Report::new(
            "Bursts of two short flows beside 25 endless ones",
            "Two new connections answer with 10 packets each, through a queue of 100 packets that 25 connections keep \
             full. `bursts`: the short flows are marked; `all-mark`: all are.",
        )
        .heading("Completion of short flows, and what endless ones carry")
        .table(table)
        .text("Ratios are to drop-tail in the same round, with 95 % intervals.")
    }
}
