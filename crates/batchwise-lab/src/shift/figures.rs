//! Plots and report of `shift`.

use anyhow::Result;
use maud::{Markup, html};

use super::plan::Schedule;
use super::summary::Summary;
use super::{Point, Runs};
use crate::arm::Arm;
use crate::decisions::{events, nagle_times};
use crate::frame::Frame;
use crate::plot::{maybe_duration, thousands};
use crate::report::{Table, figure, ratio};
use crate::timeplot::{Curve, Height, Span, TimePlot};

/// Writes the plots and the report.
pub(super) fn write(
    frame: &Frame<'_>,
    complete: bool,
    runs: &Runs,
    summary: &Summary,
) -> Result<()> {
    let mut figures = Vec::new();
    for schedule in &runs.schedules {
        let first = |p: &&Point| p.schedule == schedule.name && p.round == 0;
        let points: Vec<_> = runs.points.iter().filter(first).collect();
        let svg = over_time(schedule, &points)?;
        let name = format!("latency-{}.svg", schedule.name);
        frame.context.output.write(&name, &svg)?;
        figures.push(svg);
    }
    let body = html! {
        h2 { "Summary" }
        (whole_runs(summary))
        p {
            "Mean latency from the intended send time over the whole run, medians over rounds. The \
             ratio is that of the better static arm over batchwise's, within rounds: above 1, \
             batchwise was better than both."
        }
        h3 { "After each change" }
        (changes(runs, summary))
        p {
            "“Reachable” is what the better static arm has alone, at that load, on a connection of \
             its own. Settled: from then on to the end of the phase, the latency of intervals of \
             100 ms (the median of three) stays within 1.25 times that. Agents start anew for each \
             run."
        }
        @for svg in &figures { (figure(svg)) }
        p { "First round. Triangles: what the client's agent did." }
    };
    frame.write_report(
        complete,
        "Shift: load and value size change under way",
        "One connection; SETs of 64 B at loads that TCP_NODELAY cannot carry, then of 4 KiB, where \
         Nagle's algorithm costs several times the latency, and back.",
        &body,
    )
}

fn whole_runs(summary: &Summary) -> Markup {
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
            ratio(found.vs_best_static),
        ]);
    }
    table.html()
}

fn changes(runs: &Runs, summary: &Summary) -> Markup {
    let mut table = Table::new([
        "change to",
        "schedule",
        "better arm",
        "reachable",
        "settled after",
        "rounds that never settled",
    ]);
    for schedule in &runs.schedules {
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
    table.html()
}

fn over_time(schedule: &Schedule, points: &[&Point]) -> Result<String> {
    let curve = |point: &&Point| {
        let zero = point.report.measured_from_ts_ns;
        let at = |ts: u64| ts.saturating_sub(zero) as f64 / 1e9;
        let known = |i: &batchwise_testbed::load::LoadInterval| {
            Some((at(i.ts_ns), i.mean_from_intended_ns?))
        };
        Curve {
            label: point.arm.label().into(),
            color: point.arm.color(),
            dashed: false,
            pieces: vec![point.intervals.iter().filter_map(known).collect()],
        }
    };
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
    let spans = spans.collect();
    let tuned = points.iter().find(|p| p.arm == Arm::Batchwise);
    let (shaded, events) = tuned.map_or((None, Vec::new()), |p| {
        let (zero, end) = (p.report.measured_from_ts_ns, p.report.measured_to_ts_ns);
        let times = nagle_times(&p.decisions, zero, end);
        let shaded = Some(("batchwise: Nagle", times));
        (shaded, events(&p.decisions, zero, end))
    });
    TimePlot {
        title: &format!("Mean latency over time: {}", schedule.name),
        height: Height::Latency,
        curves: points.iter().map(curve).collect(),
        spans,
        shaded,
        events,
        level: None,
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::super::plan::Extent;
    use super::super::summary::tests::{interval, run};
    use super::*;
    use crate::decisions::samples::decision;

    #[test]
    fn the_plot_shows_all_arms_the_phases_and_the_decisions() {
        let intervals = || (1..150).map(|t| interval(t, 0, 30.0)).collect();
        let mut points: Vec<_> = Arm::ALL.map(|arm| run(arm, 0, 30.0, intervals())).into();
        points[2].decisions = vec![decision(1.0, "probe", "on"), decision(1.1, "adopt", "on")];
        let points: Vec<_> = points.iter().collect();
        let svg = over_time(&Extent::new(true).schedules[0], &points).unwrap();
        for part in ["TCP_NODELAY", "batchwise: Nagle", "4 KiB", "64 B", "adopt"] {
            assert!(svg.contains(part), "{part}");
        }
    }
}
