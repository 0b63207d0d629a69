//! Lines for people without a terminal to draw on: aligned columns, one row a line.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use batchwise_core::sense::report::Line;

use super::{Sink, Watched, human, parts, pipe};

/// The header is repeated after this many rows, so that it stays in sight.
const HEADER_EVERY: usize = 40;

/// Writes every [`Line`] as a row of a table.
pub struct Plain<W> {
    out: W,
    waiting: String,
    rows: usize,
    service_width: usize,
}

impl<W: Write> Plain<W> {
    /// A sink that writes to `out`, and first `waiting` if there is no traffic yet.
    pub fn new(out: W, waiting: String) -> Self {
        Self {
            out,
            waiting: waiting + "\n",
            rows: 0,
            service_width: 21,
        }
    }

    fn header(&self) -> String {
        let width = self.service_width;
        format!(
            "{:9}  {:width$}  {:6}  {:>12}  {:>8}  {:>8}  {:>10}  {:>13}  {:>11}  {:>14}  {:>10}  \
             {:9}  {:>5}  {:5}  {:>4}\n",
            "time",
            "service",
            "side",
            "rate",
            "total",
            "network",
            "turnaround",
            "stacks + wire",
            "unread here",
            "unread at peer",
            "confidence",
            "estimator",
            "conns",
            "nagle",
            "lost",
        )
    }

    fn row(&self, line: &Line) -> String {
        let [transit, here, peer, _] = parts::parts(line);
        let rate = format!(
            "{} {}",
            human::rate(line.throughput_per_s),
            parts::per_second(line.unit)
        );
        let width = self.service_width;
        format!(
            "{:9}  {:width$}  {:6}  {:>12}  {:>8}  {:>8}  {:>10}  {:>13}  {:>11}  {:>14}  {:>10.2}  \
             {:9}  {:>5}  {:5}  {:>4}\n",
            human::clock(line.ts_ns),
            name(line),
            parts::side(line.side),
            rate,
            human::maybe_duration(line.latency_ns.total),
            human::maybe_duration(line.latency_ns.network),
            human::maybe_duration(line.latency_ns.turnaround),
            transit.text(),
            here.text(),
            peer.text(),
            line.confidence,
            parts::estimator(line.estimator),
            line.connections,
            parts::nagle(line.nagle),
            line.lost_events,
        )
    }
}

/// The connection where there is one: it contains the service.
fn name(line: &Line) -> &str {
    line.connection.as_deref().unwrap_or(&line.service)
}

impl<W: Write + Watched> Sink for Plain<W> {
    fn interval(&mut self, lines: &[Line]) -> anyhow::Result<()> {
        let mut text = String::new();
        if lines.is_empty() {
            text.push_str(&std::mem::take(&mut self.waiting));
        } else {
            self.waiting.clear();
        }
        let widest = lines
            .iter()
            .map(|line| name(line).chars().count())
            .max()
            .unwrap_or(0);
        let wider = widest > self.service_width;
        self.service_width = self.service_width.max(widest);
        for (index, line) in lines.iter().enumerate() {
            if self.rows.is_multiple_of(HEADER_EVERY) || (index == 0 && wider) {
                text.write_str(&self.header())?;
            }
            text.write_str(&self.row(line))?;
            self.rows += 1;
        }
        pipe::write_all(&mut self.out, text.as_bytes())
    }

    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        self.out.closed_within(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn text(intervals: &[&[Line]]) -> String {
        let mut sink = Plain::new(Vec::new(), "waiting for traffic on port 6379…".to_owned());
        for lines in intervals {
            sink.interval(lines).expect("a Vec takes everything");
        }
        String::from_utf8(sink.out).expect("text is UTF-8")
    }

    #[test]
    fn rows_are_aligned_under_their_header() {
        let text = text(&[&[samples::two_sided(), samples::local()]]);
        assert_eq!(text, include_str!("testdata/plain.txt"));
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{widths:?}");
    }

    #[test]
    fn silence_is_announced_once_and_only_before_the_first_traffic() {
        let text = text(&[&[], &[], &[samples::two_sided()], &[]]);
        assert_eq!(text.matches("waiting for traffic on port 6379…").count(), 1);
        assert!(text.starts_with("waiting"));
    }

    #[test]
    fn the_header_comes_back_after_a_screenful() {
        let line = [samples::two_sided()];
        let intervals = vec![&line[..]; HEADER_EVERY + 1];
        assert_eq!(text(&intervals).matches("unread here").count(), 2);
    }

    #[test]
    fn a_connection_is_named_in_full_and_moves_the_columns_once() {
        let connection = "10.0.0.1:40000 -> 10.0.0.2:6379";
        let line = Line {
            connection: Some(connection.to_owned()),
            ..samples::two_sided()
        };
        let lines = [line];
        let text = text(&[&lines, &lines]);
        assert_eq!(text.matches(connection).count(), 2);
        assert_eq!(text.matches("unread here").count(), 1);
    }
}
