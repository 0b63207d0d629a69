//! The demo's plots and report, from its results.

use anyhow::Result;
use batchwise_core::sense::report::Side;
use maud::html;

use super::display::{error, estimator, nagle, one_cpu};
use super::moment::Moment;
use super::plan::{VALUE_SIZE, climb};
use super::{Climb, Results, plots};
use crate::output::Output;
use crate::plot::{maybe_duration, thousands};
use crate::report::{Page, Table, figure, percent};

/// Writes the plots and the report.
pub fn write(output: &Output, results: &Results<'_>, reproduce: &str) -> Result<()> {
    let (points, network) = (results.points, results.network);
    let figures = [
        ("arms.svg", plots::arms(points)?),
        ("load.svg", plots::load(points)?),
        ("latency.svg", plots::latency(points)?),
        ("stages-client.svg", plots::stages(points, Side::Client)?),
        ("stages-server.svg", plots::stages(points, Side::Server)?),
    ];
    for (name, svg) in &figures {
        output.write(name, svg)?;
    }
    let (foot, top) = climb();
    let lead = format!(
        "Redis over a veth pair, SETs of {VALUE_SIZE} B values on one connection, open loop. The \
         load climbs from {} to {}/s without Nagle's algorithm (TCP_NODELAY), then with it, then with \
         batchwise choosing while it runs. batchwise runs at both ends and looks at TCP queues only; the load generator measures \
         every request.",
        thousands(foot as f64),
        thousands(top as f64)
    );
    let page = Page {
        title: "Demo: estimated beside measured latency, and what it is good for",
        lead: &lead,
        machine: results.machine,
        facts: network.facts(),
        complete: results.complete,
        reproduce,
    };
    let mut errors = Table::new(["estimated at", "median error", "p90 error", "seconds"]);
    for side in [Side::Client, Side::Server] {
        let Some(end) = results.summary.per_end.get(&side) else {
            continue;
        };
        let name = match side {
            Side::Client => "the client's end",
            Side::Server => "the server's end",
        };
        errors.row([
            name.into(),
            percent(end.median_abs_rel_error),
            percent(end.p90_abs_rel_error),
            end.moments.to_string(),
        ]);
    }
    let doubt = |climb: &Climb| -> Vec<_> {
        let setting = climb.arm.label();
        let why = climb.report.why_invalid.iter();
        why.map(|why| format!("{setting}: {why}")).collect()
    };
    let doubts: Vec<String> = results.climbs.iter().flat_map(doubt).collect();
    let body = html! {
        @if let Some(note) = one_cpu(results.machine) { p class="warn" { (note) } }
        h2 { "What was seen" }
        @for sentence in &results.summary.sentences { p { (sentence) } }
        (errors.html())
        p {
            "Errors are of the mean since the actual send, over the seconds in which at least 98 % \
             of the offered load was answered and a request took at most 5 ms since it was due."
        }
        @for (_, svg) in &figures { (figure(svg)) }
        @if !doubts.is_empty() {
            h3 { "What the load generator says of its own numbers" }
            p { "It speaks of a climb as a whole; beyond the limit it must have doubts." }
            ul { @for doubt in &doubts { li { (doubt) } } }
        }
        details { summary { "Every second" } (every_second(points).html()) }
    };
    output.write("report.html", &page.html(&body))
}

fn every_second(points: &[Moment]) -> Table {
    let mut table = Table::new([
        "time",
        "Nagle",
        "offered",
        "achieved",
        "since due",
        "since sent",
        "client's estimate",
        "error",
        "how",
        "confidence",
        "server's estimate",
        "error",
        "how",
        "confidence",
        "",
    ]);
    for point in points {
        let end = |side| {
            let found = point.end(side);
            [
                maybe_duration(found.and_then(|e| e.total_ns)),
                error(point, side),
                found.map_or("–", estimator).into(),
                found.map_or_else(|| "–".into(), |e| format!("{:.2}", e.confidence)),
            ]
        };
        let [total, off, how, confidence] = end(Side::Client);
        let [server_total, server_off, server_how, server_confidence] = end(Side::Server);
        table.row([
            format!("{:.0} s", point.at_s),
            format!("{}: {}", point.arm.label(), nagle(point.nagle)),
            thousands(point.offered_rps.round()),
            thousands(point.truth.achieved_rps.round()),
            maybe_duration(point.truth.mean_from_intended_ns),
            maybe_duration(point.truth.mean_from_send_ns),
            total,
            off,
            how,
            confidence,
            server_total,
            server_off,
            server_how,
            server_confidence,
            if point.saturated { "too much" } else { "" }.into(),
        ]);
    }
    table
}
