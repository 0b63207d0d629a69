//! How `batchwise passive` shows intervals to programs (JSON lines) and as text.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use batchwise_core::passive::report::{Line, ServerLine, TotalsLine};

use super::interval::{Interval, classes, word};
use super::summary::{Overall, Summary};
use super::view::Table;
use crate::output::live::Live;
use crate::output::pipe::{self, Watched};
use crate::output::{Form, Sink, human};

/// The header is repeated after this many rows, so that it stays in sight.
const HEADER_EVERY: usize = 40;

/// Opens standard output. `place` says where packets are seen.
///
/// # Errors
/// The terminal cannot be taken over.
pub fn open(form: Form, place: String, waiting: String) -> anyhow::Result<Box<dyn Sink<Interval>>> {
    Ok(match form {
        Form::Live => Box::new(Live::open(Table::new(place, waiting))?),
        Form::Text => Box::new(Plain::new(io::stdout(), waiting)),
        Form::Jsonl => Box::new(Jsonl { out: io::stdout() }),
    })
}

/// Writes one JSON object a line.
struct Jsonl<W> {
    out: W,
}

impl<W: Write + Watched> Sink<Interval> for Jsonl<W> {
    fn interval(&mut self, interval: &Interval) -> anyhow::Result<()> {
        let epochs = interval.epochs.iter().cloned().map(Line::Epoch);
        let servers = interval.servers.iter().map(|(_, line)| line.clone());
        let servers = servers.map(Line::Server);
        let totals = interval.over.then_some(Line::Totals(interval.totals));
        let mut text = Vec::new();
        for line in epochs.chain(servers).chain(totals) {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        pipe::write_all(&mut self.out, &text)
    }

    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        self.out.closed_within(timeout)
    }
}

/// Writes every server of an interval as a row of a table.
struct Plain<W> {
    out: W,
    waiting: String,
    rows: usize,
    width: usize,
}

impl<W: Write> Plain<W> {
    fn new(out: W, mut waiting: String) -> Self {
        if !waiting.is_empty() {
            waiting.push('\n');
        }
        Self {
            out,
            waiting,
            rows: 0,
            width: 21,
        }
    }

    fn row(&self, line: &ServerLine) -> String {
        let latency = &line.latency_ns;
        cells(
            self.width,
            [
                human::clock(line.ts_ns),
                line.server.clone(),
                word(line.transport).to_owned(),
                line.flows.to_string(),
                line.batches.to_string(),
                human::maybe_duration(latency.mean),
                human::maybe_duration(latency.p50),
                human::maybe_duration(latency.p90),
                human::maybe_duration(latency.p99),
                confidence(line.confidence),
                line.idle.to_string(),
                line.resent.to_string(),
                line.stalled_flows.to_string(),
                line.lost_events.to_string(),
            ],
        )
    }
}

impl<W: Write + Watched> Sink<Interval> for Plain<W> {
    fn interval(&mut self, interval: &Interval) -> anyhow::Result<()> {
        let mut text = String::new();
        for epoch in &interval.epochs {
            writeln!(
                text,
                "{:9}  {} -> {}  {}  {}  pauses {}  batches {}  confidence {:.2}",
                human::clock(epoch.ts_ns),
                epoch.client.as_deref().unwrap_or(human::UNKNOWN),
                epoch.server.as_deref().unwrap_or(human::UNKNOWN),
                epoch.transport.map_or(human::UNKNOWN, word),
                human::maybe_duration(epoch.latency_ns),
                human::maybe_duration(epoch.ibg_ns),
                epoch.batches,
                epoch.confidence
            )?;
        }
        if interval.servers.is_empty() && !interval.over {
            text.push_str(&std::mem::take(&mut self.waiting));
        } else {
            self.waiting.clear();
        }
        let widths = interval.servers.iter().map(|(_, line)| line.server.len());
        let widest = widths.max().unwrap_or(0);
        let wider = widest > self.width;
        self.width = self.width.max(widest);
        for (index, (_, line)) in interval.servers.iter().enumerate() {
            if self.rows.is_multiple_of(HEADER_EVERY) || (index == 0 && wider) {
                text.push_str(&header(self.width, "time", "lost"));
            }
            text.push_str(&self.row(line));
            self.rows += 1;
        }
        pipe::write_all(&mut self.out, text.as_bytes())
    }

    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        self.out.closed_within(timeout)
    }
}

/// How far to trust, or a dash.
pub fn confidence(confidence: Option<f64>) -> String {
    confidence.map_or_else(|| human::UNKNOWN.to_owned(), |c| format!("{c:.2}"))
}

fn header(width: usize, first: &str, last: &str) -> String {
    let names = [
        first,
        "server",
        "proto",
        "flows",
        "batches",
        "mean",
        "p50",
        "p90",
        "p99",
        "confidence",
        "idle",
        "resent",
        "stalled",
        last,
    ];
    cells(width, names.map(str::to_owned))
}

fn cells(width: usize, cells: [String; 14]) -> String {
    let [time, server, proto, rest @ ..] = cells;
    let mut text = format!("{time:9}  {server:width$}  {proto:5}");
    let widths = [6, 9, 8, 8, 8, 8, 10, 6, 7, 7, 9];
    for (cell, width) in rest.iter().zip(widths) {
        // Writing to a String does not fail.
        let _ = write!(text, "  {cell:>width$}");
    }
    text + "\n"
}

/// What a person is told at the end: each server over the whole time, and the counts.
pub fn ending(summary: &Summary, totals: &TotalsLine) -> String {
    let mut text = String::from("\nIn all:\n");
    let names = summary
        .servers()
        .map(|((server, _), _)| server.to_string().len());
    let width = names.max().unwrap_or(0).max(21);
    let mut rows = 0;
    for ((server, transport), overall) in summary.servers() {
        if rows == 0 {
            text.push_str(&header(width, "", "discarded"));
        }
        rows += 1;
        let Overall { flows, batches, .. } = overall;
        let latency = overall.latency();
        text.push_str(&cells(
            width,
            [
                String::new(),
                server.to_string(),
                word(*transport).to_owned(),
                flows.to_string(),
                batches.to_string(),
                human::maybe_duration(latency.mean),
                human::maybe_duration(latency.p50),
                human::maybe_duration(latency.p90),
                human::maybe_duration(latency.p99),
                confidence(overall.confidence()),
                overall.idle.to_string(),
                overall.resent.to_string(),
                overall.stalled.to_string(),
                overall.discarded.to_string(),
            ],
        ));
    }
    if rows == 0 {
        text.push_str("no epoch of any flow closed: no server was measured\n");
    }
    let classes = classes(totals).map(|(name, n)| format!("{n} {name}"));
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
    use batchwise_core::passive::report::EpochLine;

    use super::super::samples;
    use super::*;

    fn json(interval: &Interval) -> Vec<serde_json::Value> {
        let mut sink = Jsonl { out: Vec::new() };
        sink.interval(interval).expect("a Vec takes everything");
        let text = String::from_utf8(sink.out).expect("JSON is UTF-8");
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON")
    }

    #[test]
    fn json_lines_begin_with_their_kind_and_unknown_is_null() {
        let interval = Interval {
            epochs: vec![EpochLine::new(5, &samples::epoch(), 0)],
            over: true,
            ..samples::interval()
        };
        let mut sink = Jsonl { out: Vec::new() };
        sink.interval(&interval).expect("a Vec takes everything");
        let text = String::from_utf8(sink.out).expect("JSON is UTF-8");
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
    }

    #[test]
    fn totals_come_only_at_the_end() {
        assert_eq!(json(&samples::interval()).len(), 2);
    }

    #[test]
    fn rows_are_aligned_under_their_header_and_silence_is_announced_once() {
        let mut sink = Plain::new(Vec::new(), "waiting…".to_owned());
        for interval in [
            &Interval::default(),
            &Interval::default(),
            &samples::interval(),
        ] {
            sink.interval(interval).expect("a Vec takes everything");
        }
        let text = String::from_utf8(sink.out).expect("text is UTF-8");
        assert_eq!(text.matches("waiting…").count(), 1, "{text}");
        let widths: Vec<usize> = text.lines().skip(1).map(|l| l.chars().count()).collect();
        assert_eq!(widths.len(), 3, "{text}");
        assert!(widths.iter().all(|w| *w == widths[0]), "{text}");
        assert!(text.contains("–"), "{text}");
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
