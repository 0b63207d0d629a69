//! Plots and report of `redis-nagle`.

use std::collections::BTreeMap;

use super::Point;
use super::plan::WORKLOADS;
use super::summary::{PAPER, StepSummary, Summary, WorkloadSummary, Worst};
use crate::arm::Arm;
use crate::decisions::{events, nagle_times};
use crate::engine::figure::{Layer, Span};
use crate::engine::report::Part;
use crate::engine::text::{maybe_duration, percent, ratio, remark, thousands};
use crate::engine::{Axis, Figure, Report, Table};
use crate::ladder::Workload;
use crate::tuner::{Decision, SLO};

/// The report.
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
         of the repeats' own ratios. The SLO is a mean of 500 µs. “Range”: the highest load under \
         the SLO with batchwise over that with TCP_NODELAY, the default of Redis and its clients. \
         “Latency”: TCP_NODELAY's latency over batchwise's at the highest load at which TCP_NODELAY \
         is under the SLO. “Worst”: batchwise's latency over the better static arm's, at the load \
         where that is highest, among the loads at which the better arm is under the SLO. \
         “Learning”: the latency of the first 4 s of a connection with batchwise over TCP_NODELAY's, \
         again where that is highest. The paper computed its figures from two static runs.",
    )
    .text(
        "The static arms are measured point by point with no agent running; batchwise climbs the \
         same loads just before or after, with an agent at each host that stays, so that a ratio is \
         between measurements some ten seconds to a minute apart.",
    );
    for workload in &WORKLOADS {
        if let Some(result) = summary.per_workload.get(workload.name) {
            let own = points.iter().filter(|p| p.workload == workload.name);
            let decisions = decisions.get(workload.name).map_or(&[][..], Vec::as_slice);
            report = section(
                report,
                workload,
                &own.collect::<Vec<_>>(),
                decisions,
                result,
            );
        }
    }
    report
}

pub(super) fn overview(summary: &Summary) -> Table {
    let mut table = Table::new([
        "workload",
        "range",
        "latency",
        "worst vs. better arm",
        "at",
        "beyond the SLO",
        "throughput, worst",
        "learning, worst",
        "TCP_NODELAY up to",
        "Nagle up to",
        "batchwise up to",
    ]);
    for workload in &WORKLOADS {
        let Some(found) = summary.per_workload.get(workload.name) else {
            continue;
        };
        let at_least = if found.range_is_lower_bound {
            "≥ "
        } else {
            ""
        };
        let worst = |worst: Option<Worst>| ratio(worst.map(|w| w.ratio));
        let highest = |arm| {
            let load = found.highest_under_slo_rps.get(&arm);
            load.map_or_else(|| "–".into(), |&rps| thousands(rps as f64))
        };
        table.row([
            workload.name.into(),
            format!("{at_least}{}", ratio(found.range_ratio)),
            ratio(found.latency_ratio),
            ratio(found.worst_vs_best_arm),
            found.worst_point.map_or_else(
                || "–".into(),
                |w| format!("{}, {}", thousands(w.step_rps as f64), w.against.label()),
            ),
            worst(found.worst_beyond_slo),
            worst(found.worst_throughput),
            worst(found.worst_learning),
            highest(Arm::Nodelay),
            highest(Arm::Nagle),
            highest(Arm::Batchwise),
        ]);
    }
    let mut paper = vec!["the paper".into(), ratio(Some(PAPER.range_ratio))];
    paper.push(ratio(Some(PAPER.latency_ratio)));
    paper.resize(table.header.len(), String::new());
    table.rows.push(paper);
    table
}

fn section(
    report: Report,
    workload: &Workload,
    points: &[&Point],
    decisions: &[Decision],
    result: &WorkloadSummary,
) -> Report {
    let (name, file) = (workload.name, workload.file_name());
    let mut report = report
        .heading(format!("Workload {name}"))
        .figure(latency_plot(name, &file, &result.steps));
    if !decisions.is_empty() {
        report = report.figure(decision_plot(name, &file, points, decisions));
    }
    let every = vec![Part::Table(point_table(points))];
    report.part(Part::Details("Every point".into(), every))
}

pub(super) fn latency_plot(name: &str, file: &str, steps: &[StepSummary]) -> Figure {
    let slo = SLO.as_nanos() as f64;
    let title = format!("{name}: mean latency from the intended send time");
    let mut figure = Figure::latency_over_load(format!("latency-{file}.svg"), title);
    for arm in Arm::ALL {
        let point = |s: &StepSummary| Some((s.step_rps as f64, s.latency_ns.get(&arm)?.median));
        let line = steps.iter().filter_map(point).collect();
        figure = figure.measured(arm.label(), arm.color(), line);
    }
    figure.level(format!("SLO, {}", maybe_duration(Some(slo))), slo)
}

/// The first repetition with batchwise: its loads, one after another, and what was decided.
pub(super) fn decision_plot(
    name: &str,
    file: &str,
    points: &[&Point],
    decisions: &[Decision],
) -> Figure {
    let tuned: Vec<_> = points
        .iter()
        .filter(|p| p.arm == Arm::Batchwise && p.repeat == 0)
        .collect();
    let begin = |p: &Point| {
        let learning = p.learning.as_ref();
        learning.map_or(p.window.from_ts_ns, |l| l.from_ts_ns)
    };
    let zero = tuned.first().map_or(0, |p| begin(p));
    let end = tuned.last().map_or(zero, |p| p.window.to_ts_ns);
    let seconds = |ts: u64| ts.saturating_sub(zero) as f64 / 1e9;
    let piece = |p: &&&Point| {
        let phases = p.learning.iter().chain([&p.window]);
        phases
            .flat_map(|l| {
                let mean = l.latency_ns.mean;
                [(seconds(l.from_ts_ns), mean), (seconds(l.to_ts_ns), mean)]
            })
            .collect()
    };
    let span = |p: &&&Point| Span {
        from: seconds(begin(p)),
        to: seconds(p.window.to_ts_ns),
        name: thousands(p.step_rps as f64),
    };
    let title = format!("{name}: one run of batchwise over climbing loads");
    let file = format!("decisions-{file}.svg");
    let mut figure = Figure::over_time(file, title, Axis::latency())
        .layer(Layer::Shade {
            label: "Nagle at the client".into(),
            times: nagle_times(decisions, zero, end),
        })
        .pieces(
            "mean: learning, then measured",
            Arm::Batchwise.color(),
            tuned.iter().map(piece).collect(),
        )
        .level("SLO", SLO.as_nanos() as f64)
        .layer(Layer::Spans(tuned.iter().map(span).collect()));
    for (label, color, at) in events(decisions, zero, end) {
        figure = figure.layer(Layer::Events { label, color, at });
    }
    figure
}

fn point_table(points: &[&Point]) -> Table {
    let mut table = Table::new([
        "load",
        "arm",
        "repeat",
        "achieved",
        "mean",
        "p99",
        "from send",
        "learning",
        "Nagle",
        "",
    ]);
    for point in points {
        let window = &point.window;
        table.row([
            thousands(point.step_rps as f64),
            point.arm.label().into(),
            (point.repeat + 1).to_string(),
            thousands(window.achieved_rps),
            maybe_duration(Some(window.latency_ns.mean)),
            maybe_duration(Some(window.latency_ns.p99)),
            maybe_duration(Some(window.latency_from_send_ns.mean)),
            maybe_duration(point.learning.as_ref().map(|l| l.latency_ns.mean)),
            percent(point.nagle_share),
            remark(point.saturated, window.valid, &window.why_invalid),
        ]);
    }
    table
}
