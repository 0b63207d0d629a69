//! Plots and report of `shift`.

use super::Point;
use super::plan::Schedule;
use super::summary::{ScheduleSummary, Settle, Summary};
use crate::arm::Arm;
use crate::decisions;
use crate::engine::figure::{Layer, Span};
use crate::engine::text::{duration, maybe_duration, thousands};
use crate::engine::{Axis, Figure, Ratio, Report, Table};
use batchwise_testbed::load::LoadInterval;

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
         ratio is that of the better static arm over batchwise's, within rounds, with a 95 % \
         bootstrap interval: above 1, batchwise was better than both. Fewer than 15 rounds decide \
         nothing.",
    )
    .subheading("After each change")
    .table(changes(schedules, summary))
    .text(
        "“Reachable” is what the better static arm has alone, at that load, on a connection of its \
         own. Settled: from then on to the end of the phase, the latency of intervals of 50 ms (the \
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
    type Row<'a> = (&'a &'static str, &'a ScheduleSummary);
    let mean = |row: &Row, arm| maybe_duration(row.1.mean_ns.get(&arm).copied());
    Table::of(
        &summary.per_schedule,
        &[
            ("schedule", &|row| (*row.0).into()),
            ("TCP_NODELAY", &|row| mean(row, Arm::Nodelay)),
            ("Nagle", &|row| mean(row, Arm::Nagle)),
            ("batchwise", &|row| mean(row, Arm::Batchwise)),
            ("better static arm / batchwise", &|row| {
                Ratio::text(row.1.interval.as_ref())
            }),
            ("at least as good", &|row| row.1.verdict.name().into()),
        ],
    )
}

fn changes(schedules: &[Schedule], summary: &Summary) -> Table {
    let of_schedule = |schedule: &'_ Schedule| {
        let found = summary.per_schedule.get(schedule.name);
        let changes = found.iter().flat_map(|s| &s.settle);
        let named = |change: &Settle| (schedule.phases[change.phase], *change);
        changes.map(named).collect::<Vec<_>>()
    };
    Table::of(
        schedules.iter().flat_map(of_schedule),
        &[
            ("change to", &|(phase, change)| {
                let (rate, size) = (thousands(phase.rate as f64), phase.value_size);
                format!("{}: {rate}/s of {size} B", change.phase + 1)
            }),
            ("better arm", &|(_, change)| change.better.label().into()),
            ("reachable", &|(_, change)| duration(change.reachable_ns)),
            ("settled after", &|(_, c)| format!("{:.1} s", c.settle_s)),
            ("rounds that never settled", &|(_, change)| {
                format!("{} of {}", change.never, change.rounds)
            }),
        ],
    )
}

pub(super) fn over_time(schedule: &Schedule, points: &[&Point]) -> Figure {
    let title = format!("Mean latency over time: {}", schedule.name);
    let file = format!("latency-{}.svg", schedule.name);
    let mut figure = Figure::over_time(file, title, Axis::latency());
    if let Some(tuned) = points.iter().find(|p| p.arm == Arm::Batchwise) {
        let (zero, end) = (
            tuned.report.measured_from_ts_ns,
            tuned.report.measured_to_ts_ns,
        );
        figure = decisions::draw(figure, "batchwise: Nagle", &tuned.decisions, zero, end);
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
    figure.layer(Layer::Spans(spans.collect()))
}
