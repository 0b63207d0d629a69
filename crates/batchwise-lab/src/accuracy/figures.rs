//! Figures and report of the accuracy experiment.

use batchwise_core::sense::report::{Side, Unit};

use super::Point;
use super::plan::{Cost, WORKLOADS};
use super::summary::*;
use crate::engine::color::{Color, NAGLE, NODELAY};
use crate::engine::figure::{Bar, Group};
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::report::Part;
use crate::engine::text::{percent, thousands};
use crate::engine::{Axis, Figure, Report, Table, Unit as AxisUnit};
use crate::ladder::{self, Workload};
use batchwise_testbed::window::PARTS;

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
         load answered, at most 5 ms on average from the intended time, no failed request. Lines of a \
         watcher in which the host took a CPU away are cut from both. The \
         cutoff is the lowest load from which on Nagle's algorithm gives the lower latency at every \
         higher load.",
    )
    .table(verdicts(
        ["workload", "estimated at"],
        summary.per_workload.iter().map(|(name, found)| {
            let names = [name.clone(), name_of(found.end)];
            (names, &found.headline)
        }),
    ))
    .heading("At the client, with any estimator")
    .text(
        "With everything counted (`off`) and with the default budget, by workload. `in the interval`: \
         share of the points whose measured mean is within 1.96 standard errors of the estimate.",
    )
    .table(at_client(summary));
    for (_, workload) in &WORKLOADS {
        let Some(result) = summary.per_workload.get(workload.name) else {
            continue;
        };
        let name = workload.name;
        let own = points
            .iter()
            .filter(|p| p.workload == name && p.cost == Cost::Off);
        let own: Vec<_> = own.collect();
        // Bytes where the paper shows that they are the wrong unit.
        let units = match name.starts_with("95:5") {
            true => &[Unit::Sends, Unit::Bytes][..],
            false => &[Unit::Sends],
        };
        report = report.heading(format!("Workload {name}"));
        for &unit in units {
            report = report.figure(latency_plot(workload, &own, result, unit));
        }
        let all = result.by_end_and_unit.iter().flat_map(|(end, by_unit)| {
            let of_unit = by_unit.iter();
            of_unit.map(move |(unit, found)| ([name_of(unit), name_of(end)], found))
        });
        let all = verdicts(["unit", "end"], all);
        report = report
            .figure(stage_plot(workload, &own, result.end))
            .part(Part::Details(
                "By unit and end".into(),
                vec![Part::Table(all)],
            ));
    }
    report
}

/// With columns of these names, and then those of the errors.
fn verdicts<'a>(names: [&str; 2], rows: impl Iterator<Item = ([String; 2], &'a Errors)>) -> Table {
    let rps = |at: Option<u64>| at.map_or_else(|| "none".into(), |r| thousands(r as f64));
    let interval = |v: &Errors| match v.median_abs_rel_error_interval {
        Some([low, high]) => format!("{} – {}", percent(Some(low)), percent(Some(high))),
        None => format!("undecided: fewer than {ENOUGH_PAIRS} points"),
    };
    let same = |v: &Errors| if v.cutoff_matches { "yes" } else { "no" };
    Table::of(
        rows,
        &[
            (names[0], &|(names, _)| names[0].clone()),
            (names[1], &|(names, _)| names[1].clone()),
            ("median error", &|(_, v)| percent(v.median_abs_rel_error)),
            ("95 % interval", &|(_, v)| interval(v)),
            ("p90 error", &|(_, v)| percent(v.p90_abs_rel_error)),
            ("bias", &|(_, v)| percent(v.median_signed_rel_error)),
            ("points", &|(_, v)| v.points.to_string()),
            ("missing", &|(_, v)| v.missing.to_string()),
            ("cutoff measured", &|(_, v)| rps(v.measured_cutoff_rps)),
            ("estimated", &|(_, v)| rps(v.estimated_cutoff_rps)),
            ("same", &|(_, v)| same(v).into()),
        ],
    )
}

/// A unit or an end.
fn name_of(it: impl std::fmt::Debug) -> String {
    format!("{it:?}").to_lowercase()
}

/// An arm's latency at a step.
type Pick = fn(&Arms) -> Option<f64>;

fn latency_plot(
    workload: &Workload,
    points: &[&Point],
    result: &WorkloadSummary,
    unit: Unit,
) -> Figure {
    let measured = arms(points, |p| Some(p.truth_ns(result.end)));
    let estimated = arms(points, |p| two_sided_total(p, result.end, unit));
    let line = |arms: &[Arms], pick: Pick| {
        let known = |at: &Arms| Some((at.step_rps as f64, pick(at).filter(|y| y.is_finite())?));
        arms.iter().filter_map(known).collect::<Vec<_>>()
    };
    let (by, end) = (name_of(unit), name_of(result.end));
    let (name, file) = (workload.name, workload.file_name());
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

fn stage_plot(workload: &Workload, points: &[&Point], end: Side) -> Figure {
    let group = |step: u64| {
        let bar = |nodelay: bool| {
            let at = |p: &&&Point| p.step_rps == step && p.nodelay == nodelay && !p.saturated;
            points.iter().filter(at).find_map(|p| stage_bar(p, end))
        };
        Group {
            label: thousands(step as f64),
            bars: vec![bar(false), bar(true)],
        }
    };
    let groups: Vec<_> = ladder::steps(points).into_iter().map(group).collect();
    let by = name_of(end);
    let (name, file) = (workload.name, workload.file_name());
    let title = format!("{name}: where the time goes, counted in sends, {by}'s end");
    let latency = Axis::new("mean latency", AxisUnit::Duration).reaching(10_000.0);
    let axes = ("offered load, requests/s", latency);
    let (file, measured) = (format!("stages-{file}.svg"), "measured, from the send");
    Figure::stacked_bars(file, title, axes, &PARTS, measured, &groups)
        .note("Left bar: Nagle on; right: off")
}

fn stage_bar(point: &Point, end: Side) -> Option<Bar> {
    let estimate = estimate(point, end, Unit::Sends)?;
    Some(Bar {
        parts: estimate.parts().into_iter().collect::<Option<_>>()?,
        measured: Some(point.truth_ns(end)),
    })
}

fn at_client(summary: &Summary) -> Table {
    let by_cost = summary
        .by_cost
        .iter()
        .map(|(cost, found)| (name_of(cost), found));
    let by_workload = summary
        .at_budget
        .iter()
        .map(|(name, found)| (format!("budget, {name}"), found));
    let share = |share: Option<f64>| percent(share);
    Table::of(
        by_cost.chain(by_workload).collect::<Vec<_>>().iter(),
        &[
            ("watchers", &|(name, _)| name.clone()),
            ("points", &|(_, a)| (a.points - a.missing).to_string()),
            ("two-sided", &|(_, a)| share(a.two_sided)),
            ("median error", &|(_, a)| share(a.median_abs_rel_error)),
            ("90th percentile", &|(_, a)| share(a.p90_abs_rel_error)),
            ("bias", &|(_, a)| share(a.median_signed_rel_error)),
            ("time without stalls", &|(_, a)| share(a.undisturbed)),
            ("in the interval", &|(_, a)| share(a.covered)),
        ],
    )
}
