//! Plot and report of `tune-cost`.

use anyhow::Result;
use maud::html;

use super::summary::{Summary, ratios};
use super::{OPEN_RATE, Point};
use crate::frame::Frame;
use crate::plot::{self, BATCHWISE, NODELAY, Strip, thousands};
use crate::report::{Table, figure, interval, percent, quartiles};
use crate::stats::Spread;

/// Writes the plot and the report.
pub(super) fn write(
    frame: &Frame<'_>,
    complete: bool,
    points: &[Point],
    summary: &Summary,
) -> Result<()> {
    let strips = [
        Strip {
            label: "throughput".into(),
            color: BATCHWISE,
            values: ratios(points, |p| p.rps),
        },
        Strip {
            label: "server CPU, open loop".into(),
            color: NODELAY,
            values: ratios(points, |p| p.open_server_cpu_ns_per_request),
        },
    ];
    let title = "With agents over without, in the same round";
    let svg = plot::ratios(title, "ratio", &strips)?;
    frame.context.output.write("ratios.svg", &svg)?;
    let body = html! {
        h2 { "Summary" }
        (table(summary).html())
        p {
            "Medians of the rounds' ratios with a 95 % bootstrap interval, over " (summary.rounds)
            " rounds. Throughput and the first CPU figure are of redis-benchmark, the others of an \
             open loop of " (thousands(OPEN_RATE as f64)) "/s; CPU time is that of the server \
             process. Both agents together, which run beside the workloads, took "
            (percent(summary.agents_cpu_share)) " of a CPU."
        }
        (figure(&svg))
    };
    frame.write_report(
        complete,
        "Tune cost: what tuning costs where it has nothing to gain",
        "redis-benchmark, 64-byte SETs, 10 connections, one request in flight on each, which \
         Nagle's algorithm never delays; an agent at each host, or none, in random order.",
        &body,
    )
}

fn table(summary: &Summary) -> Table {
    let mut table = Table::new(["", "with agents / without", "without", "with"]);
    let spread = |s: Option<Spread>| s.map_or_else(String::new, quartiles);
    table.row([
        "requests/s".into(),
        interval(summary.throughput),
        spread(summary.rps_off),
        spread(summary.rps_on),
    ]);
    for (name, value) in [
        ("requests/s while the agents learn", summary.learning),
        ("server CPU per request", summary.server_cpu),
        ("open loop: server CPU per request", summary.open_server_cpu),
        ("open loop: mean latency", summary.open_latency),
    ] {
        table.row([name.into(), interval(value), String::new(), String::new()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::Agents;
    use super::super::summary::tests::point;
    use super::*;

    #[test]
    fn the_table_shows_the_ratio_with_its_interval() {
        let points = [point(0, Agents::Off, 100.0), point(0, Agents::On, 98.0)];
        let html = table(&Summary::of(&points)).html().into_string();
        assert!(html.contains("0.980 (0.980 – 0.980)"), "{html}");
    }
}
