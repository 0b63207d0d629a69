//! Plots and report of `shift`.

use super::Point;
use super::plan::Schedule;
use super::summary::Summary;
use crate::arm::Arm;
use crate::decisions::{events, nagle_times};
use crate::engine::figure::{Layer, Span};
use crate::engine::text::{maybe_duration, thousands};
use crate::engine::{Axis, Figure, Ratio, Report, Table};
use batchwise_testbed::load::LoadInterval;

/// The report.
pub fn report(schedules: &[Schedule], points: &[Point], summary: &Summary) -> Report {
    let mut report = Report::new(
        "Shift: load and value size change under way",
        "One connection; SETs of 64 B at loads that TCP_NODELAY cannot carry, then of 4 KiB, where \
         Nagle's algorithm costs several times the latency, and back.",
    )
    .heading("Summary")
    .table(whole_runs(summary))
    .text(
        "Mean latency from the intended send time over the whole run, medians over rounds. The \
         ratio is that of the better static arm over batchwise's, within rounds: above 1, batchwise \
         was better than both.",
    )
    .subheading("After each change")
    .table(changes(schedules, summary))
    .text(
        "“Reachable” is what the better static arm has alone, at that load, on a connection of its \
         own. Settled: from then on to the end of the phase, the latency of intervals of 100 ms (the \
         median of three) stays within 1.25 times that. Agents start anew for each run.",
    );
    for schedule in schedules {
        let first = |p: &&Point| p.schedule == schedule.name && p.round == 0;
        let points: Vec<_> = points.iter().filter(first).collect();
        report = report.figure(over_time(schedule, &points));
    }
    report.text("First round. Triangles: what the client's agent did.")
}

fn whole_runs(summary: &Summary) -> Table {
    let mut table = Table::new([
        "schedule",
        "TCP_NODELAY",
        "Nagle",
        "batchwise",
        "better static arm",
        "ratio",
    ]);
    for (name, found) in &summary.per_schedule {
        let mean = |arm| maybe_duration(found.mean_ns.get(&arm).copied());
        table.row([
            (*name).into(),
            mean(Arm::Nodelay),
            mean(Arm::Nagle),
            mean(Arm::Batchwise),
            found.better.map_or("–", Arm::label).into(),
            Ratio::text(found.interval.as_ref()),
        ]);
    }
    table
}

fn changes(schedules: &[Schedule], summary: &Summary) -> Table {
    let mut table = Table::new([
        "change to",
        "schedule",
        "better arm",
        "reachable",
        "settled after",
        "rounds that never settled",
    ]);
    for schedule in schedules {
        let found = summary.per_schedule.get(schedule.name);
        for change in found.iter().flat_map(|s| &s.settle) {
            let Some(phase) = schedule.phases.get(change.phase) else {
                continue;
            };
            let (rate, size) = (thousands(phase.rate as f64), phase.value_size);
            table.row([
                format!("{}: {rate}/s of {size} B", change.phase + 1),
                schedule.name.into(),
                change.better.label().into(),
                maybe_duration(Some(change.reachable_ns)),
                format!("{:.1} s", change.settle_s),
                format!("{} of {}", change.never, change.rounds),
            ]);
        }
    }
    table
}

pub(super) fn over_time(schedule: &Schedule, points: &[&Point]) -> Figure {
    let title = format!("Mean latency over time: {}", schedule.name);
    let file = format!("latency-{}.svg", schedule.name);
    let mut figure = Figure::over_time(file, title, Axis::latency());
    let tuned = points.iter().find(|p| p.arm == Arm::Batchwise);
    let span = |p: &&&Point| (p.report.measured_from_ts_ns, p.report.measured_to_ts_ns);
    if let Some((p, (zero, end))) = tuned.map(|p| (p, span(&p))) {
        figure = figure.layer(Layer::Shade {
            label: "batchwise: Nagle".into(),
            times: nagle_times(&p.decisions, zero, end),
        });
    }
    for point in points {
        let zero = point.report.measured_from_ts_ns;
        let at = |ts: u64| ts.saturating_sub(zero) as f64 / 1e9;
        let known = |i: &LoadInterval| Some((at(i.ts_ns), i.mean_from_intended_ns?));
        let line = point.intervals.iter().filter_map(known).collect();
        figure = figure.line(point.arm.label(), point.arm.color(), line);
    }
    let mut from = 0.0;
    let spans = schedule.phases.iter().map(|phase| {
        let to = from + phase.duration.as_secs_f64();
        let name = match phase.value_size {
            size if size >= 1024 => format!("{} KiB", size / 1024),
            size => format!("{size} B"),
        };
        let span = Span { from, to, name };
        from = to;
        span
    });
    figure = figure.layer(Layer::Spans(spans.collect()));
    if let Some((p, (zero, end))) = tuned.map(|p| (p, span(&p))) {
        for (label, color, at) in events(&p.decisions, zero, end) {
            figure = figure.layer(Layer::Events { label, color, at });
        }
    }
    figure
}
