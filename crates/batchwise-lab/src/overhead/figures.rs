//! Figures and report of the overhead experiment.

use anyhow::Result;
use maud::{Markup, html};

use super::summary::Summary;
use super::{Arm, HookCost, Runs};
use crate::frame::Frame;
use crate::plot::{self, NAGLE, NODELAY, Strip};
use crate::report::{Table, figure, interval, quartiles};
use crate::rounds::ratios;

/// Writes the plot and the report.
pub(super) fn write(
    frame: &Frame<'_>,
    complete: bool,
    measured: &Runs,
    summary: &Summary,
) -> Result<()> {
    let strips = [(Arm::Watch, NODELAY), (Arm::WatchExchange, NAGLE)].map(|(arm, color)| Strip {
        label: arm.name().into(),
        color,
        values: ratios(&measured.points, arm, Arm::Off, |p| p.rps),
    });
    let svg = plot::ratios(
        "Throughput over that of the same round with nothing attached",
        "throughput ratio",
        &strips,
    )?;
    frame.context.output.write("throughput-ratio.svg", &svg)?;
    let body = html! {
        h2 { "Summary" }
        (arms(summary))
        p {
            "Medians with quartiles; ratios are medians of the rounds' ratios with a 95 % bootstrap \
             interval. Hook time is from the kernel's own statistics in a separate run, for a \
             request at one of its two endpoints; the statistics add to it. \
             With a watcher at each end, both ends being on one machine, the tracepoints of each \
             also run for the sockets of the other, which they skip."
        }
        (figure(&svg))
        h2 { "Time inside the hooks" }
        @for cost in &measured.hooks { (hooks(cost)) }
    };
    frame.write_report(
        complete,
        "Overhead: what watching costs Redis",
        "redis-benchmark, 64-byte SETs, 10 connections, one request in flight on each; the arms of \
         a round run one after another in random order.",
        &body,
    )
}

fn arms(summary: &Summary) -> Markup {
    let mut table = Table::new([
        "arm",
        "requests/s",
        "ratio",
        "server CPU, ns/request",
        "ratio",
        "client CPU, ns/request",
        "ratio",
        "hooks, ns/request",
    ]);
    for (name, arm) in &summary.arms {
        table.row([
            (*name).into(),
            quartiles(arm.rps),
            interval(arm.throughput_ratio),
            quartiles(arm.server_cpu_ns_per_request),
            interval(arm.server_cpu_ratio),
            quartiles(arm.client_cpu_ns_per_request),
            interval(arm.client_cpu_ratio),
            arm.hook_ns_per_request
                .map_or_else(|| "–".into(), |ns| format!("{ns:.0}")),
        ]);
    }
    table.html()
}

fn hooks(cost: &HookCost) -> Markup {
    let mut table = Table::new(["program", "runs", "ns per run", "runs per request"]);
    for program in &cost.programs {
        table.row([
            program.name.clone(),
            program.runs.to_string(),
            format!("{:.0}", program.ns_per_run),
            format!("{:.2}", program.runs_per_request),
        ]);
    }
    html! {
        h3 { (cost.arm.name()) ": " (format!("{:.0}", cost.ns_per_request)) " ns per request and endpoint" }
        (table.html())
    }
}
