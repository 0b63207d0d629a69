//! Figures, tables and report of the balance-tail experiment.

use std::collections::BTreeMap;

use super::summary::{PAPER_REDUCTION, Step, Summary};
use super::{Course, More, Point, Policy, VISITS};
use crate::engine::color::{BATCHWISE, Color, GREY, NAGLE, NODELAY, PARTS};
use crate::engine::figure::Layer;
use crate::engine::text::{duration, maybe_duration, percent};
use crate::engine::{Axis, Figure, Ratio, Report, Results, Table, Unit};
use crate::stats::Spread;

impl Policy {
    /// Its label and colour, and where it is beside a load: side by side no bar hides another.
    fn look(self) -> (&'static str, Color, f64) {
        match self {
            Self::Static => ("static weights", NODELAY, -0.9),
            Self::Choices => ("two choices alone", GREY, -0.3),
            Self::Weights => ("weights by latency alone", NAGLE, 0.3),
            Self::Latency => ("by latency", BATCHWISE, 0.9),
        }
    }
}

pub(super) fn report(results: &Results<Point, More>, summary: &Summary) -> Report {
    let capacity = results.more.capacity_rps.unwrap_or(f64::NAN);
    let [fixed, moving] =
        [Policy::Static, Policy::Latency].map(|p| maybe_duration(summary.spread.get(&p).copied()));
    let strong = |ratio: &Option<Ratio>| format!("**{}**", Ratio::text(ratio.as_ref()));
    let mut report = Report::new(
        "Tail latency behind the balancer",
        "Two clients, a balancer with direct server return, four web servers whose speeds change: \
         new connections go by static weights, or by weights that follow the latency that the \
         balancer estimates from clients' packets, to the less busy of two.",
    )
    .heading("Summary")
    .text(format!(
        "The 99th percentile of response latency by latency over that with static weights, mean over \
         loads: {} (the paper: {:.2}); with equal servers, at the worse of the loads: {}; where each \
         page has a connection of its own: {}. Medians of pairs with a 95 % bootstrap interval. The \
         spread of p99 between repeats (distance of the quartiles, mean over loads) is {moving} \
         instead of {fixed}. {} connections broke or could not be opened.",
        strong(&summary.p99_ratio),
        1.0 - PAPER_REDUCTION,
        strong(&summary.equal_servers),
        strong(&summary.visits_ratio),
        summary.broken_connections,
    ))
    .heading("Figure 8: p99 over load")
    .figure(over_load(summary))
    .table(table(summary))
    .text(format!(
        "Load is in percent of the {capacity:.0} requests/s that the servers can do at their mean \
         speed. p99 is of all responses of both clients in a run, from what the clients logged; \
         median (quartiles) of the repeats. Ratios are over static weights, between runs of the same \
         round with the same pages and the same changes of speed. The last two are of the policy's \
         parts alone: weights by latency with Maglev, and the less busy of two with static weights."
    ));
    if !results.more.shown.is_empty() {
        report = report.heading("A run with weights by latency, at the highest load");
        for figure in courses(&results.more.shown) {
            report = report.figure(figure);
        }
    }
    let runs = results.points.len() + results.more.discarded;
    report.text(format!(
        "Of {runs} runs {} did not count, because a client does not trust its figures ({}).",
        results.more.discarded,
        percent(Some(results.more.discarded as f64 / runs.max(1) as f64)),
    ))
}

fn table(summary: &Summary) -> Table {
    let parts = [
        ("", &summary.per_load),
        (VISITS, &summary.visits),
        (", equal servers", &summary.equal),
    ];
    let rows = parts.into_iter().flat_map(|(of, steps)| {
        let each = steps.iter();
        each.map(move |(load, step)| (format!("{load} %{of}"), step))
    });
    type Row<'a> = (String, &'a Step);
    let unknown = || "–".to_owned();
    let spread = |of: &BTreeMap<Policy, Spread>, policy| {
        let text = |s: &Spread| {
            let [median, q1, q3] = [s.median, s.q1, s.q3].map(duration);
            format!("{median} ({q1} – {q3})")
        };
        of.get(&policy).map_or_else(unknown, text)
    };
    let ratio = |(_, step): &Row<'_>, policy| {
        let of_it = step.ratios.get(&policy);
        of_it.map_or_else(unknown, |ratio| Ratio::text(Some(ratio)))
    };
    use Policy::{Choices, Latency, Static, Weights};
    Table::of(
        rows,
        &[
            ("load", &|(load, _)| load.clone()),
            ("p99, static", &|(_, step)| spread(&step.p99_ns, Static)),
            ("p99, by latency", &|(_, step)| {
                spread(&step.p99_ns, Latency)
            }),
            ("p50, static", &|(_, step)| spread(&step.p50_ns, Static)),
            ("p50, by latency", &|(_, step)| {
                spread(&step.p50_ns, Latency)
            }),
            ("ratio of p99", &|row| ratio(row, Latency)),
            ("weights alone", &|row| ratio(row, Weights)),
            ("two choices alone", &|row| ratio(row, Choices)),
        ],
    )
}

fn over_load(summary: &Summary) -> Figure {
    let x = Axis::new("load, % of the capacity", Unit::Number(0)).reaching(88.0);
    let y = Axis::new("p99", Unit::Duration);
    let title = "99th percentile of response latency";
    let mut figure = Figure::new("p99-over-load.svg", title, x, y);
    for policy in Policy::ALL {
        let (label, color, shift) = policy.look();
        let steps = summary.per_load.iter();
        let steps = steps.filter_map(|(&load, step)| {
            let p99 = step.p99_ns.get(&policy)?;
            Some((f64::from(load) + shift, *p99))
        });
        let medians: Vec<_> = steps.clone().map(|(x, p99)| (x, p99.median)).collect();
        if !medians.is_empty() {
            let points = steps.map(|(x, p99)| (x, p99.q1, p99.q3)).collect();
            figure = figure
                .measured(label, color, medians)
                .layer(Layer::Whiskers { color, points });
        }
    }
    figure
}

fn courses(shown: &[Course]) -> [Figure; 3] {
    let figure = |file, title, y, of: fn(&Course) -> &Vec<(f64, f64)>| {
        let servers = shown.iter().zip(PARTS);
        servers.fold(Figure::over_time(file, title, y), |figure, (one, color)| {
            figure.line(&one.server, color, of(one).clone())
        })
    };
    let share = |name| Axis::new(name, Unit::Percent);
    let estimated = "Latency as the balancer estimates it";
    [
        figure("speeds.svg", "Servers' speeds", share("of the CPU"), |c| {
            &c.speed
        }),
        figure(
            "shares.svg",
            "Shares of the slots",
            share("of the slots"),
            |c| &c.share,
        ),
        figure("latencies.svg", estimated, Axis::latency(), |c| {
            &c.latency_ns
        }),
    ]
}
