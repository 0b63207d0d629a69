//! Table, plots and report of the regret experiment.

use anyhow::Result;
use batchwise_core::tune::Arm;
use maud::{Markup, html};
use plotters::prelude::*;

use super::run::Sample;
use super::{Point, Results, Traces};
use crate::output::Output;
use crate::plot::{
    BATCHWISE, GREY, GRID, NAGLE, NODELAY, draw, duration, legend_text, legend_y, ticks,
};
use crate::report::{Page, Table, figure};
use crate::timeplot::{Curve, Height, TimePlot};

/// What this project's policy is called.
const OWN: &str = "batchwise";

/// What is beyond this factor of the best static arm is drawn at the edge.
const FURTHEST: f64 = 100.0;

/// Writes plots, the table as Markdown, and the report.
pub fn write(
    output: &Output,
    results: &Results<'_>,
    traces: &[Traces],
    reproduce: &str,
) -> Result<()> {
    output.write("table.md", &markdown(results.points))?;
    let bars = regrets(results.points)?;
    output.write("regret.svg", &bars)?;
    let mut moments = Vec::new();
    for (index, t) in traces.iter().enumerate() {
        let svg = decisions(t)?;
        output.write(&format!("decisions-{}.svg", index + 1), &svg)?;
        moments.push(svg);
    }
    let page = Page {
        title: "Regret: policies in simulated time",
        lead: "A client, a link and a server with the paper's costs (α per request, β per batch, c \
               per response), fitted to Redis over veth; noise and stalls as on a shared virtual \
               machine. Every policy meets the same load and the same noise.",
        machine: results.machine,
        facts: vec![
            (
                "Simulated time",
                format!("{:.1} h", results.simulated_s / 3600.0),
            ),
            ("Seeds", results.seeds.to_string()),
        ],
        complete: results.complete,
        reproduce,
    };
    let body = html! {
        h2 { "Mean latency over that of the better static arm" }
        (figure(&bars))
        (policies_table(results.points))
        h2 { "batchwise" }
        (own_table(results.points))
        p {
            "“Default” is the arm that the application asked for; its worst 10 s leave out the \
             first. Time in the wrong arm counts where arms differ by more than 5 %; settling is \
             from a lasting change of the better arm, by more than 25 %, until it is in force to \
             stay."
        }
        h2 { "Decisions over time" }
        @for svg in &moments { (figure(svg)) }
    };
    output.write("report.html", &page.html(&body))
}

fn of<'a>(points: &'a [Point], policy: &str) -> impl Iterator<Item = &'a Point> {
    points.iter().filter(move |p| p.policy == policy)
}

fn over(factor: f64) -> String {
    match factor {
        f if f >= 9.95 => format!("{f:.0}"),
        f => format!("{f:.2}"),
    }
}

fn settle(p: &Point) -> String {
    p.settle.map_or_else(
        || "–".into(),
        |s| format!("{:.2} / {:.2} / {:.2}", s.median_s, s.p95_s, s.worst_s),
    )
}

fn cells(p: &Point) -> [String; 9] {
    [
        p.scenario.clone(),
        duration(p.latency_ns),
        over(p.vs_best_static),
        over(p.vs_oracle),
        format!("{:+.1} %", 100.0 * (p.vs_default - 1.0)),
        format!("{:+.1} %", 100.0 * (p.worst_window_vs_default - 1.0)),
        format!("{:.1} %", 100.0 * p.wrong),
        format!("{:.1}", p.switches_per_min),
        settle(p),
    ]
}

const HEADER: [&str; 9] = [
    "scenario",
    "mean latency",
    "over best static",
    "over oracle",
    "against default",
    "worst 10 s against default",
    "time in wrong arm",
    "switches/min",
    "settling s, median / p95 / worst",
];

fn own_table(points: &[Point]) -> Markup {
    let mut table = Table::new(HEADER);
    for p in of(points, OWN) {
        table.row(cells(p));
    }
    table.html()
}

fn policy_names(points: &[Point]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for p in points {
        if !names.contains(&p.policy.as_str()) {
            names.push(&p.policy);
        }
    }
    names
}

/// By scenario: every policy's mean latency over that of the best static arm.
fn by_scenario(points: &[Point]) -> Vec<(String, Vec<String>)> {
    let names = policy_names(points);
    of(points, OWN)
        .map(|own| {
            let value = |name: &&str| {
                of(points, name)
                    .find(|p| p.scenario == own.scenario)
                    .map_or_else(|| "–".into(), |p| over(p.vs_best_static))
            };
            (own.scenario.clone(), names.iter().map(value).collect())
        })
        .collect()
}

fn policies_table(points: &[Point]) -> Markup {
    html! {
        div class="scroll" { table {
            tr { th { "scenario" } @for name in policy_names(points) { th { (name) } } }
            @for (scenario, values) in by_scenario(points) {
                tr { td { (scenario) } @for value in values { td { (value) } } }
            }
        } }
    }
}

/// Both tables, to stand in the documentation.
fn markdown(points: &[Point]) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = |columns: usize| format!("|{}\n", "---|".repeat(columns));
    let names: Vec<_> = policy_names(points)
        .iter()
        .map(|n| (*n).to_owned())
        .collect();
    let mut text = row(&[&["scenario".to_owned()], names.as_slice()].concat());
    text += &rule(names.len() + 1);
    for (scenario, values) in by_scenario(points) {
        text += &row(&[&[scenario], values.as_slice()].concat());
    }
    text += "\n";
    text += &row(&HEADER.map(str::to_owned));
    text += &rule(HEADER.len());
    for p in of(points, OWN) {
        text += &row(&cells(p));
    }
    text
}

fn color(policy: &str) -> RGBColor {
    match policy {
        "Nagle" => NAGLE,
        "NODELAY" => NODELAY,
        OWN => BATCHWISE,
        "oracle" => RGBColor(20, 20, 20),
        _ => GREY,
    }
}

/// A row a scenario, a dot a policy.
fn regrets(points: &[Point]) -> Result<String> {
    let scenarios: Vec<_> = of(points, OWN).map(|p| p.scenario.as_str()).collect();
    let rows = scenarios.len() as f64;
    draw(
        "Mean latency over that of the better static arm",
        |area, legend| {
            let mut chart = ChartBuilder::on(area)
                .margin(8)
                .x_label_area_size(40)
                .y_label_area_size(270)
                .build_cartesian_2d(
                    (0.5..FURTHEST)
                        .log_scale()
                        .with_key_points(ticks(0.5, FURTHEST)),
                    -rows..0.0,
                )?;
            let name = |y: &f64| {
                let at = (-y - 0.5).round();
                let exact = (-y - 0.5 - at).abs() < 0.01 && at >= 0.0;
                scenarios
                    .get(at as usize)
                    .filter(|_| exact)
                    .map_or_else(String::new, |s| (*s).to_owned())
            };
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
            let one = [(1.0, -rows), (1.0, 0.0)];
            chart.draw_series(LineSeries::new(one, GREY.stroke_width(1)))?;
            for (row, scenario) in scenarios.iter().enumerate() {
                let y = -(row as f64) - 0.5;
                let style = ("sans-serif", 11).into_font().color(&BLACK);
                let (_, at) = chart.backend_coord(&(1.0, y));
                area.draw(&Text::new(name(&y), (6, at - 30), style))?;
                for p in points.iter().filter(|p| p.scenario == *scenario) {
                    let at = (p.vs_best_static.clamp(0.5, FURTHEST), y);
                    let size = if p.policy == OWN { 5 } else { 3 };
                    chart.draw_series([Circle::new(at, size, color(&p.policy).filled())])?;
                }
            }
            for (row, name) in policy_names(points).iter().enumerate() {
                let y = legend_y(row);
                legend.draw(&Circle::new((22, y), 4, color(name).filled()))?;
                legend_text(legend, row, name)?;
            }
            Ok(())
        },
    )
}

/// Latency over time of three policies, shaded where batchwise has Nagle on.
fn decisions(t: &Traces) -> Result<String> {
    let curve = |(policy, line): &(String, Vec<Sample>)| {
        let points = line.iter().filter(|s| s.latency_ns > 0.0);
        let piece = points.map(|s| (s.at, s.latency_ns.min(1e8))).collect();
        Curve {
            label: policy.clone(),
            color: color(policy),
            dashed: false,
            pieces: vec![piece],
        }
    };
    let own = t.lines.iter().find(|(policy, _)| policy == OWN);
    let shades = own.into_iter().flat_map(|(_, line)| line.windows(2));
    let shades = shades.filter(|w| w[1].arm == Arm::On);
    TimePlot {
        title: &format!("{}: mean latency", t.scenario),
        height: Height::Latency,
        curves: t.lines.iter().map(curve).collect(),
        spans: Vec::new(),
        shaded: Some((
            "batchwise: Nagle on",
            shades.map(|w| (w[0].at, w[1].at)).collect(),
        )),
        events: Vec::new(),
        level: None,
    }
    .svg()
}
