//! Table, plots and report of the balance-policies experiment.

use anyhow::Result;
use maud::{Markup, html};
use plotters::prelude::*;

use super::deciders::Kind;
use super::world::Outcome;
use super::{INTERVAL, Point, Results};
use crate::output::Output;
use crate::plot::{BATCHWISE, GREY, GRID, NAGLE, NODELAY, draw, legend_text, legend_y};
use crate::report::{Page, Table, figure};

/// Writes the table as Markdown, plots, and the report.
pub(super) fn write(
    output: &Output,
    results: &Results<'_>,
    traces: &[(Kind, Outcome)],
    reproduce: &str,
) -> Result<()> {
    let rows = rows(results.points);
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&HEADER.map(str::to_owned));
    text += &format!("|{}\n", "---|".repeat(HEADER.len()));
    text.extend(rows.iter().map(|r| line(r)));
    output.write("table.md", &text)?;
    let ratios = ratios(results.points)?;
    output.write("p99.svg", &ratios)?;
    let shares = sick_share(traces)?;
    output.write("one-sick.svg", &shares)?;
    let page = Page {
        title: "Balance policies: connections in virtual time",
        lead: "Clients open connections, ask for pages of requests on them, and close them; servers \
               share their CPU among the requests that they have. Only new connections are steered. \
               There is no network and no kernel in it; the controller and the tables are those of \
               batchwise balance.",
        machine: results.machine,
        facts: vec![
            ("Simulated time", format!("{:.0} s each", results.length_s)),
            ("Seeds", results.seeds.to_string()),
        ],
        complete: results.complete,
        reproduce,
    };
    let body = html! {
        h2 { "99th percentile over that of static weights" }
        (figure(&ratios))
        p { "Median of pairs with the same seed. “Least loaded” knows what no balancer sees." }
        h2 { "One server becomes sick: its share of the table" }
        (figure(&shares))
        h2 { "All numbers" }
        (table(&rows))
    };
    output.write("report.html", &page.html(&body))
}

const HEADER: [&str; 8] = [
    "scenario",
    "policy",
    "p50 ms",
    "p99 ms (quartiles)",
    "p99 against static",
    "errors",
    "reaction s",
    "moved per decision",
];

fn rows(points: &[Point]) -> Vec<[String; 8]> {
    let row = |p: &Point| {
        let every = match p.interval_s == INTERVAL {
            true => String::new(),
            false => format!(", each {} s", p.interval_s),
        };
        [
            p.scenario.clone(),
            format!("{}{every}", p.policy),
            format!("{:.1}", p.p50_ms),
            format!(
                "{:.0} ({:.0}–{:.0})",
                p.p99_ms.median, p.p99_ms.q1, p.p99_ms.q3
            ),
            format!("{:+.0} %", -100.0 * p.p99_reduction),
            format!("{:.1} %", 100.0 * p.failed),
            p.reaction_s
                .map_or_else(|| "–".into(), |s| format!("{s:.1}")),
            format!("{:.1} %", 100.0 * p.swing),
        ]
    };
    points.iter().map(row).collect()
}

fn table(rows: &[[String; 8]]) -> Markup {
    let mut table = Table::new(HEADER);
    for row in rows {
        table.row(row.clone());
    }
    table.html()
}

fn color(policy: &str) -> RGBColor {
    match policy {
        "paper" => NAGLE,
        "batchwise" => BATCHWISE,
        "least loaded" => NODELAY,
        _ => GREY,
    }
}

/// A row a scenario, a dot a policy.
fn ratios(points: &[Point]) -> Result<String> {
    let own: Vec<&Point> = points.iter().filter(|p| p.interval_s == INTERVAL).collect();
    let mut scenarios: Vec<&str> = own.iter().map(|p| p.scenario.as_str()).collect();
    scenarios.dedup();
    let rows = scenarios.len() as f64;
    draw("p99 over that of static weights", |area, legend| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(150)
            .build_cartesian_2d((0.03..10.0).log_scale(), -rows..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .y_labels(0)
            .x_label_formatter(&|x| format!("{x}"))
            .label_style(("sans-serif", 13))
            .draw()?;
        chart.draw_series(LineSeries::new(
            [(1.0, -rows), (1.0, 0.0)],
            GREY.stroke_width(1),
        ))?;
        for (row, scenario) in scenarios.iter().enumerate() {
            let y = -(row as f64) - 0.5;
            let (_, at) = chart.backend_coord(&(1.0, y));
            let style = ("sans-serif", 12).into_font().color(&BLACK);
            area.draw(&Text::new((*scenario).to_owned(), (10, at - 30), style))?;
            for p in own
                .iter()
                .filter(|p| p.scenario == *scenario && p.policy != "static")
            {
                let at = ((1.0 - p.p99_reduction).clamp(0.03, 10.0), y);
                chart.draw_series([Circle::new(at, 4, color(p.policy).filled())])?;
            }
        }
        let shown = Kind::ALL.iter().filter(|k| **k != Kind::Static);
        for (row, kind) in shown.enumerate() {
            legend.draw(&Circle::new(
                (22, legend_y(row)),
                4,
                color(kind.name()).filled(),
            ))?;
            legend_text(legend, row, kind.name())?;
        }
        Ok(())
    })
}

/// The second server's share of the table over time.
fn sick_share(traces: &[(Kind, Outcome)]) -> Result<String> {
    let steered: Vec<_> = traces.iter().filter(|(k, _)| *k != Kind::Oracle).collect();
    let end = steered
        .iter()
        .flat_map(|(_, o)| o.shares.last())
        .map(|s| s.0)
        .fold(1.0, f64::max);
    draw("Share of the sick server", |area, legend| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..end, 0.0..0.6)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("s")
            .y_label_formatter(&|y| format!("{:.0} %", y * 100.0))
            .draw()?;
        for (row, (kind, outcome)) in steered.iter().enumerate() {
            let line = outcome.shares.iter().map(|(at, s)| (*at, s[1].min(0.6)));
            let style = color(kind.name()).stroke_width(2);
            chart.draw_series(LineSeries::new(line, style))?;
            legend.draw(&Circle::new(
                (22, legend_y(row)),
                4,
                color(kind.name()).filled(),
            ))?;
            legend_text(legend, row, kind.name())?;
        }
        Ok(())
    })
}
