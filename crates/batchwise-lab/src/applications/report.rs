//! The picture and the tables.

use super::summary::{Against, Bin, EndRow, Ends, Row, Summary};
use super::{Point, Seen};
use crate::engine::color::{Color, NAGLE, NODELAY};
use crate::engine::figure::{Marker, Stroke};
use crate::engine::report::Part;
use crate::engine::text::{maybe_duration, name, percent, ratio, thousands};
use crate::engine::{Axis, Figure, Report, Table, Unit};
use crate::tails::Budget;

type EndOf = fn(&Ends) -> Option<&EndRow>;
type SeenOf = fn(&Point) -> Option<&Seen>;

/// The ends, by name and colour.
const ENDS: [(&str, Color, EndOf, SeenOf); 2] = [
    (
        "client",
        NODELAY,
        |ends| ends.client.as_ref(),
        |p| p.client.as_ref(),
    ),
    (
        "server",
        NAGLE,
        |ends| ends.server.as_ref(),
        |p| p.server.as_ref(),
    ),
];

pub fn report(points: &[Point], summary: &Summary) -> Report {
    let mut report = Report::new(
        "Applications: is what `watch` says true?",
        "Real servers with their own clients, and patterns that such have, a CPU each. A `watch` at each end, \
         alone, beside what the client logs of its requests.",
    )
    .heading("Summary");
    for (budget, lines) in &summary.by_cost {
        report = report.text(format!(
            "With {}: {} lines have a number, {} have none and say why. {} claim a confidence of 0.7 or more: **{}** of \
             them are within 15 % of the mean that the client logged, **{}** where a capture may stand for the log. The error of \
             the median line is {}, of the worst {}. Watching took {} of a CPU at the median end, {} at the worst.",
            budget.label(),
            lines.lines,
            lines.without_number,
            lines.confident_lines,
            percent(lines.confident_within_15),
            percent(lines.confident_within_15_captured),
            percent(lines.median_error),
            percent(lines.worst_error),
            percent(lines.cost),
            percent(lines.cost_max),
        ));
    }
    report = report.figure(figure(points, summary)).text(
        "A server alone does not see how long its client waits to read: its errors are against the client's log, too. \
         A client's log holds its own time between a read and the note of it. Where that matters and connections take turns, a capture at \
         the client's link is a second truth (`captured`): from the first segment of a request to the last of its response. The read \
         lies between the two.",
    );
    let bins = summary.by_cost.iter().flat_map(|(budget, lines)| {
        let of = |(i, bin)| (*budget, bin, lines.calibration.get(i + 1));
        lines.calibration.iter().enumerate().map(of)
    });
    type Row<'a> = (Budget, &'a Bin, Option<&'a Bin>);
    report = report
        .heading("Are lines as true as they claim?")
        .table(Table::of(
            bins,
            &[
                ("counted", &|(budget, ..): &Row| budget.label().into()),
                ("confidence", &|(_, bin, next)| {
                    format!("{} – {}", bin.from, next.map_or(1.0, |next| next.from))
                }),
                ("lines", &|(_, bin, _)| bin.lines.to_string()),
                ("within 15 % of the log", &|(_, bin, _)| {
                    percent(bin.within_15)
                }),
                ("of log or capture", &|(_, bin, _)| {
                    percent(bin.within_15_captured)
                }),
            ],
        ));
    for budget in Budget::ALL {
        let title = format!("Each load, {}", budget.label());
        report = report.heading(title).table(table(points, summary, budget));
    }
    if !summary.missing.is_empty() {
        let missing = summary.missing.iter();
        report = report.heading("Left out").part(Part::List(
            missing
                .map(|(name, why)| format!("`{name}`: {why}"))
                .collect(),
        ));
    }
    report
}

fn of(row: &Row, budget: Budget) -> &Ends {
    match budget {
        Budget::Off => &row.off,
        Budget::Default => &row.default,
    }
}

fn table(points: &[Point], summary: &Summary, budget: Budget) -> Table {
    let own = points.iter().filter(|point| point.budget == budget);
    let rows = own.flat_map(|point| {
        ENDS.into_iter()
            .filter_map(move |(end, _, row_of, seen_of)| {
                let row = &summary.per_application[&point.name()];
                Some((
                    point,
                    end,
                    row.truth,
                    row_of(of(row, budget))?,
                    seen_of(point)?,
                ))
            })
    });
    type Cells<'a> = (&'a Point, &'a str, Against, &'a EndRow, &'a Seen);
    Table::of(
        rows,
        &[
            ("application / load", &|(p, ..): &Cells| p.name()),
            ("end", &|(_, end, ..)| (*end).into()),
            ("requests/s", &|(p, ..)| thousands(p.log.rps)),
            ("mean, logged", &|(p, ..)| maybe_duration(p.log.mean_ns)),
            ("captured", &|(p, ..)| {
                maybe_duration(p.captured.as_ref().and_then(|c| c.mean_ns))
            }),
            ("`watch`", &|(.., s)| maybe_duration(s.end.mean_ns)),
            ("by", &|(.., s)| name(s.end.estimator)),
            ("error", &|(.., e, _)| percent(e.errors.mean_error)),
            ("p50", &|(.., e, _)| percent(e.errors.p50_error)),
            ("p99", &|(.., e, _)| percent(e.errors.p99_error)),
            ("of the capture", &|(.., e, _)| {
                percent(e.captured.as_ref().and_then(|c| c.mean_error))
            }),
            ("truth", &|(_, _, truth, ..)| name(truth)),
            ("confidence", &|(.., e, _)| ratio(Some(e.confidence))),
            ("cost", &|(.., e, _)| percent(Some(e.cost))),
            ("why none", &|(.., e, _)| {
                Vec::from_iter(e.null.iter().cloned()).join(", ")
            }),
        ],
    )
}

/// A row an application, a mark a load.
fn figure(points: &[Point], summary: &Summary) -> Figure {
    let mut names: Vec<_> = points.iter().map(|p| p.application.clone()).collect();
    names.dedup();
    names.reverse();
    let x =
        Axis::new("error of the mean, against the client's log", Unit::Percent).between(-1.0, 1.0);
    let y = Axis::names("", names.clone());
    let mut figure = Figure::new("errors.svg", "Errors by application", x, y)
        .shade("within 15 %", &[(-0.15, 0.15)])
        .mark("", 0.0, true);
    for (budget, marker, row_offset) in [
        (Budget::Off, Marker::Dot, 0.18),
        (Budget::Default, Marker::Triangle, -0.18),
    ] {
        for (end, color, row_of, _) in ENDS {
            let marks = points
                .iter()
                .filter(|p| p.budget == budget)
                .filter_map(|p| {
                    let row = row_of(of(&summary.per_application[&p.name()], budget))?;
                    let at = names.iter().position(|name| *name == p.application)?;
                    Some((row.errors.mean_error?, at as f64 + row_offset))
                });
            let label = format!("{end}, {}", budget.label());
            figure = figure.with_line(
                label,
                color,
                (Stroke::Nothing, marker),
                vec![marks.collect()],
            );
        }
    }
    figure.note("What is further off is at the edge.")
}
