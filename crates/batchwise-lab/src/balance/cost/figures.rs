//! Report of the balance-cost experiment.

use std::collections::BTreeMap;

use anyhow::Result;
use maud::html;

use super::Case;
use super::summary::{BARS, PerProgram, Summary};
use crate::frame::Frame;
use crate::report::{Table, interval, quartiles};
use crate::stats::Spread;

/// Whether bars hold, in words.
fn bars(held: PerProgram<Option<bool>>) -> String {
    let word = |held: Option<bool>| match held {
        Some(true) => "keeps it",
        Some(false) => "misses it",
        None => "is not known",
    };
    format!(
        "{} without measuring and {} with it",
        word(held.plain),
        word(held.measured)
    )
}

/// Writes the report.
pub(super) fn write(
    frame: &Frame<'_>,
    complete: bool,
    summary: &Summary,
    memory: &BTreeMap<String, u64>,
) -> Result<()> {
    let mut times = Table::new([
        "packets of",
        "nothing, ns",
        "balanced, ns",
        "and measured, ns",
        "the program's own, ns",
        "and measuring, ns",
        "measuring adds, ns",
    ]);
    let shown = |spread: Option<Spread>| spread.map_or_else(String::new, quartiles);
    for case in Case::ALL {
        let of = &summary.cases[case.name()];
        times.row([
            case.name().to_owned(),
            shown(of.nothing_ns),
            shown(of.gross_ns.plain),
            shown(of.gross_ns.measured),
            interval(of.ns.plain),
            interval(of.ns.measured),
            interval(of.measuring_ns),
        ]);
    }
    let mut maps = Table::new(["map", "bytes"]);
    for (name, bytes) in memory {
        maps.row([name.clone(), bytes.to_string()]);
    }
    let rate = |of: Option<f64>| of.map_or_else(String::new, |r| format!("{:.2} M/s", r / 1e6));
    let body = html! {
        h2 { "Time of a packet" }
        (times.html())
        p {
            "Medians with quartiles; a program's own time is the median of the rounds' differences \
             to a program that does nothing, with a 95 % bootstrap interval. A small program makes \
             of the one frame of BPF_PROG_TEST_RUN the next packet of its flow, takes off what was \
             put around it in the last run, and calls what is measured; it runs in all arms alike. \
             Bars, for a warm flow by any way out: " (BARS.plain) " ns and " (BARS.measured)
            " ns with measuring; by the slowest way out the program's own time " (bars(summary.bars))
            ", all of the time, as it stands in the columns \"balanced\" and \"and measured\", "
            (bars(summary.gross_bars)) ". The last two cases send real frames to another interface."
        }
        h2 { "Packets a second on one core" }
        p {
            "Redirected unseen: " (rate(summary.packets_per_s_unbalanced)) "; balanced by layer 2: "
            (rate(summary.packets_per_s.plain)) "; and measured: "
            (rate(summary.packets_per_s.measured)) "."
        }
        h2 { "Memory for 65,536 flows" }
        (maps.html())
        p {
            (format!("{:.0}", summary.bytes_per_flow.plain)) " bytes a flow, "
            (format!("{:.0}", summary.bytes_per_flow.measured)) " with measuring (the paper's Table 1: \
             154 for measuring), and " (summary.bytes_per_service) " bytes a service."
        }
    };
    frame.write_report(
        complete,
        "Balance cost: time of a packet in the load balancer",
        "One packet at a time through BPF_PROG_TEST_RUN, with the balancer, with the balancer that \
         measures, and with a program that does nothing; the arms of a round run one after another \
         in random order.",
        &body,
    )
}
