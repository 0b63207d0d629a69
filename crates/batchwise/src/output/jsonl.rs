//! Lines for programs: one JSON object a line, flushed after every interval.

use std::io::Write;
use std::time::Duration;

use batchwise_core::sense::report::Line;

use super::{Sink, Watched, pipe};

/// Writes every [`Line`] as one JSON object on a line of its own.
pub struct Jsonl<W> {
    out: W,
}

impl<W: Write> Jsonl<W> {
    /// A sink that writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write + Watched> Sink for Jsonl<W> {
    fn interval(&mut self, lines: &[Line]) -> anyhow::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        pipe::write_all(&mut self.out, &text)
    }

    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        self.out.closed_within(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn lines_come_back_from_json_as_they_went_in() {
        let lines = [samples::two_sided(), samples::local()];
        let mut sink = Jsonl::new(Vec::new());
        sink.interval(&lines).expect("a Vec takes everything");
        let text = String::from_utf8(sink.out).expect("JSON is UTF-8");
        let read: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("valid JSON"))
            .collect();
        assert_eq!(read, lines);
    }

    #[test]
    fn a_part_that_is_not_known_is_null() {
        let mut sink = Jsonl::new(Vec::new());
        sink.interval(&[samples::local()])
            .expect("a Vec takes everything");
        let json: serde_json::Value = serde_json::from_slice(&sink.out).expect("valid JSON");
        assert!(json["latency_ns"]["network"].is_null());
        assert!(json["stages_ns"]["unread_remote"].is_null());
        assert_eq!(json["latency_ns"]["total"], 43_500);
    }

    #[test]
    fn an_interval_without_lines_writes_nothing() {
        let mut sink = Jsonl::new(Vec::new());
        sink.interval(&[]).expect("nothing to write");
        assert!(sink.out.is_empty());
    }
}
