//! A line's latency as the consecutive parts that people see, and the words for its properties:
//! what the text and the terminal view have in common.

use batchwise_core::sense::report::{Estimator, Line, Stages, Unit, View};
use ratatui::style::Color;

use crate::frame::human;

/// The names of parts in legends, in the order of [`parts`].
pub const LABELS: [&str; 4] = [
    "stacks + wire",
    "unread here",
    "unread at peer",
    "application",
];

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
            ..Part::new(LABELS[0], "█", Color::Blue, transit)
        },
        Part::new(LABELS[1], "▓", Color::Yellow, stages.unread_local),
        Part::new(LABELS[2], "▒", Color::Magenta, stages.unread_remote),
        // between reading a request and sending its response
        Part::new(LABELS[3], "░", Color::Green, line.latency_ns.turnaround),
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

/// What an operator is to know of a line beside its numbers; empty where there is nothing.
pub fn notes(line: &Line) -> String {
    let mut notes: Vec<String> = line.why.iter().cloned().collect();
    let advice = line.advice.as_ref();
    notes.extend(advice.map(|advice| format!("{} ({})", advice.text, human::word(&advice.id))));
    let through = line.oldest_ns.filter(|age| *age > line.interval_ns);
    if let (Some(requests), Some(age)) = (line.under_way, through) {
        let age = human::duration(age);
        notes.push(format!("{requests} under way, the oldest for {age}"));
    }
    let Stages {
        unsent, unacked, ..
    } = line.stages_ns;
    let whole = line.latency_ns.total.max(unacked).unwrap_or(0);
    let is_much = |ns: &u64| *ns > 0 && ns.saturating_mul(NOTED) >= whole;
    if let (None, Some(unsent)) = (advice, unsent.filter(is_much)) {
        notes.push(format!("{} unsent", human::duration(unsent)));
    }
    notes.join("; ")
}

/// What takes at least one in so many parts of a latency is worth a note.
const NOTED: u64 = 5;

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
    use batchwise_core::sense::report::{Advice, Diagnosis};

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
    fn notes_say_why_a_number_is_missing_what_hangs_and_what_nagle_holds() {
        assert_eq!(notes(&samples::two_sided()), "");
        let mut line = samples::local();
        line.stages_ns.unsent = Some(40_000);
        assert_eq!(notes(&line), "40.0 µs unsent");
        line.advice = Some(Diagnosis {
            id: Advice::NagleHolds,
            text: "held by Nagle's algorithm, 39.0 µs of 43.5 µs".into(),
            share: Some(0.9),
        });
        (line.under_way, line.oldest_ns) = (Some(3), Some(5_000_000_000));
        line.why = Some("requests are not answered".into());
        let all = "requests are not answered; held by Nagle's algorithm, 39.0 µs of 43.5 µs (BW-NAGLE-HOLDS); \
                   3 under way, the oldest for 5.00 s";
        assert_eq!(notes(&line), all);
    }

    #[test]
    fn transit_without_a_known_acknowledgment_delay_is_an_upper_bound() {
        let [transit, _, peer, _] = parts(&samples::local());
        assert_eq!(transit.text(), "≤41.0 µs");
        assert_eq!(peer.text(), "–");
    }
}
