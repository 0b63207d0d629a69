//! Figures and report of `tails`.

use super::summary::*;
use super::{Budget, Point};
use crate::engine::color::PARTS;
use crate::engine::report::Part;
use crate::engine::text::{self, percent, thousands};
use crate::engine::{Axis, Figure, Ratio, Report, Table, Unit};
use crate::ladder;
use crate::stats::median;

pub fn report(points: &[Point], summary: &Summary) -> Report {
    let mut report = Report::new(
        "Tails: measured against estimated percentiles",
        "One open-loop Poisson client on one connection to Redis with TCP_NODELAY. A watcher alone at \
         each end matches requests with their responses; a point is one line of each.",
    )
    .heading("Summary")
    .text(format!(
        "Median of |estimate / truth − 1| over all points below saturation, at most {} wanted. \
         **client** and **server** are compared with the load generator's percentiles from the actual \
         send. A server's estimate holds the network as far as the server knows it, not the client's \
         own wait. **server's own part** leaves the network out, and is compared with a capture at the \
         server's link: from the packet with a request's last byte to the packet with its response's \
         first. Both stacks' time between link and socket is in that truth only.",
        percent(Some(BAR)),
    ));
    let mut rows = Vec::new();
    for (name, found) in &summary.per_workload {
        for (budget, errors) in &found.by_budget {
            rows.extend(errors.iter().map(|(against, e)| (name, budget, against, e)));
        }
    }
    let error = |interval: Option<Ratio>| match interval {
        Some(r) if r.has_power() => format!(
            "{} ({} – {})",
            percent(Some(r.median)),
            percent(Some(r.low)),
            percent(Some(r.high))
        ),
        Some(r) => percent(Some(r.median)),
        None => "–".into(),
    };
    report = report.table(Table::of(
        &rows,
        &[
            ("workload", &|(name, ..)| (*name).clone()),
            ("budget", &|(_, budget, ..)| budget.label().into()),
            ("at", &|(_, _, against, _)| against.label().into()),
            ("p50 error", &|(.., e)| error(e.p50_interval)),
            ("bias", &|(.., e)| percent(e.p50_bias)),
            ("verdict", &|(.., e)| e.p50_verdict.name().into()),
            ("p99 error", &|(.., e)| error(e.p99_interval)),
            ("bias", &|(.., e)| percent(e.p99_bias)),
            ("verdict", &|(.., e)| e.p99_verdict.name().into()),
            ("points", &|(.., e)| e.points.to_string()),
            ("missing", &|(.., e)| e.missing.to_string()),
            ("requests a line", &|(.., e)| {
                e.matched.map_or_else(|| "–".into(), thousands)
            }),
            ("counted", &|(.., e)| percent(e.counted)),
        ],
    ));
    for name in summary.per_workload.keys() {
        let own: Vec<_> = points.iter().filter(|p| p.workload == *name).collect();
        let figure = |budget, against| plot(name, &own, budget, against);
        let others = Against::ALL.map(|against| {
            let figure = figure(Budget::Off, against);
            Part::Figure(Box::new(figure))
        });
        report = report
            .heading(format!("Workload {name}"))
            .figure(figure(Budget::Default, Against::Client))
            .figure(figure(Budget::Default, Against::ServerWire))
            .part(Part::Details("With --cost off".into(), others.into()));
    }
    report
}

fn plot(name: &str, points: &[&Point], budget: Budget, against: Against) -> Figure {
    let x = Axis::new("offered load, requests/s", Unit::Rate).reaching(1000.0);
    let y = Axis::new("latency", Unit::Duration).log();
    let (at, with) = (against.label(), budget.label());
    let parts = [
        name.replace(':', "-"),
        text::name(budget),
        text::name(against),
    ];
    let file = format!("{}.svg", parts.join("-"));
    let title = format!("{name}: percentiles, {at}, {with}");
    let figure = Figure::new(file, title, x, y);
    let own = points.iter().copied();
    let own: Vec<_> = own.filter(|p| p.budget == budget && !p.saturated).collect();
    let line = |share, pick: fn((f64, f64)) -> f64| -> Vec<(f64, f64)> {
        let at_step = |step: u64| {
            let there = own.iter().filter(|p| p.step_rps == step);
            let values = there.filter_map(|p| pair(p, against, share).map(pick));
            Some((step as f64, median(&values.collect::<Vec<_>>())?))
        };
        ladder::steps(&own)
            .into_iter()
            .filter_map(at_step)
            .collect()
    };
    let both = [(Share::P50, "p50", PARTS[0]), (Share::P99, "p99", PARTS[2])];
    both.into_iter()
        .fold(figure, |figure, (share, label, color)| {
            figure
                .measured(format!("{label}, measured"), color, line(share, |p| p.1))
                .estimated(format!("{label}, estimated"), color, line(share, |p| p.0))
        })
}
