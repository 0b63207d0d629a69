//! Plots and report.

use anyhow::Result;
use maud::{Markup, html};
use plotters::prelude::*;

use super::point::Moment;
use super::summary::{PAPER_REDUCTION, Step, Summary};
use super::{Policy, Run};
use crate::frame::Frame;
use crate::plot::{
    BATCHWISE, GREY, GRID, NAGLE, NODELAY, axes, draw, duration, legend_line, maybe_duration,
};
use crate::report::{Table, figure, percent, ratio};
use crate::stats::Spread;
use crate::timeplot::{Curve, Height, TimePlot};

const SERVER_COLORS: [RGBColor; 4] = [
    RGBColor(86, 132, 178),
    RGBColor(120, 160, 70),
    RGBColor(214, 138, 40),
    RGBColor(164, 98, 168),
];

impl Policy {
    fn label(self) -> &'static str {
        match self {
            Self::Static => "static weights",
            Self::Choices => "two choices alone",
            Self::Weights => "weights by latency alone",
            Self::Latency => "by latency",
        }
    }

    fn color(self) -> RGBColor {
        match self {
            Self::Static => NODELAY,
            Self::Choices => GREY,
            Self::Weights => NAGLE,
            Self::Latency => BATCHWISE,
        }
    }
}

pub(super) fn write(frame: &Frame<'_>, complete: bool, run: &Run, summary: &Summary) -> Result<()> {
    let output = &frame.context.output;
    let tail = over_load(summary)?;
    output.write("p99-over-load.svg", &tail)?;
    let mut over_time = Vec::new();
    if let Some(moment) = &run.shown {
        for (name, svg) in times(moment)? {
            output.write(name, &svg)?;
            over_time.push(svg);
        }
    }
    frame.write_report(
        complete,
        "Tail latency behind the balancer",
        "Two clients, a balancer with direct server return, four web servers whose speeds change: \
         new connections go by static weights, or by weights that follow the latency that the \
         balancer estimates from clients' packets, to the less busy of two.",
        &body(run, summary, &tail, &over_time),
    )
}

fn body(run: &Run, summary: &Summary, tail: &str, over_time: &[String]) -> Markup {
    let discarded: Vec<_> = run.points.iter().filter(|p| !p.valid).collect();
    let capacity = run.capacity_rps.unwrap_or(f64::NAN);
    let [fixed, moving] =
        [Policy::Static, Policy::Latency].map(|p| maybe_duration(summary.spread.get(&p).copied()));
    html! {
        p { "The 99th percentile of response latency is lower by "
            strong { (percent(summary.p99_reduction)) } " on average over loads (the paper: "
            (percent(Some(PAPER_REDUCTION))) "). Its spread between repeats (distance of the \
            quartiles, mean over loads) is " (moving) " instead of " (fixed) ". Where all servers \
            are equal it is " strong { (ratio(summary.equal_servers_ratio)) } " times that of \
            static weights. Connections are of two pages (mean); where each page has a connection of \
            its own, p99 is lower by " strong { (percent(summary.visits_p99_reduction)) } "." }
        h2 { "Figure 8: p99 over load" }
        (figure(tail))
        (table(summary))
        p { "Load is in percent of the " (format!("{capacity:.0}")) " requests/s that the servers \
            can do at their mean speed. p99 is of all responses of both clients in a run, from \
            what the clients logged; median (quartiles) of the repeats. Ratios are between runs \
            of the same round with the same pages and the same changes of speed." }
        @if !over_time.is_empty() {
            h2 { "A run with weights by latency, at the highest load" }
            @for svg in over_time { (figure(svg)) }
        }
        h2 { "What does not count" }
        @if discarded.is_empty() {
            p { "All " (run.points.len()) " runs count." }
        } @else {
            p { (discarded.len()) " of " (run.points.len()) " runs do not count, because a client \
                does not vouch for its figures:" }
            ul { @for point in &discarded {
                li { (point.arm.load_percent) " %, " (point.arm.policy.name()) ": "
                    (point.why_invalid.join("; ")) }
            } }
        }
        p { "Ratios are over static weights; the last two of the policy's parts alone: weights by latency \
            with Maglev, and the less busy of two with static weights." }
        p { (summary.broken_connections) " connections broke or could not be opened." }
    }
}

fn table(summary: &Summary) -> Markup {
    let mut table = Table::new([
        "load",
        "p99, static",
        "p99, by latency",
        "p50, static",
        "p50, by latency",
        "ratio of p99",
        "weights alone",
        "two choices alone",
        "pairs",
    ]);
    let mut row = |name: String, step: &Step| {
        let spread = |of: Option<&Spread>| {
            of.map_or_else(
                || "–".to_owned(),
                |s| {
                    let [median, q1, q3] = [s.median, s.q1, s.q3].map(duration);
                    format!("{median} ({q1} – {q3})")
                },
            )
        };
        table.row([
            name,
            spread(step.p99_ns.get(&Policy::Static)),
            spread(step.p99_ns.get(&Policy::Latency)),
            spread(step.p50_ns.get(&Policy::Static)),
            spread(step.p50_ns.get(&Policy::Latency)),
            ratio(step.ratio),
            ratio(step.reduction.get(&Policy::Weights).map(|r| 1.0 - r)),
            ratio(step.reduction.get(&Policy::Choices).map(|r| 1.0 - r)),
            step.pairs.to_string(),
        ]);
    };
    for (load, step) in &summary.per_load {
        row(format!("{load} %"), step);
    }
    for (load, step) in &summary.visits {
        row(format!("{load} %, a connection a page"), step);
    }
    for (load, step) in &summary.equal {
        row(format!("equal servers, {load} %"), step);
    }
    table.html()
}

/// Medians and quartiles of p99 by load.
fn over_load(summary: &Summary) -> Result<String> {
    let all = || summary.per_load.values().flat_map(|s| s.p99_ns.values());
    let top = all().map(|p99| p99.q3).fold(1e6, f64::max) * 1.1;
    let right = summary
        .per_load
        .keys()
        .max()
        .map_or(100.0, |&l| f64::from(l))
        + 8.0;
    draw("99th percentile of response latency", |area, legend| {
        let mut chart = axes(area).build_cartesian_2d(0.0..right, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("load, % of the capacity")
            .y_desc("p99")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| duration(*y))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for (row, policy) in Policy::ALL.into_iter().enumerate() {
            // Side by side, so that no bar hides the other.
            let shift = [-0.9, -0.3, 0.3, 0.9][row];
            let color = policy.color();
            let steps = summary.per_load.iter();
            let steps: Vec<_> = steps
                .filter_map(|(&load, s)| Some((f64::from(load) + shift, *s.p99_ns.get(&policy)?)))
                .collect();
            let line = steps.iter().map(|(x, p99)| (*x, p99.median));
            chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
            let whiskers = steps.iter().flat_map(|(x, p99)| {
                let across = |y: f64| vec![(x - 0.7, y), (x + 0.7, y)];
                [
                    across(p99.q1),
                    across(p99.q3),
                    vec![(*x, p99.q1), (*x, p99.q3)],
                ]
            });
            chart
                .draw_series(whiskers.map(|line| PathElement::new(line, color.stroke_width(2))))?;
            let medians = steps.iter().map(|(x, p99)| (*x, p99.median));
            chart.draw_series(medians.map(|at| Circle::new(at, 4, color.filled())))?;
            legend_line(legend, row, policy.label(), color, false)?;
        }
        Ok(())
    })
}

/// Speeds, shares of slots and latencies of a run.
fn times(moment: &Moment) -> Result<[(&'static str, String); 3]> {
    let mut names: Vec<_> = moment.backends.iter().map(|b| b.backend.clone()).collect();
    names.sort();
    names.dedup();
    let seconds = |ts_ns: u64| (ts_ns as f64 - moment.from_ns as f64) * 1e-9;
    let curve = |(index, name): (usize, &String), pieces| Curve {
        label: name.clone(),
        color: SERVER_COLORS[index % SERVER_COLORS.len()],
        dashed: false,
        pieces,
    };
    let of = |value: fn(&crate::balancer::BackendMoment) -> Option<f64>| -> Vec<Curve> {
        let each = |(index, name): (usize, &String)| {
            let own = moment.backends.iter().filter(|b| b.backend == *name);
            let points = own.filter_map(|b| Some((seconds(b.ts_ns), value(b)?)));
            let points = points.filter(|point| point.0 >= 0.0).collect();
            curve((index, name), vec![points])
        };
        names.iter().enumerate().map(each).collect()
    };
    let end = moment.backends.iter().map(|b| seconds(b.ts_ns));
    let end = end.fold(0.0, f64::max);
    let speeds = names.iter().enumerate().zip(&moment.traces);
    let speeds = speeds.map(|(name, trace)| {
        let steps = trace.steps();
        let ends = steps.iter().skip(1).map(|step| step.at.as_secs_f64());
        let corners = steps
            .iter()
            .zip(ends.chain([end]))
            .flat_map(|(step, until)| [(step.at.as_secs_f64(), step.share), (until, step.share)]);
        let within = corners.filter(|corner| corner.0 <= end).collect();
        curve(name, vec![within])
    });
    let plot = |title, height, curves| {
        TimePlot {
            title,
            height,
            curves,
            spans: Vec::new(),
            shaded: None,
            events: Vec::new(),
            level: None,
        }
        .svg()
    };
    Ok([
        (
            "speeds.svg",
            plot("Servers' speeds", Height::Share, speeds.collect())?,
        ),
        (
            "shares.svg",
            plot("Shares of the slots", Height::Share, of(|b| Some(b.share)))?,
        ),
        (
            "latencies.svg",
            plot(
                "Latency as the balancer estimates it",
                Height::Latency,
                of(|b| b.latency_ns.mean),
            )?,
        ),
    ])
}
