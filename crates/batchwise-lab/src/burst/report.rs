//! Tables and the figure of the experiment.

use super::Point;
use super::discipline::Which;
use super::summary::{Case, Summary};
use crate::engine::color::{BATCHWISE, BLACK, Color, GREY, PARTS};
use crate::engine::{Axis, Figure, Ratio, Report, Table, Unit, text};
use crate::stats::median;

/// What is beyond this factor is drawn at the edge.
const FURTHEST: f64 = 20.0;

/// Everything.
pub(super) fn report(points: &[Point], summary: &Summary) -> Report {
    let tables = [
        ("Completion over drop-tail", cases(summary)),
        ("49 + 1", one_of_50(summary)),
        ("One sender that lies", abuse(points)),
        ("Without one of the rules", without(summary)),
    ];
    let file: Vec<_> = tables.iter().map(|(_, t)| t.markdown()).collect();
    let report = Report::new(
        "Super-packets: bursts that are admitted whole, in simulated time",
        "A bottleneck with a queue of 100 packets of 1500 B. All disciplines have the same buffer; \
         ratios are to drop-tail with the same seed.",
    )
    .file("table.md", file.join("\n"))
    .figure(figure(summary));
    tables.into_iter().fold(report, |report, (title, table)| {
        report.heading(title).table(table)
    })
}

fn cases(summary: &Summary) -> Table {
    let ratio = |r: &Option<Ratio>| r.as_ref().map_or("–".into(), |r| Ratio::text(Some(r)));
    Table::of(
        &summary.cases,
        &[
            ("scenario", &|c| c.scenario.clone()),
            ("losses", &|c| text::name(c.recovery)),
            ("queue", &|c| text::name(c.discipline)),
            ("mean completion", &|c| ratio(&c.fct_ratio_mean)),
            ("p99", &|c| ratio(&c.fct_ratio_p99)),
            ("endless flows carry", &|c| ratio(&c.long_ratio)),
        ],
    )
}

fn one_of_50(summary: &Summary) -> Table {
    Table::of(
        &summary.one_of_50,
        &[
            ("scenario", &|o| o.scenario.clone()),
            ("losses", &|o| text::name(o.recovery)),
            ("queue", &|o| text::name(o.discipline)),
            ("carries, over the mean of the 49", &|o| {
                text::interval(o.over_others)
            }),
        ],
    )
}

fn abuse(points: &[Point]) -> Table {
    let all = points.iter().filter_map(Point::abuse);
    let mut all: Vec<_> = all.filter(|p| p.without.is_none()).collect();
    let honest = |p: &&super::AbusePoint| median(&p.honest).unwrap_or(f64::INFINITY);
    all.sort_by(|a, b| honest(a).total_cmp(&honest(b)));
    let three = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.3}"));
    Table::of(
        all,
        &[
            ("strategy", &|p| p.strategy.name()),
            ("honest flows carry, over drop-tail", &|p| {
                three(median(&p.honest))
            }),
            ("the liar", &|p| three(median(&p.liar))),
        ],
    )
}

fn without(summary: &Summary) -> Table {
    let ratio = |r: &Option<Ratio>| r.as_ref().map_or("–".into(), |r| Ratio::text(Some(r)));
    Table::of(
        &summary.without,
        &[
            ("without", &|w| text::name(w.rule)),
            ("scenario", &|w| w.what.clone()),
            ("losses", &|w| w.recovery.map_or("–".into(), text::name)),
            ("mean completion", &|w| ratio(&w.fct_ratio_mean)),
            ("p99", &|w| ratio(&w.fct_ratio_p99)),
            ("honest flows carry", &|w| {
                w.abuse.map_or("–".into(), |a| format!("{a:.3}"))
            }),
        ],
    )
}

fn color(which: Which) -> Color {
    match which {
        Which::DropTail => GREY,
        Which::Red => PARTS[0],
        Which::FqCodel => PARTS[1],
        Which::Cake => PARTS[2],
        Which::Algorithm1 => BLACK,
        Which::Batchwise => BATCHWISE,
    }
}

/// A column a scenario, a dot a discipline.
fn figure(summary: &Summary) -> Figure {
    let of = |which| move |c: &&Case| c.discipline == which;
    let name = |c: &Case| format!("{}, {}", c.scenario, text::name(c.recovery));
    let names: Vec<_> = summary
        .cases
        .iter()
        .filter(of(Which::DropTail))
        .map(name)
        .collect();
    let numbers = (1..=names.len()).map(|number| number.to_string());
    let x = Axis::names("scenario, in the table's order", numbers);
    let y = Axis::new("mean completion over drop-tail", Unit::Number(1)).log();
    let title = "Mean completion of flows over drop-tail";
    let figure = Figure::new("burst-sim.svg", title, x, y.between(0.2, FURTHEST)).level("", 1.0);
    Which::ALL
        .into_iter()
        .skip(1)
        .fold(figure, |figure, which| {
            let ratios = summary
                .cases
                .iter()
                .filter(of(which))
                .map(|c| c.fct_ratio_mean);
            let dots = (0..).map(f64::from).zip(ratios);
            let dots = dots
                .filter_map(|(x, ratio)| Some((x, ratio?.median)))
                .collect();
            figure.dots(text::name(which), color(which), dots)
        })
}
