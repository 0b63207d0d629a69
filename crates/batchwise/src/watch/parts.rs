//! A line's latency as the consecutive parts that people see, and the words for its properties:
//! what the text and the terminal view have in common.

use batchwise_core::sense::report::{Estimator, Line, Unit, View};

use crate::frame::human;

/// Where a request spends its time, in the order in which the views show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Both directions through the stacks and over the wire: unacked − ackdelay.
    Transit,
    /// In the receive queue of this end's sockets.
    UnreadHere,
    /// In the receive queue of the peer's sockets.
    UnreadPeer,
    /// Between reading a request and sending its response.
    Application,
}

impl Stage {
    /// Every stage, in display order.
    pub const ALL: [Self; 4] = [
        Self::Transit,
        Self::UnreadHere,
        Self::UnreadPeer,
        Self::Application,
    ];

    /// The name in legends.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Transit => "stacks + wire",
            Self::UnreadHere => "unread here",
            Self::UnreadPeer => "unread at peer",
            Self::Application => "application",
        }
    }
}

/// The mean time spent in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where.
    pub stage: Stage,
    /// How long, ns; `None` is "not known".
    pub ns: Option<u64>,
    /// `ns` includes the peer's acknowledgment delay, which is not known.
    pub upper_bound: bool,
}

impl Part {
    /// The time as people read it: "18.2 µs", "≤18.2 µs" or "–".
    pub fn text(&self) -> String {
        let bound = if self.upper_bound { "≤" } else { "" };
        format!("{bound}{}", human::maybe_duration(self.ns))
    }
}

/// The parts of a line's latency, one for each of [`Stage::ALL`].
pub fn parts(line: &Line) -> [Part; 4] {
    let stages = &line.stages_ns;
    Stage::ALL.map(|stage| {
        let ns = match stage {
            Stage::Transit => stages
                .unacked
                .map(|ns| ns.saturating_sub(stages.ackdelay_remote.unwrap_or(0))),
            Stage::UnreadHere => stages.unread_local,
            Stage::UnreadPeer => stages.unread_remote,
            Stage::Application => line.latency_ns.turnaround,
        };
        let upper_bound =
            stage == Stage::Transit && ns.is_some() && stages.ackdelay_remote.is_none();
        Part {
            stage,
            ns,
            upper_bound,
        }
    })
}

/// What the estimate rests on, in words.
pub const fn estimate(line: &Line) -> &'static str {
    match (line.estimator, line.view) {
        (Estimator::TwoSided, Some(View::Remote)) => "two-sided, peer's view",
        (Estimator::TwoSided, _) => "two-sided",
        (Estimator::Local, _) => "local: this end only",
        (Estimator::Hint, _) => "application's hint",
    }
}

/// What the throughput counts each second: a send is taken for a request.
pub const fn per_second(unit: Unit) -> &'static str {
    match unit {
        Unit::Sends => "req/s",
        Unit::Bytes => "B/s",
        Unit::Packets => "pkt/s",
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
