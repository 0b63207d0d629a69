//! Tables and figures of the regret experiment.

use batchwise_core::tune::Arm;

use super::policies::Kind;
use super::run::{Sample, WINDOW_S, run};
use super::{KINDS, Point, Settle, Simulated, scenarios};
use crate::decisions::join;
use crate::engine::color::{BATCHWISE, BLACK, Color, GREY, NAGLE, NODELAY};
use crate::engine::text::duration;
use crate::engine::{Axis, Figure, Report, Results, Table, Unit};

/// What this project's policy is called.
const OWN: &str = "batchwise";
/// What is beyond this factor of the best static arm is drawn at the edge.
const FURTHEST: f64 = 100.0;
/// Latencies beyond this are drawn at the edge, ns.
const LONGEST: f64 = 1e8;

/// Everything.
pub fn report(results: &Results<Point, Simulated>) -> Report {
    let points = &results.points;
    let (all, own) = (policies_table(points), own_table(points));
    let traces = [scenarios::TURNS, scenarios::STEPS];
    let traces = (1..).zip(traces).map(|(number, name)| {
        let file = format!("decisions-{number}.svg");
        decisions(file, name)
    });
    let report = Report::new(
        "Regret: policies in simulated time",
        format!(
            "A client, a link and a server with the paper's costs (α per request, β per batch, c \
             per response), fitted to Redis over veth; noise and stalls as on a shared virtual \
             machine. Every policy meets the same load and the same noise. {:.1} h of simulated \
             time, {} seeds.",
            results.more.simulated_s / 3600.0,
            results.more.seeds
        ),
    )
    .file("table.md", all.markdown() + "\n" + &own.markdown())
    .heading("Mean latency over that of the better static arm")
    .figure(regrets(points))
    .table(all)
    .heading("batchwise")
    .table(own)
    .text(
        "“Default” is the arm that the application asked for; its worst 10 s leave out the first. \
         Time in the wrong arm counts where arms differ by more than 5 %; settling is from a \
         lasting change of the better arm, by more than 25 %, until it is in force to stay.",
    )
    .heading("Decisions over time");
    traces.fold(report, Report::figure)
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

fn own_table(points: &[Point]) -> Table {
    let against = |factor: f64| format!("{:+.1} %", 100.0 * (factor - 1.0));
    let settle = |s: Settle| format!("{:.2} / {:.2} / {:.2}", s.median_s, s.p95_s, s.worst_s);
    Table::of(
        of(points, OWN),
        &[
            ("scenario", &|p| p.scenario.clone()),
            ("mean latency", &|p| duration(p.latency_ns)),
            ("over best static", &|p| over(p.vs_best_static)),
            ("over oracle", &|p| over(p.vs_oracle)),
            ("against default", &|p| against(p.vs_default)),
            ("worst 10 s against default", &|p| {
                against(p.worst_window_vs_default)
            }),
            ("time in wrong arm", &|p| {
                format!("{:.1} %", 100.0 * p.wrong)
            }),
            ("switches/min", &|p| format!("{:.1}", p.switches_per_min)),
            ("settling s, median / p95 / worst", &|p| {
                p.settle.map_or_else(|| "–".into(), settle)
            }),
        ],
    )
}

/// By scenario: every policy's mean latency over that of the best static arm.
fn policies_table(points: &[Point]) -> Table {
    let names = KINDS.map(|kind| kind.name());
    let row = |(number, own): (u32, &Point)| {
        let value = |name: &String| {
            let found = of(points, name).find(|p| p.scenario == own.scenario);
            found.map_or_else(|| "–".into(), |p| over(p.vs_best_static))
        };
        let scenario = [number.to_string(), own.scenario.clone()];
        scenario
            .into_iter()
            .chain(names.iter().map(value))
            .collect()
    };
    let header = ["".to_owned(), "scenario".to_owned()];
    Table::new(header.into_iter().chain(names.clone())).with((1..).zip(of(points, OWN)).map(row))
}

fn color(kind: Kind) -> Color {
    match kind {
        Kind::Static(Arm::On) => NAGLE,
        Kind::Static(Arm::Off) => NODELAY,
        Kind::Oracle => BLACK,
        Kind::Greedy { .. } => GREY,
        Kind::Controller => BATCHWISE,
    }
}

/// A column a scenario, numbered as in the table; a dot a policy.
fn regrets(points: &[Point]) -> Figure {
    let numbers: Vec<_> = (1..=of(points, OWN).count())
        .map(|number| number.to_string())
        .collect();
    let x = Axis::names("scenario, as numbered below", numbers);
    let y = Axis::new("over the better static arm", Unit::Number(1)).log();
    let title = "Mean latency over that of the better static arm";
    let figure = Figure::new("regret.svg", title, x, y.between(0.5, FURTHEST)).level("", 1.0);
    KINDS.into_iter().fold(figure, |figure, kind| {
        let name = kind.name();
        let ratios = of(points, &name).map(|p| p.vs_best_static);
        let dots = (0..).map(f64::from).zip(ratios).collect();
        figure.dots(name.clone(), color(kind), dots)
    })
}

/// Latency over time of both arms and batchwise, shaded where batchwise has Nagle on: simulated
/// anew, as the same seed gives the same run.
fn decisions(file: String, name: &str) -> Figure {
    let all = scenarios::all(6.0 * WINDOW_S);
    let found = all.into_iter().find(|s| s.name == name);
    let scenario = found.expect("the scenario is one of all");
    let y = Axis::latency().capped(LONGEST);
    let mut figure = Figure::over_time(file, format!("{name}: mean latency"), y);
    for kind in [KINDS[0], KINDS[1], Kind::Controller] {
        let trace = run(&scenario, kind, 1).trace;
        if kind == Kind::Controller {
            let on = |pair: &[Sample]| (pair[1].arm == Arm::On).then_some((pair[0].at, pair[1].at));
            let times = join(trace.windows(2).filter_map(on));
            figure = figure.shade("batchwise: Nagle on", &times);
        }
        let answered = trace.iter().filter(|s| s.latency_ns > 0.0);
        let line = answered.map(|s| (s.at, s.latency_ns)).collect();
        figure = figure.line(kind.name(), color(kind), line);
    }
    figure
}
