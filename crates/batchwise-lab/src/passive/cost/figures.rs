//! Figures and report of the passive-cost experiment.

use anyhow::Result;
use maud::{Markup, html};

use super::summary::{Summary, throughput_ratios};
use super::{Case, Point, Program};
use crate::frame::Frame;
use crate::plot::{self, NAGLE, NODELAY, Strip};
use crate::report::{Table, figure, interval, quartiles};

/// Writes the plot and the report.
pub(super) fn write(
    frame: &Frame<'_>,
    complete: bool,
    points: &[Point],
    summary: &Summary,
) -> Result<()> {
    let strips =
        [(Program::Passive, NODELAY), (Program::Tail, NAGLE)].map(|(program, color)| Strip {
            label: format!("{program:?}"),
            color,
            values: throughput_ratios(points, program),
        });
    let svg = plot::ratios(
        "Forwarding throughput over that of the same round without",
        "throughput ratio",
        &strips,
    )?;
    frame.context.output.write("forwarding.svg", &svg)?;
    let body = html! {
        h2 { "Time added to a packet" }
        (cases(summary))
        p {
            "Medians with quartiles; what is added is the median of the rounds' differences with a \
             95 % bootstrap interval. The time of BPF_PROG_TEST_RUN holds a small program that \
             makes each packet another flow's or the next of its flow; it runs in both arms."
        }
        @if let Some(ns) = summary.statistics_ns_per_packet {
            p {
                "By the kernel's run-time statistics, of a UDP flood over the link, above a program \
                 that does nothing: " (format!("{ns:.0}")) " ns a packet."
            }
        }
        h2 { "Forwarding" }
        (figure(&svg))
        h2 { "Beside the paper's Table 1" }
        (table_1(summary))
        p {
            "Absolute times of different machines do not compare; what measuring adds to the same \
             machine's forwarding does, roughly."
        }
    };
    frame.write_report(
        complete,
        "Passive cost: what the vantage adds to each packet",
        "One packet at a time through BPF_PROG_TEST_RUN, with the measuring program and with one \
         that does nothing in its place; the arms of a round run one after another in random order.",
        &body,
    )
}

fn cases(summary: &Summary) -> Markup {
    let mut table = Table::new([
        "packets of",
        "nothing, ns",
        "passive, ns",
        "added, ns",
        "throughput ratio",
    ]);
    for (name, case) in &summary.cases {
        table.row([
            (*name).into(),
            case.nothing_ns.map_or_else(String::new, quartiles),
            case.passive_ns.map_or_else(String::new, quartiles),
            interval(case.added_ns),
            interval(case.throughput_ratio),
        ]);
    }
    table.html()
}

fn table_1(summary: &Summary) -> Markup {
    let mut table = Table::new(["", "paper", "here"]);
    let forward = &summary.cases[Case::Forward.name()];
    let rows = [
        (
            "Redirect, ns",
            "871".into(),
            forward.nothing_ns.map(|s| format!("{:.0}", s.median)),
        ),
        (
            "tail call adds, ns",
            "151 (Katran: 11)".into(),
            Some(interval(forward.tail_added_ns)),
        ),
        (
            "measuring adds (with its tail call), ns",
            "525 (Katran: 329)".into(),
            Some(interval(forward.added_ns)),
        ),
        (
            "memory of a flow, bytes",
            String::from("154"),
            Some(format!("{:.1}", summary.bytes_per_flow)),
        ),
        (
            "with the events' buffer and all other maps",
            String::from("–"),
            Some(format!("{:.1}", summary.bytes_per_flow_with_all_maps)),
        ),
    ];
    for (what, paper, here) in rows {
        table.row([what.into(), paper, here.unwrap_or_default()]);
    }
    table.html()
}
