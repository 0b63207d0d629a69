//! Figures and report of the accuracy experiment.

use batchwise_core::sense::report::Unit;

use super::Point;
use super::plan::{Switched, WORKLOADS};
use super::summary::{
    Arms, End, Summary, Verdict, WorkloadSummary, arms, estimate, two_sided_total,
};
use crate::engine::color::{Color, NAGLE, NODELAY};
use crate::engine::figure::{Bar, Group};
use crate::engine::report::Part;
use crate::engine::text::{duration, percent, remark, thousands};
use crate::engine::{Axis, Figure, Report, Table, Unit as AxisUnit};
use crate::ladder::Workload;
use batchwise_testbed::window::PARTS;

/// The report.
pub fn report(points: &[Point], summary: &Summary) -> Report {
    let mut report = Report::new(
        "Accuracy: measured against estimated latency",
        "One open-loop Poisson client on one connection to Redis, Nagle's algorithm on and off, \
         from light load to collapse. Estimates come from TCP queue states of both ends.",
    )
    .heading("Summary")
    .text(
        "Nagle is switched at the client, for `95:5-server` at the server. Error of the estimated \
         mean latency (`total`, from `send`s, two-sided) against the mean that the load generator \
         measured from its own send, over all points below saturation: at least 98 % of the offered \
         load answered, at most 5 ms on average from the intended time, no failed request. The \
         cutoff is the lowest load from which on Nagle's algorithm gives the lower latency at every \
         higher load.",
    )
    .table(overview(summary));
    for Switched { workload, .. } in &WORKLOADS {
        if let Some(result) = summary.per_workload.get(workload.name) {
            let own = points.iter().filter(|p| p.workload == workload.name);
            report = section(report, workload, &own.collect::<Vec<_>>(), result);
        }
    }
    report
}

fn overview(summary: &Summary) -> Table {
    let mut table = verdict_table(&["workload", "estimated at"]);
    for Switched { workload, .. } in &WORKLOADS {
        if let Some(result) = summary.per_workload.get(workload.name) {
            let mut row = vec![workload.name.into(), end_name(result.end).into()];
            row.extend(verdict_cells(&result.headline));
            table.rows.push(row);
        }
    }
    table
}

/// With columns of these names, and then those of a verdict.
fn verdict_table(leading: &[&'static str]) -> Table {
    let verdict = [
        "median error",
        "p90 error",
        "bias",
        "points",
        "missing",
        "cutoff measured",
        "estimated",
        "same",
    ];
    Table::new([leading, &verdict].concat())
}

fn verdict_cells(verdict: &Verdict) -> [String; 8] {
    let rps = |at: Option<u64>| at.map_or_else(|| "none".into(), |r| thousands(r as f64));
    [
        percent(verdict.median_abs_rel_error),
        percent(verdict.p90_abs_rel_error),
        percent(verdict.median_signed_rel_error),
        verdict.points.to_string(),
        verdict.missing.to_string(),
        rps(verdict.measured_cutoff_rps),
        rps(verdict.estimated_cutoff_rps),
        if verdict.cutoff_matches { "yes" } else { "no" }.into(),
    ]
}

fn end_name(end: End) -> &'static str {
    match end {
        End::Client => "client",
        End::Server => "server",
    }
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Sends => "sends",
        Unit::Bytes => "bytes",
        Unit::Packets => "packets",
    }
}

fn section(
    report: Report,
    workload: &Workload,
    points: &[&Point],
    result: &WorkloadSummary,
) -> Report {
    let (name, file) = (workload.name, workload.file_name());
    let mut report = report
        .heading(format!("Workload {name}"))
        .figure(latency_plot((name, &file), points, result, Unit::Sends));
    if name.starts_with("95:5") {
        // Where the paper shows that bytes are the wrong unit.
        report = report.figure(latency_plot((name, &file), points, result, Unit::Bytes));
    }
    let mut verdicts = verdict_table(&["unit, end"]);
    for (end, by_unit) in &result.by_end_and_unit {
        for (unit, verdict) in by_unit {
            let mut row = vec![format!("{}, {}", unit_name(*unit), end_name(*end))];
            row.extend(verdict_cells(verdict));
            verdicts.rows.push(row);
        }
    }
    let every = vec![Part::Table(point_table(points, result.end))];
    report
        .figure(stage_plot((name, &file), points, result.end))
        .subheading("By unit and end")
        .table(verdicts)
        .part(Part::Details("Every point".into(), every))
}

/// An arm's latency at a step.
type Pick = fn(&Arms) -> Option<f64>;

fn latency_plot(
    (name, file): (&str, &str),
    points: &[&Point],
    result: &WorkloadSummary,
    unit: Unit,
) -> Figure {
    let measured = arms(points, |p| Some(p.truth.from_send_ns.mean));
    let estimated = arms(points, |p| two_sided_total(p, result.end, unit));
    let line = |arms: &[Arms], pick: Pick| {
        let known = |at: &Arms| Some((at.step_rps as f64, pick(at).filter(|y| y.is_finite())?));
        arms.iter().filter_map(known).collect::<Vec<_>>()
    };
    let (by, end) = (unit_name(unit), end_name(result.end));
    let title = format!("{name}: mean latency, counted in {by}, {end}'s end");
    let mut figure = Figure::latency_over_load(format!("latency-{file}-{by}.svg"), title);
    let both: [(&str, Color, Pick); 2] = [
        ("Nagle on", NAGLE, |a| a.nagle),
        ("Nagle off", NODELAY, |a| a.nodelay),
    ];
    for (label, color, pick) in both {
        figure = figure
            .measured(format!("{label}, measured"), color, line(&measured, pick))
            .estimated(format!("{label}, estimated"), color, line(&estimated, pick));
    }
    let verdict = &result.by_unit[&unit];
    for (what, dashed, at) in [
        ("measured", false, verdict.measured_cutoff_rps),
        ("estimated", true, verdict.estimated_cutoff_rps),
    ] {
        if let Some(at) = at.map(|at| at as f64) {
            figure = figure.mark(format!("cutoff, {what}: {}", thousands(at)), at, dashed);
        }
    }
    figure
}

fn stage_plot((name, file): (&str, &str), points: &[&Point], end: End) -> Figure {
    let mut steps: Vec<u64> = points.iter().map(|p| p.step_rps).collect();
    steps.sort_unstable();
    steps.dedup();
    let group = |&step: &u64| {
        let bar = |nodelay: bool| {
            let at = |p: &&&Point| p.step_rps == step && p.nodelay == nodelay && !p.saturated;
            points.iter().filter(at).find_map(|p| stage_bar(p, end))
        };
        Group {
            label: thousands(step as f64),
            bars: vec![bar(false), bar(true)],
        }
    };
    let groups: Vec<_> = steps.iter().map(group).collect();
    let by = end_name(end);
    let title = format!("{name}: where the time goes, counted in sends, {by}'s end");
    let axes = (
        "offered load, requests/s",
        Axis::new("mean latency", AxisUnit::Duration).reaching(10_000.0),
    );
    let measured = "measured, from the send";
    Figure::stacked_bars(
        format!("stages-{file}.svg"),
        title,
        axes,
        &PARTS,
        measured,
        &groups,
    )
    .note("Left bar: Nagle on; right: off")
}

fn stage_bar(point: &Point, end: End) -> Option<Bar> {
    let estimate = estimate(point, end, Unit::Sends)?;
    Some(Bar {
        parts: estimate.parts().into_iter().collect::<Option<_>>()?,
        measured: Some(point.truth.from_send_ns.mean),
    })
}

fn point_table(points: &[&Point], end: End) -> Table {
    let mut table = Table::new([
        "load",
        "Nagle",
        "repeat",
        "achieved",
        "from intended",
        "from send",
        "estimated",
        "network",
        "turnaround",
        "confidence",
        "",
    ]);
    for point in points {
        let truth = &point.truth;
        let found = estimate(point, end, Unit::Sends);
        let shown = |value: Option<f64>| value.map_or_else(|| "–".into(), duration);
        table.row([
            thousands(point.step_rps as f64),
            if point.nodelay { "off" } else { "on" }.into(),
            (point.repeat + 1).to_string(),
            thousands(truth.achieved_rps),
            duration(truth.from_intended_ns.mean),
            duration(truth.from_send_ns.mean),
            shown(two_sided_total(point, end, Unit::Sends)),
            shown(found.and_then(|e| e.network_ns)),
            shown(found.and_then(|e| e.turnaround_ns)),
            found.map_or_else(|| "–".into(), |e| format!("{:.2}", e.confidence)),
            remark(point.saturated, truth.valid, &truth.why_invalid),
        ]);
    }
    table
}
