//! Plots and report of `redis-nagle`.

use std::collections::BTreeMap;

use super::Point;
use super::plan::WORKLOADS;
use super::summary::{PAPER, StepSummary, Summary, WorkloadSummary, Worst};
use crate::arm::Arm;
use crate::decisions;
use crate::engine::figure::{Layer, Span};
use crate::engine::text::{duration, ratio, thousands};
use crate::engine::{Axis, Figure, Ratio, Report, Table, Verdict};
use crate::ladder::Workload;
use crate::tuner::{Decision, SLO};
use batchwise_testbed::load::PhaseReport;

pub(super) fn report(
    points: &[Point],
    decisions: &BTreeMap<String, Vec<Decision>>,
    summary: &Summary,
) -> Report {
    let mut report = Report::new(
        "Redis with TCP_NODELAY, with Nagle, and with batchwise tuning",
        "One open-loop Poisson client on one connection, from light load to collapse. Neither \
         setting is right at every load; batchwise chooses while the service runs.",
    )
    .heading("Summary")
    .table(overview(summary))
    .text(
        "Latencies are means from the intended send time, medians over repeats; ratios are medians \
         of the repeats' own ratios, with a 95 % bootstrap interval. Fewer than 15 pairs decide \
         nothing. The SLO is a mean of 500 µs. “Range”: the highest load under the SLO with \
         batchwise over that with TCP_NODELAY, the default of Redis and its clients. “Latency”: \
         TCP_NODELAY's latency over batchwise's at the highest load at which TCP_NODELAY is under \
         the SLO. “Against the better arm”: batchwise's latency over the better static arm's, among \
         the loads at which that is under the SLO: over all of them, and where it is worst. \
         “Learning”: the latency of the first 4 s of a connection with batchwise over \
         TCP_NODELAY's, again where that is highest. The paper computed its figures from two static \
         runs.",
    )
    .text(
        "The static arms are measured point by point with no agent running; batchwise climbs the \
         same loads just before or after, with an agent at each host that stays, so that a ratio is \
         between measurements some ten seconds to a minute apart.",
    );
    for workload in &WORKLOADS {
        if let Some(result) = summary.per_workload.get(workload.name) {
            report = report
                .heading(format!("Workload {}", workload.name))
                .figure(latency_plot(workload, &result.steps));
            if let Some(decisions) = decisions.get(workload.name) {
                report = report.figure(decision_plot(workload, points, decisions));
            }
        }
    }
    report
}

pub(super) fn overview(summary: &Summary) -> Table {
    type Row<'a> = (&'a str, &'a WorkloadSummary);
    let highest = |row: &Row, arm| {
        let load = row.1.highest_under_slo_rps.get(&arm);
        load.map_or_else(|| "–".into(), |&rps| thousands(rps as f64))
    };
    let judged = |of: Option<&Ratio>, verdict: Verdict| match verdict {
        Verdict::Undecided => Ratio::text(of),
        verdict => format!("{}: {}", Ratio::text(of), verdict.name()),
    };
    let worst = |worst: Option<Worst>| {
        worst.map_or_else(String::new, |w| {
            let at = thousands(w.step_rps as f64);
            format!("{} at {at}", Ratio::text(w.interval.as_ref()))
        })
    };
    let known = |w: &Workload| Some((w.name, summary.per_workload.get(w.name)?));
    let mut table = Table::of(
        WORKLOADS.iter().filter_map(known),
        &[
            ("workload", &|row| row.0.into()),
            ("range", &|(_, w)| {
                let bound = if w.range_is_lower_bound { "≥ " } else { "" };
                let range = judged(w.range_interval.as_ref(), w.range_verdict);
                format!("{bound}{range}")
            }),
            ("latency", &|(_, w)| {
                judged(w.latency_interval.as_ref(), w.latency_verdict)
            }),
            ("against the better arm", &|(_, w)| {
                judged(w.vs_best_arm.as_ref(), w.vs_best_arm_verdict)
            }),
            ("worst", &|(_, w)| worst(w.worst_point)),
            ("beyond the SLO", &|(_, w)| worst(w.worst_beyond_slo)),
            ("throughput, worst", &|(_, w)| worst(w.worst_throughput)),
            ("learning, worst", &|(_, w)| worst(w.worst_learning)),
            ("TCP_NODELAY up to", &|row| highest(row, Arm::Nodelay)),
            ("Nagle up to", &|row| highest(row, Arm::Nagle)),
            ("batchwise up to", &|row| highest(row, Arm::Batchwise)),
        ],
    );
    let [range, latency] = [PAPER.range_ratio, PAPER.latency_ratio].map(|r| ratio(Some(r)));
    let mut paper = vec!["the paper".into(), range, latency];
    paper.resize(table.header.len(), String::new());
    table.rows.push(paper);
    table
}

pub(super) fn latency_plot(workload: &Workload, steps: &[StepSummary]) -> Figure {
    let slo = SLO.as_nanos() as f64;
    let title = format!(
        "{}: mean latency from the intended send time",
        workload.name
    );
    let file = format!("latency-{}.svg", workload.file_name());
    let mut figure = Figure::latency_over_load(file, title);
    for arm in Arm::ALL {
        let point = |s: &StepSummary| Some((s.step_rps as f64, s.latency_ns.get(&arm)?.median));
        let line = steps.iter().filter_map(point).collect();
        figure = figure.measured(arm.label(), arm.color(), line);
    }
    figure.level(format!("SLO, {}", duration(slo)), slo)
}

/// The first repetition with batchwise: its loads, one after another, and what was decided.
pub(super) fn decision_plot(workload: &Workload, points: &[Point], made: &[Decision]) -> Figure {
    let first =
        |p: &&Point| p.workload == workload.name && p.arm == Arm::Batchwise && p.repeat == 0;
    let tuned: Vec<_> = points.iter().filter(first).collect();
    let begin = |p: &Point| p.learning.as_ref().unwrap_or(&p.window).from_ts_ns;
    let zero = tuned.first().map_or(0, |p| begin(p));
    let end = tuned.last().map_or(zero, |p| p.window.to_ts_ns);
    let seconds = |ts: u64| ts.saturating_sub(zero) as f64 / 1e9;
    let piece = |p: &&Point| {
        let phases = p.learning.iter().chain([&p.window]);
        let ends =
            |l: &PhaseReport| [l.from_ts_ns, l.to_ts_ns].map(|t| (seconds(t), l.latency_ns.mean));
        phases.flat_map(ends).collect()
    };
    let span = |p: &&Point| Span {
        from: seconds(begin(p)),
        to: seconds(p.window.to_ts_ns),
        name: thousands(p.step_rps as f64),
    };
    let title = format!(
        "{}: one run of batchwise over climbing loads",
        workload.name
    );
    let file = format!("decisions-{}.svg", workload.file_name());
    let figure = Figure::over_time(file, title, Axis::latency());
    decisions::draw(figure, "Nagle at the client", made, zero, end)
        .pieces(
            "mean: learning, then measured",
            Arm::Batchwise.color(),
            tuned.iter().map(piece).collect(),
        )
        .level("SLO", SLO.as_nanos() as f64)
        .layer(Layer::Spans(tuned.iter().map(span).collect()))
}
