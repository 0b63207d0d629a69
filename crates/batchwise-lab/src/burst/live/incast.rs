//! Experiment `burst-incast`: 50 senders answer one question at once, through a queue of 100 packets; when is each
//! answer there, with a router that admits bursts whole and with drop-tail (the paper's Figures 3 and 4, live)?

use anyhow::Result;
use batchwise_testbed::bpf_stats::StatsEnabled;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::summary::{Compared, p99, percentiles};
use super::{Answers, Fates, SEGMENT, Stage, Way, told};
use crate::Context;
use crate::engine::color::{BATCHWISE, GREY};
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{duration, percent};
use crate::engine::{
    Axis, Experiment, Figure, Judgement, NoMore, Report, Results, Round, Run, Turn, Unit,
};
use crate::stats::median;

pub(crate) struct BurstIncast;

/// How fast the queue empties, and how long answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) mbit: u32,
    /// Of an answer.
    pub(crate) packets: u64,
}

impl Case {
    pub(crate) fn label(self) -> String {
        format!("50 × {}, {} Mbit/s", self.packets, self.mbit)
    }

    /// Until a source's credit is full again: a tenth of the queue comes back at 1 % of the rate.
    fn pause_ms(self) -> u32 {
        15_000 / self.mbit + 5
    }

    /// Questions of a turn: about half a second of them.
    fn questions(self, quick: bool) -> u32 {
        let few = match (self.mbit, self.packets) {
            (..=100, 100) => 1,
            (..=100, _) | (_, 100) => 3,
            _ => 6,
        };
        if quick { few } else { 3 * few }
    }
}

/// At the last the queue fills as fast as one CPU that plays all senders can do it.
const RATES: [u32; 3] = [100, 300, 1_000];
const SENDERS: usize = 50;
const PACKETS: [u64; 2] = [10, 100];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Arm {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) way: Way,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) round: u32,
    #[serde(flatten)]
    pub(crate) arm: Arm,
    /// Completion of answers, ns.
    pub(crate) fct_mean_ns: f64,
    pub(crate) fct_p99_ns: f64,
    /// The same at each percent, from the shortest to the longest.
    pub(crate) fct_percentiles_ns: Vec<f64>,
    incomplete: u64,
    /// Segments that were sent again, of so many.
    pub(crate) retransmissions: u64,
    pub(crate) segments: u64,
    /// Packets that the queue dropped, or admission.
    dropped: u64,
    /// With admission.
    pub(crate) fates: Option<Fates>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Of 50 × 10 at 1 Gbit/s: over drop-tail's, if there are enough rounds.
    pub(crate) fct_ratio_mean: Option<f64>,
    pub(crate) fct_ratio_p99: Option<f64>,
    /// Time of a packet in the programs at the router and at the senders, ns: medians over turns.
    pub(crate) admit_packet_ns: Option<f64>,
    pub(crate) mark_packet_ns: Option<f64>,
    pub(crate) cases: Vec<CaseSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CaseSummary {
    #[serde(flatten)]
    pub(crate) case: Case,
    #[serde(flatten)]
    pub(crate) compared: Compared,
    /// Of all segments those that were sent again, with drop-tail and with admission: the medians.
    pub(crate) sent_again_drop_tail: Option<f64>,
    pub(crate) sent_again: Option<f64>,
    /// Of all bursts that asked.
    pub(crate) admitted: Option<f64>,
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let mut all: Vec<_> = points.iter().map(|point| point.arm.case).collect();
        all.sort_unstable();
        all.dedup();
        let cases: Vec<_> = all
            .into_iter()
            .map(|case| Self::case(points, case))
            .collect();
        let main = Case {
            mbit: 1_000,
            packets: 10,
        };
        let main = cases.iter().find(|c| c.case == main);
        let ns = |of: fn(Fates) -> Option<f64>| {
            let all = points.iter().filter_map(|p| p.fates.and_then(of));
            median(&all.collect::<Vec<_>>())
        };
        Self {
            fct_ratio_mean: main.and_then(|c| c.compared.mean_decided()),
            fct_ratio_p99: main.and_then(|c| c.compared.p99_decided()),
            admit_packet_ns: ns(|f| f.admit_ns),
            mark_packet_ns: ns(|f| f.mark_ns),
            cases,
        }
    }

    fn case(points: &[Point], case: Case) -> CaseSummary {
        let arm = |way| Arm { case, way };
        let key = |p: &Point| (p.round, p.arm);
        let arms = (arm(Way::Bursts), arm(Way::DropTail));
        let of = |way| points.iter().filter(move |p| p.arm == arm(way));
        let again = |way| {
            let shares = of(way).map(|p| p.retransmissions as f64 / p.segments as f64);
            median(&shares.collect::<Vec<_>>())
        };
        let admitted = of(Way::Bursts).filter_map(|p| p.fates);
        let admitted = admitted.map(|f| f.admitted as f64 / (f.admitted + f.refused).max(1) as f64);
        CaseSummary {
            case,
            compared: Compared::of(points, key, arms, |p| (p.fct_mean_ns, p.fct_p99_ns)),
            sent_again_drop_tail: again(Way::DropTail),
            sent_again: again(Way::Bursts),
            admitted: median(&admitted.collect::<Vec<_>>()),
        }
    }
}

impl Experiment for BurstIncast {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "burst-incast"
    }

    fn about(&self) -> &'static str {
        "50 senders answer at once: when is each answer there, if the router admits bursts whole?"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        let cases = RATES.map(|mbit| PACKETS.map(|packets| Case { mbit, packets }));
        let arms = cases.concat().into_iter();
        let arms = arms.flat_map(|case| [Way::DropTail, Way::Bursts].map(|way| Arm { case, way }));
        Ok(Round::shuffled(
            ENOUGH_PAIRS as u32,
            &arms.collect::<Vec<_>>(),
        ))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.case.label())
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        Stage::build("b-incast", context, SENDERS)
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm, site) = (run.context, *turn.arm, &stage.site);
        site.set_queue(arm.case.mbit)?;
        // in both arms
        let counting = StatsEnabled::new()?;
        let agents = site.agents(context, arm.way)?;
        let (bytes, questions) = (
            SEGMENT * arm.case.packets,
            arm.case.questions(context.quick),
        );
        let before = site.dropped()?;
        let pause = arm.case.pause_ms();
        let args = format!(
            "--senders {SENDERS} --bytes {bytes} --questions {questions} --pause {pause}ms"
        );
        let answers = Answers::to(site, context, &args)?;
        let by_queue = site.dropped()? - before;
        let fates = agents.map(super::Agents::finish).transpose()?;
        drop(counting);
        let times = &answers.completions_ns;
        Ok(vec![Point {
            round: turn.round,
            arm,
            fct_mean_ns: times.iter().sum::<f64>() / times.len() as f64,
            fct_p99_ns: p99(times),
            fct_percentiles_ns: percentiles(times),
            incomplete: answers.incomplete,
            retransmissions: answers.retransmissions,
            segments: SENDERS as u64 * arm.case.packets * u64::from(questions),
            dropped: by_queue + fates.map_or(0, |f| f.denied),
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
            "round {}: {}, {:?}: {mean}, p99 {p99}; {} dropped, {} sent again{bursts}",
            point.round + 1,
            point.arm.case.label(),
            point.arm.way,
            point.dropped,
            point.retransmissions
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let table = Compared::table(
            &summary.cases,
            &[("", &|c| c.case.label())],
            |c| &c.compared,
            &[
                ("sent again, drop-tail", &|c| {
                    percent(c.sent_again_drop_tail)
                }),
                ("sent again, admitted whole", &|c| percent(c.sent_again)),
                ("bursts admitted", &|c| percent(c.admitted)),
            ],
        );
        let report = Report::new(
            "Incast: 50 senders answer at once",
            "Each answer is a connection's first window (50 × 10), or ten times that. A tbf of the router is the \
             bottleneck: it has a queue of 100 packets of 1514 bytes.",
        )
        .heading("Completion")
        .table(table)
        .text(
            "Medians over rounds; ratios are to drop-tail in the same round, with 95 % intervals. Senders share a \
             CPU, which sends one answer after the other: bursts follow each other closely, but are not mixed.",
        );
        summary.cases.iter().fold(report, |report, case| {
            report.figure(figure(&results.points, case.case))
        })
    }
}

/// How many answers are there after which time.
fn figure(points: &[Point], case: Case) -> Figure {
    let x = Axis::new("completion", Unit::Duration).log();
    let file = format!("fct-{}-{}.svg", case.mbit, case.packets);
    let title = format!("Completion of answers, {}", case.label());
    let figure = Figure::distribution(file, title, x, "of answers");
    [
        (Way::DropTail, "drop-tail", GREY),
        (Way::Bursts, "bursts admitted whole", BATCHWISE),
    ]
    .into_iter()
    .fold(figure, |figure, (way, label, color)| {
        let arm = Arm { case, way };
        let of: Vec<_> = points.iter().filter(|p| p.arm == arm).collect();
        let at = |percent: usize| {
            let all = of.iter().filter_map(|p| p.fct_percentiles_ns.get(percent));
            let all: Vec<_> = all.copied().collect();
            Some((median(&all)?, percent as f64 / 100.0))
        };
        figure.line(label, color, (0..=100).filter_map(at).collect())
    })
    .note("Percentiles of a turn, the median over rounds.")
}
