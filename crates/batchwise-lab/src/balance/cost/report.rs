//! Report of the balance-cost experiment.

use std::collections::BTreeMap;

use super::super::name;
use super::Case;
use super::summary::{BARS, PerProgram, Summary};
use crate::engine::text::quartiles;
use crate::engine::{Report, Table, Verdict};
use crate::stats::{MedianInterval, Spread};

pub(super) fn report(summary: &Summary, memory: &BTreeMap<String, u64>) -> Report {
    let shown = |spread: Option<Spread>| spread.map_or_else(String::new, quartiles);
    let interval = |ns: Option<MedianInterval>| {
        let text =
            |ns: MedianInterval| format!("{:.0} ({:.0} – {:.0})", ns.median, ns.low, ns.high);
        ns.map_or_else(String::new, text)
    };
    let times = Case::all().map(|case| {
        let of = &summary.cases[&case];
        vec![
            name(case),
            shown(of.nothing_ns),
            shown(of.gross_ns.plain),
            shown(of.gross_ns.measured),
            interval(of.ns.plain),
            interval(of.ns.measured),
            interval(of.measuring_ns),
        ]
    });
    let times = Table::new([
        "packets of",
        "nothing, ns",
        "balanced, ns",
        "and measured, ns",
        "the program's own, ns",
        "and measuring, ns",
        "measuring adds, ns",
    ])
    .with(times);
    let maps = memory.iter();
    let maps = maps.map(|(name, bytes)| vec![name.clone(), bytes.to_string()]);
    let rate = |of: Option<f64>| of.map_or_else(String::new, |r| format!("{:.2} M/s", r / 1e6));
    let words = |of: PerProgram<Verdict>| {
        let [plain, measured] = [of.plain, of.measured].map(Verdict::name);
        format!("**{plain}** without measuring, **{measured}** with it")
    };
    Report::new(
        "Balance cost: time of a packet in the load balancer",
        "One packet at a time through BPF_PROG_TEST_RUN, with the balancer, with the balancer that \
         measures, and with a program that does nothing; the arms of a round run one after another \
         in random order.",
    )
    .heading("Time of a packet")
    .table(times)
    .text(
        "Medians with quartiles; a program's own time is the median of the rounds' differences \
         to a program that does nothing, with a 95 % bootstrap interval. A small program makes \
         of the one frame of BPF_PROG_TEST_RUN the next packet of its flow, takes off what was \
         put around it in the last run, and calls what is measured; it runs in all arms alike. The \
         last two cases send real frames to another interface."
    )
    .text(format!(
        "Bars, for a warm flow by any way out: {} ns, and {} ns with measuring. The program's own time \
         by the slowest way out: {}. All of the time, as in the columns “balanced” and “and measured”: {}.",
        BARS.plain,
        BARS.measured,
        words(summary.verdicts),
        words(summary.gross_verdicts),
    ))
    .heading("Packets a second on one core")
    .text(format!(
        "Redirected unseen: {}; balanced by layer 2: {}; and measured: {}.",
        rate(summary.packets_per_s_unbalanced),
        rate(summary.packets_per_s.plain),
        rate(summary.packets_per_s.measured)
    ))
    .heading("Memory for 65,536 flows")
    .table(Table::new(["map", "bytes"]).with(maps))
    .text(format!(
        "{:.0} bytes a flow, {:.0} with measuring (the paper's Table 1: 154 for measuring), and {} \
         bytes a service.",
        summary.bytes_per_flow.plain, summary.bytes_per_flow.measured, summary.bytes_per_service
    ))
}
