//! How `batchwise passive` shows an interval: a row for each server, epochs of flows above them; and
//! what people are told at the end.

use std::fmt::Write as _;

use batchwise_core::passive::report::{EpochLine, Line, ServerLine, TotalsLine};
use ratatui::style::Stylize;
use ratatui::text::Span;

use super::interval::{Interval, Key, classes, pressure};
use super::summary::{Overall, Summary};
use crate::frame::human;
use crate::frame::rows::{Column, JsonLines, TextTable, View, confidence, lost, name, plain};

/// From here on a table that fills up is worth a warning.
const PRESSURE: f64 = 0.9;

fn number(n: u64) -> Span<'static> {
    plain(n.to_string())
}

fn time(ns: Option<u64>) -> Span<'static> {
    plain(human::maybe_duration(ns))
}

fn stalled(flows: u64) -> Span<'static> {
    match flows {
        0 => number(0),
        n => number(n).bold().red(),
    }
}

impl View for Interval {
    type Row = (Key, ServerLine);

    const COLUMNS: &'static [Column<Self::Row>] = &[
        Column::left("time", 9, |(_, l): &Self::Row| plain(human::clock(l.ts_ns))).text_only(),
        Column::left("server", 21, |(_, l)| name(l.server.clone())),
        Column::left("proto", 5, |(_, l)| plain(human::word(&l.transport))),
        Column::right("flows", 6, |(_, l)| number(l.flows)),
        Column::right("batches", 9, |(_, l): &Self::Row| number(l.batches)).text_only(),
        Column::right("mean", 8, |(_, l)| time(l.latency_ns.mean).bold()),
        Column::right("p50", 8, |(_, l)| time(l.latency_ns.p50)),
        Column::right("p90", 8, |(_, l)| time(l.latency_ns.p90)),
        Column::right("p99", 8, |(_, l)| time(l.latency_ns.p99)),
        Column::right("confidence", 10, |(_, l)| confidence(l.confidence)),
        Column::right("idle", 6, |(_, l): &Self::Row| number(l.idle)).text_only(),
        Column::right("resent", 7, |(_, l): &Self::Row| number(l.resent)).text_only(),
        Column::right("stalled", 7, |(_, l)| stalled(l.stalled_flows)),
        Column::right("lost", 9, |(_, l): &Self::Row| number(l.lost_events)).text_only(),
    ];
    const NAME: &'static str = "passive";
    const WAITING: &'static str =
        "a server appears here when the first epoch of one of its flows closes";

    fn rows(&self) -> Vec<&Self::Row> {
        self.servers.iter().collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        for epoch in &self.epochs {
            lines.push(&Line::Epoch(epoch.clone()))?;
        }
        for (_, server) in &self.servers {
            lines.push(&Line::Server(server.clone()))?;
        }
        if self.over {
            lines.push(&Line::Totals(self.totals))?;
        }
        Ok(())
    }

    fn notes(&self) -> String {
        self.epochs.iter().map(epoch).collect()
    }

    fn is_waiting(&self) -> bool {
        self.servers.is_empty() && !self.over
    }

    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        let totals = &self.totals;
        let mut right = lost(totals.lost_events);
        if totals.evicted > 0 {
            right.push(format!("{} flows evicted   ", totals.evicted).yellow());
        }
        let pressure = pressure(totals);
        let table = format!("table {:.0} % full   ", pressure * 100.0);
        right.push(if pressure >= PRESSURE {
            table.bold().red()
        } else {
            table.dim()
        });
        if totals.ts_ns > 0 {
            right.push(human::clock(totals.ts_ns).dim());
        }
        (vec![self.place.clone().dim()], right)
    }

    fn recent((_, line): &Self::Row) -> Option<(String, Vec<Option<u64>>)> {
        let key = format!("{} {}", line.server, human::word(&line.transport));
        Some((key, vec![line.latency_ns.mean]))
    }
}

fn epoch(epoch: &EpochLine) -> String {
    let transport = epoch.transport.map(|t| human::word(&t));
    let transport = transport.as_deref().unwrap_or(human::UNKNOWN);
    format!(
        "{:9}  {} -> {}  {}  {}  pauses {}  batches {}  confidence {:.2}\n",
        human::clock(epoch.ts_ns),
        epoch.client.as_deref().unwrap_or(human::UNKNOWN),
        epoch.server.as_deref().unwrap_or(human::UNKNOWN),
        transport,
        human::maybe_duration(epoch.latency_ns),
        human::maybe_duration(epoch.ibg_ns),
        epoch.batches,
        epoch.confidence
    )
}

/// What a row says of a server over the whole run.
pub const OVERALL: &[Column<Overall>] = &[
    Column::left("server", 21, |o| plain(o.key.0.to_string())),
    Column::left("proto", 5, |o| plain(human::word(&o.key.1))),
    Column::right("flows", 6, |o| number(o.flows)),
    Column::right("epochs", 6, |o| number(o.epochs)),
    Column::right("batches", 9, |o| number(o.batches)),
    Column::right("mean", 8, |o| time(o.latency().mean)),
    Column::right("p50", 8, |o| time(o.latency().p50)),
    Column::right("p90", 8, |o| time(o.latency().p90)),
    Column::right("p99", 8, |o| time(o.latency().p99)),
    Column::right("confidence", 10, |o| confidence(o.confidence())),
    Column::right("idle", 6, |o| number(o.idle)),
    Column::right("resent", 7, |o| number(o.resent)),
    Column::right("stalled", 7, |o| number(o.stalled)),
    Column::right("discarded", 9, |o| number(o.discarded)),
];

/// What a person is told at the end: each server over the whole time, and the counts.
pub fn ending(summary: &Summary, totals: &TotalsLine) -> String {
    let servers: Vec<&Overall> = summary.servers().collect();
    let mut text = String::from("\nIn all:\n");
    if servers.is_empty() {
        text.push_str("no epoch of any flow closed: no server was measured\n");
    }
    text += &TextTable::new(OVERALL).rows(&servers);
    let classes = classes(totals).map(|(name, n)| format!("{n} {name}"));
    // writing to a String does not fail
    let _ = writeln!(text, "{} packets: {}", totals.packets, classes.join(", "));
    let _ = writeln!(
        text,
        "{} flows began, {} gave way to others, {} of {} places in use; {} events lost",
        totals.born, totals.evicted, totals.flows_live, totals.flows_capacity, totals.lost_events
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::frame::rows::LiveTable;
    use crate::frame::rows::picture::picture;

    fn json(interval: &Interval) -> Vec<serde_json::Value> {
        let text = JsonLines::of(interval).expect("JSON");
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON")
    }

    #[test]
    fn json_lines_begin_with_their_kind_and_unknown_is_null() {
        let interval = Interval {
            epochs: vec![EpochLine::new(5, &samples::epoch())],
            over: true,
            ..samples::interval()
        };
        let text = JsonLines::of(&interval).expect("JSON");
        let kinds: Vec<_> = text.lines().map(|l| l.split('"').nth(3)).collect();
        let expected = ["epoch", "server", "server", "totals"].map(Some);
        assert_eq!(kinds, expected, "{text}");
        let lines = json(&interval);
        assert_eq!(lines[0]["client"], "10.0.0.2:40000");
        assert_eq!(lines[0]["modes"][1]["marked"], 900);
        assert_eq!(lines[1]["server"], "10.0.0.1:80");
        assert_eq!(lines[1]["vantage"], "path");
        assert_eq!(lines[1]["estimator"], "passive");
        assert_eq!(lines[1]["latency_ns"]["p99"], 2_300_000);
        assert!(lines[2]["latency_ns"]["mean"].is_null());
        assert_eq!(lines[3]["flows_capacity"], 60);
        assert_eq!(
            json(&samples::interval()).len(),
            2,
            "totals come at the end"
        );
    }

    #[test]
    fn every_server_is_a_row_with_its_numbers_and_its_recent_means() {
        let mut view = LiveTable::new(String::new());
        let mut slow = samples::interval();
        slow.servers[0].1.latency_ns.mean = Some(4_000_000);
        view.show(&slow);
        view.show(&samples::interval());
        let text = picture(110, 12, |frame| view.draw(frame));
        let row = text.lines().find(|l| l.contains("10.0.0.1:80"));
        let row = row.expect("a row");
        for cell in [
            "tcp", "12", "1.01 ms", "980 µs", "1.40 ms", "2.30 ms", "0.92", "█▃",
        ] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        let stalled = text.lines().find(|l| l.contains("[2001:db8::17]:443"));
        let stalled = stalled.expect("a row");
        assert!(stalled.contains("–") && stalled.contains("··"), "{stalled}");
        for part in ["7 events lost", "2 flows evicted", "table 25 % full"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn the_ending_names_every_server_and_every_class_of_packets() {
        let mut summary = Summary::default();
        summary.epoch(samples::KEY, &samples::epoch());
        summary.interval(&samples::interval().servers);
        let text = ending(&summary, &samples::interval().totals);
        assert!(text.contains("10.0.0.1:80"), "{text}");
        assert!(
            text.contains("20000 packets: 15000 measured, 4000 ack"),
            "{text}"
        );
        let nothing = ending(&Summary::default(), &TotalsLine::default());
        assert!(nothing.contains("no server was measured"), "{nothing}");
    }
}
