//! Report of the balance-cost experiment.

use std::collections::BTreeMap;

use super::Program;
use super::summary::Summary;
use crate::engine::text::{name, quartiles};
use crate::engine::{Report, Table, Verdict};
use crate::stats::{MedianInterval, Spread};

pub(super) fn report(summary: &Summary, memory: &BTreeMap<String, u64>) -> Report {
    let shown = |spread: Option<Spread>| spread.map_or_else(String::new, quartiles);
    let interval = |ns: Option<MedianInterval>| {
        let text =
            |ns: MedianInterval| format!("{:.0} ({:.0} – {:.0})", ns.median, ns.low, ns.high);
        ns.map_or_else(String::new, text)
    };
    use Program::{Measured, Plain};
    let times = Table::of(
        &summary.cases,
        &[
            ("packets of", &|(case, _)| name(case)),
            ("nothing, ns", &|(_, of)| shown(of.nothing_ns)),
            ("balanced, ns", &|(_, of)| shown(of.gross_ns[&Plain])),
            ("and measured, ns", &|(_, of)| shown(of.gross_ns[&Measured])),
            ("the program's own, ns", &|(_, of)| interval(of.ns[&Plain])),
            ("and measuring, ns", &|(_, of)| interval(of.ns[&Measured])),
            ("measuring adds, ns", &|(_, of)| interval(of.measuring_ns)),
        ],
    );
    let maps = memory.iter();
    let maps = maps.map(|(name, bytes)| vec![name.clone(), bytes.to_string()]);
    let rate = |of: Option<f64>| of.map_or_else(String::new, |r| format!("{:.2} M/s", r / 1e6));
    let words = |of: &BTreeMap<Program, Verdict>| {
        let [plain, measured] = [of[&Plain], of[&Measured]].map(Verdict::name);
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
        Plain.bar(),
        Measured.bar(),
        words(&summary.verdicts),
        words(&summary.gross_verdicts),
    ))
    .heading("Packets a second on one core")
    .text(format!(
        "Redirected unseen: {}; balanced by layer 2: {}; and measured: {}.",
        rate(summary.packets_per_s_unbalanced),
        rate(summary.packets_per_s[&Plain]),
        rate(summary.packets_per_s[&Measured])
    ))
    .heading("Memory for 65,536 flows")
    .table(Table::new(["map", "bytes"]).with(maps))
    .text(format!(
        "{:.0} bytes a flow, {:.0} with measuring (the paper's Table 1: 154 for measuring), and {} \
         bytes a service.",
        summary.bytes_per_flow[&Plain],
        summary.bytes_per_flow[&Measured],
        summary.bytes_per_service
    ))
}
