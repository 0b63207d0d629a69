//! The picture and the tables.

use batchwise_core::sense::report::Side;

use super::summary::{Bin, EndRow, Errors, Summary};
use super::{Point, Seen};
use crate::engine::color::{Color, NAGLE, NODELAY};
use crate::engine::figure::{Marker, Stroke};
use crate::engine::text::{maybe_duration, name, percent, ratio, thousands};
use crate::engine::{Axis, Figure, Report, Table, Unit};
use crate::tails::Budget;

/// In the picture.
const ENDS: [(Side, Color); 2] = [(Side::Client, NODELAY), (Side::Server, NAGLE)];

pub fn report(points: &[Point], summary: &Summary) -> Report {
    let mut report = Report::new(
        "Applications: is what `watch` says true?",
        "Real servers with their own clients, and patterns that such have, a CPU each. A `watch` at each end, \
         alone, beside what the client logs of its requests.",
    )
    .heading("Summary");
    for (budget, lines) in &summary.by_cost {
        report = report.text(format!(
            "**{}**: {} lines have a number, {} have none and say why. {} claim a confidence of 0.7 or more: **{}** of \
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
    report = report.figure(figure(points)).text(
        "A client's log holds its own time between a read and the note of it, and a server does not see how long its client waits \
         to read. So where connections take turns a capture at the client's link is a second truth: from the first segment of a request to the \
         last of its response. What either end says should lie between the two.",
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
        report = report.heading(title).table(table(points, budget));
    }
    report.left_out(&summary.missing)
}

fn table(points: &[Point], budget: Budget) -> Table {
    let own = points.iter().filter(|point| point.budget == budget);
    let rows = own.flat_map(|point| {
        let ends = point.ends.iter();
        ends.map(move |(side, seen)| (point, *side, EndRow::of(point, seen), seen))
    });
    type Cells<'a> = (&'a Point, Side, EndRow, &'a Seen);
    Table::of(
        rows,
        &[
            ("application / load", &|(p, ..): &Cells| p.name()),
            ("end", &|(_, side, ..)| name(side)),
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
            ("confidence", &|(.., e, _)| ratio(Some(e.confidence))),
            ("cost", &|(.., e, _)| percent(Some(e.cost))),
            ("why none", &|(.., e, _)| {
                Vec::from_iter(e.null.iter().cloned()).join(", ")
            }),
        ],
    )
}

/// A row an application, a mark a load.
fn figure(points: &[Point]) -> Figure {
    let mut names: Vec<_> = points.iter().map(|p| p.application.clone()).collect();
    names.dedup();
    names.reverse();
    let x =
        Axis::new("error of the mean, against the client's log", Unit::Percent).between(-1.0, 1.0);
    let y = Axis::names("", names.clone());
    let mut figure = Figure::new("errors.svg", "Errors by application", x, y)
        .shade("within 15 %", &[(-0.15, 0.15)])
        .mark("", 0.0, true);
    for (budget, marker, offset) in [
        (Budget::Off, Marker::Dot, 0.18),
        (Budget::Default, Marker::Triangle, -0.18),
    ] {
        for (side, color) in ENDS {
            let own = points.iter().filter(|p| p.budget == budget);
            let marks = own.filter_map(|p| {
                let error = Errors::of(&p.ends.get(&side)?.end, &p.log).mean_error?;
                let at = names.iter().position(|name| *name == p.application)?;
                Some((error, at as f64 + offset))
            });
            let label = format!("{}, {}", name(side), budget.label());
            let dots = (Stroke::Nothing, marker);
            figure = figure.with_line(label, color, dots, vec![marks.collect()]);
        }
    }
    figure.note("What is further off is at the edge.")
}
