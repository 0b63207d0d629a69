//! Figures and report of the accuracy experiment.

use anyhow::Result;
use batchwise_core::sense::report::Unit;
use batchwise_testbed::window::PARTS;
use maud::{Markup, html};

use super::Point;
use super::plan::{Switched, WORKLOADS};
use super::summary::{
    Arms, End, Summary, Verdict, WorkloadSummary, arms, estimate, two_sided_total,
};
use crate::frame::Frame;
use crate::ladder::Workload;
use crate::output::Output;
use crate::plot::{self, Bar, Curve, Group, Mark, NAGLE, NODELAY, thousands};
use crate::report::{Table, figure, percent, remark};

/// Writes the plots and the report.
pub fn write(frame: &Frame<'_>, complete: bool, points: &[Point], summary: &Summary) -> Result<()> {
    let output = &frame.context.output;
    let mut sections = Vec::new();
    for Switched { workload, .. } in &WORKLOADS {
        let Some(result) = summary.per_workload.get(workload.name) else {
            continue;
        };
        let points: Vec<_> = points
            .iter()
            .filter(|p| p.workload == workload.name)
            .collect();
        sections.push(section(output, workload, &points, result)?);
    }
    let body = html! {
        h2 { "Summary" }
        p {
            "Nagle is switched at the client, for " code { "95:5-server" } " at the server. "
            "Error of the estimated mean latency (" code { "total" } ", from " code { "send" }
            "s, two-sided) against the mean that the load generator measured from its own send, \
             over all points below saturation: at least 98 % of the offered load answered, at most \
             5 ms on average from the intended time, no failed request. The cutoff is the lowest \
             load from which on Nagle's algorithm gives the lower latency at every higher load."
        }
        (overview(summary))
        @for section in &sections { (section) }
    };
    frame.write_report(
        complete,
        "Accuracy: measured against estimated latency",
        "One open-loop Poisson client on one connection to Redis, Nagle's algorithm on and off, \
         from light load to collapse. Estimates come from TCP queue states of both ends.",
        &body,
    )
}

fn overview(summary: &Summary) -> Markup {
    let mut table = verdict_table(&["workload", "estimated at"]);
    for Switched { workload, .. } in &WORKLOADS {
        if let Some(result) = summary.per_workload.get(workload.name) {
            let mut row = vec![workload.name.into(), end_name(result.end).into()];
            row.extend(verdict_cells(&result.headline));
            table.rows.push(row);
        }
    }
    table.html()
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
    Table {
        header: [leading, &verdict].concat(),
        rows: Vec::new(),
    }
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
    output: &Output,
    workload: &Workload,
    points: &[&Point],
    result: &WorkloadSummary,
) -> Result<Markup> {
    let (name, file) = (workload.name, workload.file_name());
    let mut units = vec![Unit::Sends];
    if name.starts_with("95:5") {
        // Where the paper shows that bytes are the wrong unit.
        units.push(Unit::Bytes);
    }
    let mut figures = Vec::new();
    for unit in units {
        let svg = latency_plot(name, points, result, unit)?;
        output.write(&format!("latency-{file}-{}.svg", unit_name(unit)), &svg)?;
        figures.push(figure(&svg));
    }
    let svg = stage_plot(name, points, result.end)?;
    output.write(&format!("stages-{file}.svg"), &svg)?;
    figures.push(figure(&svg));

    let mut verdicts = verdict_table(&["unit, end"]);
    for (end, by_unit) in &result.by_end_and_unit {
        for (unit, verdict) in by_unit {
            let mut row = vec![format!("{}, {}", unit_name(*unit), end_name(*end))];
            row.extend(verdict_cells(verdict));
            verdicts.rows.push(row);
        }
    }
    Ok(html! {
        h2 { "Workload " (name) }
        @for figure in &figures { (figure) }
        h3 { "By unit and end" }
        (verdicts.html())
        details { summary { "Every point" } (point_table(points, result.end).html()) }
    })
}

fn latency_plot(
    name: &str,
    points: &[&Point],
    result: &WorkloadSummary,
    unit: Unit,
) -> Result<String> {
    let measured = arms(points, |p| Some(p.truth.from_send_ns.mean));
    let estimated = arms(points, |p| two_sided_total(p, result.end, unit));
    let curve = |label: &str, color, is_estimate, arms: &[Arms], pick: fn(&Arms) -> Option<f64>| {
        let known = |at: &Arms| Some((at.step_rps as f64, pick(at).filter(|y| y.is_finite())?));
        let points = arms.iter().filter_map(known).collect();
        Curve {
            label: label.into(),
            color,
            estimated: is_estimate,
            points,
        }
    };
    let curves = [
        curve("Nagle on, measured", NAGLE, false, &measured, |a| a.nagle),
        curve("Nagle on, estimated", NAGLE, true, &estimated, |a| a.nagle),
        curve("Nagle off, measured", NODELAY, false, &measured, |a| {
            a.nodelay
        }),
        curve("Nagle off, estimated", NODELAY, true, &estimated, |a| {
            a.nodelay
        }),
    ];
    let verdict = &result.by_unit[&unit];
    let mark = |what: &str, estimated, at: Option<u64>| {
        at.map(|at| Mark {
            label: format!("cutoff, {what}: {}", thousands(at as f64)),
            estimated,
            at: at as f64,
        })
    };
    let marks: Vec<_> = [
        mark("measured", false, verdict.measured_cutoff_rps),
        mark("estimated", true, verdict.estimated_cutoff_rps),
    ]
    .into_iter()
    .flatten()
    .collect();
    let title = format!(
        "{name}: mean latency, counted in {}, {}'s end",
        unit_name(unit),
        end_name(result.end)
    );
    plot::latency_over_load(&title, &curves, &marks)
}

fn stage_plot(name: &str, points: &[&Point], end: End) -> Result<String> {
    let mut steps: Vec<u64> = points.iter().map(|p| p.step_rps).collect();
    steps.sort_unstable();
    steps.dedup();
    let groups: Vec<_> = steps
        .iter()
        .map(|&step| {
            let bar = |nodelay: bool| {
                let at = |p: &&&Point| p.step_rps == step && p.nodelay == nodelay && !p.saturated;
                points.iter().filter(at).find_map(|p| stage_bar(p, end))
            };
            Group {
                label: thousands(step as f64),
                bars: vec![bar(false), bar(true)],
            }
        })
        .collect();
    let title = format!(
        "{name}: where the time goes, counted in sends, {}'s end",
        end_name(end)
    );
    plot::stacked_bars(&title, &PARTS, &groups, "Left bar: Nagle on; right: off")
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
        let shown = |value: Option<f64>| value.map_or_else(|| "–".into(), plot::duration);
        table.row([
            thousands(point.step_rps as f64),
            if point.nodelay { "off" } else { "on" }.into(),
            (point.repeat + 1).to_string(),
            thousands(truth.achieved_rps),
            plot::duration(truth.from_intended_ns.mean),
            plot::duration(truth.from_send_ns.mean),
            shown(two_sided_total(point, end, Unit::Sends)),
            shown(found.and_then(|e| e.network_ns)),
            shown(found.and_then(|e| e.turnaround_ns)),
            found.map_or_else(|| "–".into(), |e| format!("{:.2}", e.confidence)),
            remark(point.saturated, truth.valid, &truth.why_invalid),
        ]);
    }
    table
}
