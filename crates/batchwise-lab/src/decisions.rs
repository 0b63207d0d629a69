//! Decisions over time as parts of a plot: when Nagle's algorithm worked, and what was tried.

use batchwise_core::sense::report::Side;
use batchwise_core::tune::report::{Decision, DecisionEvent};
use plotters::style::RGBColor;

use crate::engine::Figure;

/// Events that are marked, and their colours.
const MARKED: [(DecisionEvent, &str, RGBColor); 4] = [
    (DecisionEvent::Probe, "probe", RGBColor(120, 120, 120)),
    (DecisionEvent::Abort, "abort", RGBColor(200, 30, 30)),
    (DecisionEvent::Adopt, "adopt", RGBColor(34, 128, 72)),
    (DecisionEvent::GiveBack, "give_back", RGBColor(32, 96, 168)),
];

/// Adds to a figure over seconds since `zero` when Nagle's algorithm worked, and what was tried.
pub fn draw(figure: Figure, label: &str, decisions: &[Decision], zero: u64, end: u64) -> Figure {
    let figure = figure.shade(label, &nagle_times(decisions, zero, end));
    let events = events(decisions, zero, end).into_iter();
    events.fold(figure, |figure, (label, color, at)| {
        figure.events(label, color, &at)
    })
}

/// When Nagle's algorithm worked at the client's end, in seconds since `zero` (ns since the Unix
/// epoch), up to `end`.
fn nagle_times(decisions: &[Decision], zero: u64, end: u64) -> Vec<(f64, f64)> {
    let with_nagle = crate::tuner::in_force(decisions, Side::Client, zero, end)
        .filter(|(decision, ..)| decision.nagle_on());
    join(with_nagle.map(|(_, from, to)| (seconds(from, zero), seconds(to, zero))))
}

/// Times in their order, those that touch made one.
pub fn join(times: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (from, to) in times {
        match joined.last_mut().filter(|last| last.1 >= from) {
            Some(last) => last.1 = to,
            None => joined.push((from, to)),
        }
    }
    joined
}

/// What the client's agent tried and decided, by kind, in seconds since `zero`.
fn events(decisions: &[Decision], zero: u64, end: u64) -> Vec<(String, RGBColor, Vec<f64>)> {
    let of_kind = |(event, name, color): (DecisionEvent, &str, RGBColor)| {
        let of_client = decisions.iter().filter(|d| d.side == Side::Client);
        let times = of_client
            .filter(|d| d.event == event && (zero..end).contains(&d.ts_ns))
            .map(|d| seconds(d.ts_ns, zero));
        (name.to_owned(), color, times.collect())
    };
    MARKED.map(of_kind).into()
}

fn seconds(ts_ns: u64, zero: u64) -> f64 {
    (ts_ns - zero) as f64 / 1e9
}

#[cfg(test)]
pub mod samples {
    //! Decisions for tests.

    use batchwise_core::tune::report::{Arms, InForce};
    use batchwise_core::tune::{Arm, Knob};

    use super::*;

    /// One of the client's agent, at so many seconds. The applications ask for TCP_NODELAY.
    pub fn decision(at_s: f64, event: DecisionEvent, nagle: InForce) -> Decision {
        Decision {
            ts_ns: (at_s * 1e9) as u64,
            service: "10.77.0.1:6379".into(),
            netns: 0,
            side: Side::Client,
            event,
            policy: "latency".into(),
            nagle,
            lever: None,
            app_setting: Arm::Off,
            load_per_s: 1e5,
            message_bytes: 100.0,
            arms: Arms {
                on: None,
                off: None,
            },
            gain: None,
            message_cpu_ns: None,
            segment_cpu_ns: None,
            pairs: 0,
            budget_left_ns: 0.0,
            knob: Knob::Nagle,
            delack: InForce::App,
            advice: None,
            dry_run: false,
            why: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use batchwise_core::tune::report::InForce;

    use super::samples::decision;
    use super::*;

    #[test]
    fn times_with_nagle_are_joined_and_cut_to_the_plot() {
        let decisions = [
            decision(0.5, DecisionEvent::Probe, InForce::On),
            decision(1.5, DecisionEvent::Adopt, InForce::On),
            decision(3.0, DecisionEvent::GiveBack, InForce::App),
            decision(4.0, DecisionEvent::Probe, InForce::On),
        ];
        let second = 1_000_000_000;
        assert_eq!(
            nagle_times(&decisions, second, 5 * second),
            [(0.0, 2.0), (3.0, 4.0)]
        );
        let events = events(&decisions, second, 5 * second);
        assert_eq!(events[0].2, [3.0]);
        assert_eq!(events[2].2, [0.5]);
    }
}
