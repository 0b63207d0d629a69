//! What tuning does and knows as Prometheus metrics.

use std::collections::HashMap;

use batchwise_bpf::{Control, monotonic_ns};
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::tune::report::{Advice, Known};
use batchwise_core::tune::{Arm, Knob};

use super::decisions;
use super::service::{Counts, Service};
use crate::frame::human::word;
use crate::frame::metrics::{self, Family, Labels, Metrics, alone, seconds, with};

/// What `batchwise tune` serves: a copy of what matters, as scrapes come at any time.
#[derive(Debug, Default)]
pub struct TuneMetrics {
    services: Vec<Tuned>,
    left_alone: u64,
    lost_events: u64,
    log_lines_dropped: u64,
}

/// One side of a service.
#[derive(Debug)]
struct Tuned {
    labels: Labels,
    knob: Knob,
    nagle: Arm,
    acks_soon: bool,
    /// On, then off, as the last test found.
    known: [(Arm, Option<Known>); 2],
    /// Requests a second.
    load: f64,
    connections: usize,
    gain: Option<f64>,
    tested_s: f64,
    budget_left_s: f64,
    advice: Option<Advice>,
    counts: Counts,
}

impl TuneMetrics {
    /// Takes the place of what was served before.
    pub fn tick(
        &mut self,
        services: &HashMap<ServiceKey, Service>,
        left_alone: u64,
        lost_events: u64,
        log_lines_dropped: u64,
    ) {
        let mut keys: Vec<_> = services.iter().collect();
        keys.sort_unstable_by_key(|(key, _)| **key);
        let tuned = |(key, service): (&ServiceKey, &Service)| {
            let labels = metrics::service(key.server.to_string(), key.netns, key.side);
            Tuned::new(labels, service)
        };
        self.services = keys.into_iter().map(tuned).collect();
        self.left_alone = left_alone;
        self.lost_events = lost_events;
        self.log_lines_dropped = log_lines_dropped;
    }
}

impl Tuned {
    fn new(labels: Labels, service: &Service) -> Self {
        let controller = &service.controller;
        Self {
            labels,
            knob: service.knob,
            nagle: service.nagle(),
            acks_soon: service.control(service.arm) == Some(Control::AckSoon),
            known: [Arm::On, Arm::Off].map(|arm| (arm, decisions::known(service, arm))),
            load: service.messages().0,
            connections: service.sockets.len(),
            gain: controller
                .last()
                .map(|(outcome, _)| outcome.gain.min(decisions::MOST_GAIN)),
            tested_s: controller.tested_lately(monotonic_ns()) as f64 / 1e9,
            budget_left_s: controller.budget_left(monotonic_ns()) / 1e9,
            advice: service.advice(),
            counts: service.counts,
        }
    }

    /// What is known of each arm of Nagle's algorithm, with the arm as a label.
    fn arms(&self) -> impl Iterator<Item = (Labels, &Known)> {
        let known = self.known.iter().filter(|_| self.knob == Knob::Nagle);
        known.filter_map(|(arm, known)| {
            Some((
                with(self.labels.clone(), "nagle", &word(arm)),
                known.as_ref()?,
            ))
        })
    }

    fn states(&self) -> impl Iterator<Item = (Labels, f64)> {
        [Arm::On, Arm::Off].into_iter().map(|arm| {
            let labels = with(self.labels.clone(), "state", &word(&arm));
            (labels, f64::from(u8::from(arm == self.nagle)))
        })
    }

    fn advice(&self) -> Option<(Labels, f64)> {
        let name = word(&self.advice?);
        Some((with(self.labels.clone(), "advice", &name), 1.0))
    }

    fn outcomes(&self) -> impl Iterator<Item = (Labels, u64)> {
        let t = &self.counts;
        [("adopt", t.adopted), ("keep", t.kept), ("abort", t.aborted)]
            .into_iter()
            .map(|(outcome, n)| (with(self.labels.clone(), "outcome", outcome), n))
    }
}

impl Metrics for TuneMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::gauge(
            "tune_nagle",
            "Whether Nagle's algorithm is in this state: the arm in force",
            |m| m.services.iter().flat_map(Tuned::states).collect(),
        ),
        Family::gauge(
            "tune_acks_soon",
            "1: how long acknowledgments wait is cut short",
            |m| m.of_services(|s| f64::from(u8::from(s.acks_soon))),
        ),
        Family::seconds(
            "tune_latency",
            "Mean latency of a message in the last test, with Nagle's algorithm on and off",
            |m| m.of_arms(|known| Some(seconds(known.latency_ns))),
        ),
        Family::gauge(
            "tune_confidence",
            "Share of the last test's pairs that say what it says; 0: it was undecided",
            |m| m.of_arms(|known| Some(known.confidence)),
        ),
        Family::gauge(
            "tune_messages_per_second",
            "Messages a second in the last test, with Nagle's algorithm on and off",
            |m| m.of_arms(|known| Some(known.throughput_per_s)),
        ),
        Family::gauge(
            "tune_capacity_per_second",
            "Messages a second that one CPU of the applications at this end would carry, with Nagle's algorithm on and off",
            |m| m.of_arms(|known| known.capacity_per_s),
        ),
        Family::gauge(
            "tune_gain",
            "How many times better the setting that was not asked for was in the last test",
            |m| {
                let gains = m.services.iter();
                gains
                    .filter_map(|s| Some((s.labels.clone(), s.gain?)))
                    .collect()
            },
        ),
        Family::gauge(
            "tune_load_per_second",
            "Requests a second; before the first test, segments with data that were sent",
            |m| m.of_services(|s| s.load),
        ),
        Family::gauge("tune_connections", "Connections that are open", |m| {
            m.of_services(|s| s.connections as f64)
        }),
        Family::seconds(
            "tune_tests_last_minute",
            "How much of the last minute tests took",
            |m| m.of_services(|s| s.tested_s),
        ),
        Family::seconds(
            "tune_budget_left",
            "How much of the last minute tests may still take",
            |m| m.of_services(|s| s.budget_left_s),
        ),
        Family::gauge(
            "tune_advice",
            "1: what to change in the application, by its name on the page about advice",
            |m| m.services.iter().filter_map(Tuned::advice).collect(),
        ),
        Family::counter(
            "tune_switches",
            "Changes of the setting in force, those of tests included",
            |m| m.of_services(|s| s.counts.switches),
        ),
        Family::counter(
            "tune_trials",
            "Tests of the other setting, by how they ended",
            |m| m.services.iter().flat_map(Tuned::outcomes).collect(),
        ),
        Family::gauge(
            "tune_connections_left_alone",
            "Connections of services for which there is no room: 1024 have it",
            |m| alone(m.left_alone as f64),
        ),
        Family::counter(
            "lost_events",
            "Events that this agent lost since it started",
            |m| alone(m.lost_events),
        ),
        Family::counter(
            "log_lines_dropped",
            "Lines of the log that were dropped, such as on a full disk",
            |m| alone(m.log_lines_dropped),
        ),
    ];
}

impl TuneMetrics {
    fn of_services<T>(&self, value: fn(&Tuned) -> T) -> Vec<(Labels, T)> {
        let services = self.services.iter();
        services.map(|s| (s.labels.clone(), value(s))).collect()
    }

    fn of_arms(&self, value: fn(&Known) -> Option<f64>) -> Vec<(Labels, f64)> {
        let arms = self.services.iter().flat_map(Tuned::arms);
        arms.filter_map(|(labels, known)| Some((labels, value(known)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use batchwise_core::sense::report::Side;

    use super::*;
    use crate::frame::metrics::testing::{Example, assert_samples, served};

    impl Example for TuneMetrics {
        fn example() -> Self {
            let mut both = tuned();
            both.known[1].1 = both.known[0].1;
            Self {
                services: vec![both],
                ..Self::default()
            }
        }
    }

    fn tuned() -> Tuned {
        let known = Known {
            acks_per_message: 1.0,
            latency_ns: 34_120,
            throughput_per_s: 5_012.0,
            capacity_per_s: Some(40_000.0),
            confidence: 0.9,
            age_ns: 0,
        };
        Tuned {
            labels: metrics::service("10.0.0.2:6379".to_owned(), 4_026_531_840, Side::Client),
            knob: Knob::Nagle,
            nagle: Arm::On,
            acks_soon: false,
            known: [(Arm::On, Some(known)), (Arm::Off, None)],
            load: 5_012.5,
            connections: 12,
            gain: Some(1.25),
            tested_s: 0.5,
            budget_left_s: 0.7,
            advice: Some(Advice::NodelayCosts),
            counts: Counts {
                switches: 7,
                adopted: 1,
                kept: 2,
                aborted: 3,
            },
        }
    }

    #[test]
    fn a_scrape_holds_what_tuning_knows_in_base_units() {
        let body = served(TuneMetrics {
            services: vec![tuned()],
            ..TuneMetrics::default()
        });
        let service = r#"service="10.0.0.2:6379",side="client",netns="4026531840""#;
        let samples = [
            format!("batchwise_tune_nagle{{{service},state=\"on\"}} 1.0"),
            format!("batchwise_tune_nagle{{{service},state=\"off\"}} 0.0"),
            format!("batchwise_tune_latency_seconds{{{service},nagle=\"on\"}} 0.00003412"),
            format!("batchwise_tune_confidence{{{service},nagle=\"on\"}} 0.9"),
            format!("batchwise_tune_load_per_second{{{service}}} 5012.5"),
            format!("batchwise_tune_connections{{{service}}} 12.0"),
            format!("batchwise_tune_tests_last_minute_seconds{{{service}}} 0.5"),
            format!("batchwise_tune_budget_left_seconds{{{service}}} 0.7"),
            format!("batchwise_tune_advice{{{service},advice=\"BW-NODELAY-COSTS\"}} 1.0"),
            format!("batchwise_tune_switches_total{{{service}}} 7"),
            format!("batchwise_tune_trials_total{{{service},outcome=\"adopt\"}} 1"),
            format!("batchwise_tune_trials_total{{{service},outcome=\"keep\"}} 2"),
            format!("batchwise_tune_trials_total{{{service},outcome=\"abort\"}} 3"),
            format!("batchwise_tune_messages_per_second{{{service},nagle=\"on\"}} 5012.0"),
            format!("batchwise_tune_capacity_per_second{{{service},nagle=\"on\"}} 40000.0"),
            format!("batchwise_tune_gain{{{service}}} 1.25"),
            "batchwise_lost_events_total 0".to_owned(),
        ];
        assert_samples(&body, &samples);
        let unknown = r#"nagle="off""#;
        assert!(!body.contains(unknown), "an arm that is not known: {body}");
    }
}
