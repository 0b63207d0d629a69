//! Table, figures and report of the balance-policies experiment.

use super::deciders::Kind;
use super::{INTERVAL, More, Point, Summary};
use crate::engine::color::{BATCHWISE, Color, GREY, NAGLE, NODELAY};
use crate::engine::text::{name, percent};
use crate::engine::{Axis, Figure, Report, Results, Table, Unit};
use crate::stats::Spread;
use clap::ValueEnum as _;

pub(super) fn report(results: &Results<Point, More>, summary: &Summary) -> Report {
    let table = table(&results.points);
    let reduction = |kind| {
        let mut all = summary.p99_reduction.iter();
        percent(all.find(|(k, _)| *k == kind).map(|(_, value)| *value))
    };
    let More {
        length_s, seeds, ..
    } = results.more;
    Report::new(
        "Balance policies: connections in virtual time",
        "Clients open connections, ask for pages of requests on them, and close them; servers \
         share their CPU among the requests that they have. Only new connections are steered. There \
         is no network and no kernel in it; the controller and the tables are those of `batchwise \
         balance`.",
    )
    .heading("99th percentile over that of static weights")
    .text(format!(
        "Where servers' speeds follow traces, the 99th percentile is lower by **{}** with batchwise, \
         by **{}** with two choices alone, and by {} where the least loaded server is known; means \
         over loads.",
        reduction(Kind::Latency),
        reduction(Kind::TwoChoices),
        reduction(Kind::Oracle),
    ))
    .figure(ratios(&results.points))
    .text(format!(
        "Median of pairs with the same seed: {seeds} seeds, {length_s:.0} s each. “Least loaded” \
         knows what no balancer sees."
    ))
    .heading("One server becomes sick: its share of the table")
    .figure(sick_shares(&results.more))
    .heading("All numbers")
    .file("table.md", table.markdown())
    .table(table)
}

fn table(points: &[Point]) -> Table {
    let policy = |p: &Point| match p.interval_s == INTERVAL {
        true => name(p.policy),
        false => format!("{}, each {} s", name(p.policy), p.interval_s),
    };
    let p99 = |p: &Point| {
        let Spread { q1, median, q3 } = p.p99_ms;
        format!("{median:.0} ({q1:.0}–{q3:.0})")
    };
    let reaction = |s: f64| format!("{s:.1}");
    Table::of(
        points,
        &[
            ("scenario", &|p| p.scenario.clone()),
            ("policy", &|p| policy(p)),
            ("p50 ms", &|p| format!("{:.1}", p.p50_ms)),
            ("p99 ms (quartiles)", &|p| p99(p)),
            ("p99 against static", &|p| {
                format!("{:+.0} %", 0.0 - 100.0 * p.p99_reduction)
            }),
            ("errors", &|p| format!("{:.1} %", 100.0 * p.failed)),
            ("reaction s", &|p| {
                p.reaction_s.map_or_else(|| "–".into(), reaction)
            }),
            ("moved per decision", &|p| {
                format!("{:.1} %", 100.0 * p.swing)
            }),
        ],
    )
}

fn color(policy: Kind) -> Color {
    match policy {
        Kind::Paper => NAGLE,
        Kind::Latency => BATCHWISE,
        Kind::Oracle => NODELAY,
        Kind::Weights => Color(226, 168, 76),
        Kind::TwoChoices => Color(164, 118, 168),
        Kind::Random | Kind::Static => GREY,
    }
}

/// A row a scenario, a dot a policy.
fn ratios(points: &[Point]) -> Figure {
    let own = points.iter().filter(|p| p.interval_s == INTERVAL);
    let mut scenarios: Vec<&str> = own.clone().map(|p| p.scenario.as_str()).collect();
    scenarios.dedup();
    scenarios.reverse(); // from top to bottom
    let row = |p: &Point| scenarios.iter().position(|name| *name == p.scenario);
    let names = scenarios.iter().map(|name| (*name).to_owned());
    let x = Axis::new("p99 / p99 with static weights", Unit::Number(2));
    let x = x.log().between(0.03, 10.0);
    let title = "p99 over that of static weights";
    let mut figure =
        Figure::new("p99.svg", title, x, Axis::names("", names)).mark("as static", 1.0, true);
    for &kind in Kind::value_variants()
        .iter()
        .filter(|k| **k != Kind::Static)
    {
        let own = own.clone().filter(|p| p.policy == kind);
        let dots = own.filter_map(|p| Some((1.0 - p.p99_reduction, row(p)? as f64)));
        figure = figure.dots(name(kind), color(kind), dots.collect());
    }
    figure
}

/// The sick server's share of the table over time.
fn sick_shares(more: &More) -> Figure {
    let y = Axis::new("share", Unit::Percent).between(0.0, 0.6);
    let figure = Figure::over_time("one-sick.svg", "Share of the sick server", y);
    let lines = more.sick_shares.iter();
    lines.fold(figure, |figure, (kind, shares)| {
        figure.line(name(kind), color(*kind), shares.clone())
    })
}
