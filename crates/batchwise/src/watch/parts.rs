//! A line's latency as the consecutive parts that people see, and the words for its properties:
//! what the text and the terminal view have in common.

use batchwise_core::sense::report::{Estimator, Line, Unit, View};
use ratatui::style::Color;

use crate::frame::human;

/// Where a request spends its time, and how long on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name in legends.
    pub label: &'static str,
    /// How bars have it: distinct without colour as well.
    pub glyph: &'static str,
    pub color: Color,
    /// How long, ns; `None` is "not known".
    pub ns: Option<u64>,
    /// `ns` includes the peer's acknowledgment delay, which is not known.
    pub upper_bound: bool,
}

impl Part {
    const fn new(label: &'static str, glyph: &'static str, color: Color, ns: Option<u64>) -> Self {
        Self {
            label,
            glyph,
            color,
            ns,
            upper_bound: false,
        }
    }

    /// The time as people read it: "18.2 µs", "≤18.2 µs" or "–".
    pub fn text(&self) -> String {
        let bound = if self.upper_bound { "≤" } else { "" };
        format!("{bound}{}", human::maybe_duration(self.ns))
    }
}

/// The parts of a line's latency, in the order in which the views show them.
pub fn parts(line: &Line) -> [Part; 4] {
    let stages = &line.stages_ns;
    let delay = stages.ackdelay_remote;
    // both directions through the stacks and over the wire
    let transit = stages
        .unacked
        .map(|ns| ns.saturating_sub(delay.unwrap_or(0)));
    [
        Part {
            upper_bound: transit.is_some() && delay.is_none(),
            ..Part::new("stacks + wire", "█", Color::Blue, transit)
        },
        Part::new("unread here", "▓", Color::Yellow, stages.unread_local),
        Part::new("unread at peer", "▒", Color::Magenta, stages.unread_remote),
        // between reading a request and sending its response
        Part::new("application", "░", Color::Green, line.latency_ns.turnaround),
    ]
}

/// What the estimate rests on, in words.
pub const fn estimate(line: &Line) -> &'static str {
    match (line.estimator, line.view) {
        (Estimator::TwoSided, Some(View::Remote)) => "two-sided, peer's view",
        (Estimator::TwoSided, _) => "two-sided",
        (Estimator::Local, _) => "local: this end only",
        (Estimator::Matched, _) => "matched: several requests at once, in order",
        (Estimator::Turns, _) => "turns: first send to last read",
        (Estimator::Hint, _) => "application's hint",
    }
}

/// What the throughput counts each second.
pub const fn per_second(line: &Line) -> &'static str {
    match (line.unit, line.estimator) {
        (Unit::Sends, Estimator::Turns | Estimator::Hint) => "req/s",
        (Unit::Sends, _) => "sends/s",
        (Unit::Bytes, _) => "B/s",
        (Unit::Packets, _) => "pkt/s",
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn transit_is_unacked_without_the_peers_acknowledgment_delay() {
        let line = samples::two_sided();
        let [transit, here, peer, application] = parts(&line);
        assert_eq!(transit.text(), "18.2 µs");
        assert!(!transit.upper_bound);
        assert_eq!([here.ns, peer.ns], [Some(3_100), Some(2_700)]);
        assert_eq!(application.ns, line.latency_ns.turnaround);
    }

    #[test]
    fn transit_without_a_known_acknowledgment_delay_is_an_upper_bound() {
        let [transit, _, peer, _] = parts(&samples::local());
        assert_eq!(transit.text(), "≤41.0 µs");
        assert_eq!(peer.text(), "–");
    }
}
