//! The table and the figure.

use super::load::Load;
use super::summary::{BUDGET, EndRow, Row, Summary};
use super::{End, Point};
use crate::engine::color::{Color, NAGLE, NODELAY};
use crate::engine::figure::{Marker, Stroke};
use crate::engine::report::Part;
use crate::engine::text::{maybe_duration, name, percent, thousands};
use crate::engine::{Axis, Figure, Report, Table, Unit};

type EndOf = fn(&Point) -> Option<&End>;

/// Coverage of loads that are no part of a line.
const SINGLE: (Stroke, Marker) = (Stroke::Nothing, Marker::Triangle);
/// A share that is drawn at least.
const LEAST: f64 = 1e-4;

pub fn report(points: &[Point], summary: &Summary) -> Report {
    let beyond = match &summary.beyond_budget[..] {
        [] => String::new(),
        ends => format!(" Beyond it: {}.", ends.join(", ")),
    };
    let doubts = points.iter().filter(|p| !p.truth.why_invalid.is_empty());
    let doubts = doubts.map(|p| format!("{}: {}", p.load.name(), p.truth.why_invalid.join(", ")));
    let doubts: Vec<_> = doubts.collect();
    let mut report = Report::new(
        "Budget: what watching takes, and how true it stays",
        "An agent at each end with the default budget of 1 % of a CPU, under loads from 10 requests/s \
         to as many as two CPUs carry, with ten thousand connections, and with clients that people use.",
    )
    .heading("Summary")
    .text(format!(
        "That each agent's mean cost stays within the budget (at most 1.1 %, with what measuring adds) \
         is **{}**.{beyond}",
        summary.within_budget.name()
    ))
    .figure(figure(points))
    .heading("At the client")
    .table(table(points, summary, |p| p.client.as_ref(), |row| &row.client))
    .text(
        "Errors are of the estimate against what the client says, less 1. Cost is the agent's own \
         word: its process and its programs in the kernel, mean and worst line. Agent CPU is its \
         process alone, by the kernel.",
    )
    .heading("At the server")
    .table(table(points, summary, |p| p.server.as_ref(), |row| &row.server))
    .text("A server's agent does not see the client's own part of a request's time.");
    if !doubts.is_empty() {
        report = report
            .heading("Clients that do not trust themselves")
            .part(Part::List(doubts));
    }
    report
}

fn table(points: &[Point], summary: &Summary, end: EndOf, row: fn(&Row) -> &EndRow) -> Table {
    let rows = points.iter().filter_map(|point| {
        let found = summary.per_load.get(&point.load.name())?;
        Some((point, end(point)?, row(found)))
    });
    type Cells<'a> = (&'a Point, &'a End, &'a EndRow);
    Table::of(
        rows,
        &[
            ("load", &|(p, ..): &Cells| p.load.name()),
            ("requests/s", &|(p, ..)| thousands(p.truth.rps)),
            ("cost", &|(_, _, r)| percent(Some(r.cost))),
            ("worst", &|(_, _, r)| percent(Some(r.cost_max))),
            ("agent CPU", &|(_, _, r)| percent(r.agent_cpu)),
            ("coverage", &|(_, _, r)| percent(Some(r.coverage))),
            ("estimator", &|(_, _, r)| name(r.estimator)),
            ("throughput error", &|(_, _, r)| percent(r.throughput_error)),
            ("mean, client says", &|(p, ..)| {
                maybe_duration(p.truth.mean_ns)
            }),
            ("estimated", &|(_, e, _)| maybe_duration(e.mean_ns)),
            ("error", &|(_, _, r)| percent(r.latency_error)),
            ("p50, client says", &|(p, ..)| {
                maybe_duration(p.truth.p50_ns)
            }),
            ("error", &|(_, _, r)| percent(r.p50_error)),
            ("p99, client says", &|(p, ..)| {
                maybe_duration(p.truth.p99_ns)
            }),
            ("estimated", &|(_, e, _)| maybe_duration(e.p99_ns)),
            ("error", &|(_, _, r)| percent(r.p99_error)),
        ],
    )
}

fn figure(points: &[Point]) -> Figure {
    let x = Axis::new("requests/s", Unit::Rate).log();
    let y = Axis::new("share", Unit::Percent).log().reaching(1.0);
    let figure = Figure::new(
        "budget.svg",
        "Cost and coverage over rate",
        x,
        y.reaching(1e-3),
    );
    let figure = figure.level("budget", BUDGET);
    let ends: [(&str, Color, EndOf); 2] = [
        ("client", NODELAY, |p| p.client.as_ref()),
        ("server", NAGLE, |p| p.server.as_ref()),
    ];
    ends.into_iter()
        .fold(figure, |figure, (end, color, of)| {
            let drawn = |open: bool, value: fn(&End) -> f64| -> Vec<(f64, f64)> {
                let these = points
                    .iter()
                    .filter(|p| matches!(p.load, Load::Rate(_)) == open);
                these
                    .filter_map(|p| Some((p.truth.rps, value(of(p)?).max(LEAST))))
                    .collect()
            };
            figure
                .measured(format!("cost, {end}"), color, drawn(true, |e| e.cost))
                .estimated(
                    format!("coverage, {end}"),
                    color,
                    drawn(true, |e| e.coverage),
                )
                .dots("", color, drawn(false, |e| e.cost))
                .with_line("", color, SINGLE, vec![drawn(false, |e| e.coverage)])
        })
        .note("Lines: the open loop. Single marks: other loads.")
}
