//! What `batchwise balance` serves to Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use batchwise_core::balance::UNIT;
use batchwise_core::balance::report::{BackendLine, Health, State};

use super::status::Status;
use crate::frame::human;
use crate::frame::metrics::{Family, Labels, Metrics, alone, seconds, with};

/// Sums since the agent's start.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    opened: u64,
    closed: u64,
    packets: u64,
    bytes: u64,
    samples: u64,
}

#[derive(Default)]
pub struct BalanceMetrics {
    status: Option<Status>,
    log_lines_dropped: u64,
    sums: BTreeMap<(String, String), Sums>,
}

impl BalanceMetrics {
    pub fn interval(&mut self, status: &Status, log_lines_dropped: u64) {
        let key = |b: &BackendLine| (b.service.clone(), b.backend.clone());
        for backend in &status.backends {
            let sums = self.sums.entry(key(backend)).or_default();
            sums.opened += backend.opened;
            sums.closed += backend.closed;
            sums.packets += backend.packets;
            sums.bytes += backend.bytes;
            sums.samples += backend.samples;
        }
        let there = |k: &(String, String)| status.backends.iter().any(|b| key(b) == *k);
        self.sums.retain(|k, _| there(k));
        self.status = Some(status.clone());
        self.log_lines_dropped = log_lines_dropped;
    }
}

fn labels(service: &str, backend: &str) -> Labels {
    vec![
        ("service", service.to_owned()),
        ("backend", backend.to_owned()),
    ]
}

impl Metrics for BalanceMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::gauge(
            "balance_weight",
            "Weight in force, on the scale of the configured one",
            |m| m.of_backends(|l| Some(f64::from(l.weight) / f64::from(UNIT))),
        ),
        Family::gauge("balance_base_weight", "Configured weight", |m| {
            m.of_backends(|l| Some(f64::from(l.base_weight)))
        }),
        Family::gauge(
            "balance_share_ratio",
            "Share of the service's slots, 0 to 1",
            |m| m.of_backends(|l| Some(l.share)),
        ),
        Family::gauge("balance_connections", "Active connections", |m| {
            m.of_backends(|l| l.connections.map(|n| n as f64))
        }),
        Family::gauge(
            "balance_healthy",
            "1: health checks pass, or there are none; 0: they do not",
            |m| {
                m.of_backends(|l| match l.health {
                    Health::Up | Health::Unchecked => Some(1.0),
                    Health::Down => Some(0.0),
                    Health::Unknown => None,
                })
            },
        ),
        Family::gauge(
            "balance_draining",
            "1: it is drained and gets no new connections; 0: it is not",
            |m| m.of_backends(|l| Some(f64::from(u8::from(l.state == State::Draining)))),
        ),
        Family::gauge(
            "balance_freshness_ratio",
            "Responses in the interval over active connections",
            |m| m.of_backends(|l| l.freshness),
        ),
        Family::gauge(
            "balance_confidence",
            "How far to trust the latency, 0 (guess) to 1",
            |m| m.of_backends(|l| l.confidence),
        ),
        Family::seconds(
            "balance_latency",
            "Response latency by the last estimate",
            |m| m.backends().flat_map(latencies).collect(),
        ),
        Family::seconds("balance_latency_age", "Age of the last estimate", |m| {
            m.of_backends(|l| l.age_ns.map(seconds))
        }),
        Family::counter(
            "balance_connections_opened",
            "Connections that were opened",
            |m| m.of_sums(|s| s.opened),
        ),
        Family::counter(
            "balance_connections_closed",
            "Connections that were closed",
            |m| m.of_sums(|s| s.closed),
        ),
        Family::counter("balance_backend_packets", "Packets from clients", |m| {
            m.of_sums(|s| s.packets)
        }),
        Family::counter(
            "balance_backend_bytes",
            "Bytes of IP from clients, before encapsulation",
            |m| m.of_sums(|s| s.bytes),
        ),
        Family::counter(
            "balance_samples",
            "Responses of which the latency was estimated",
            |m| m.of_sums(|s| s.samples),
        ),
        Family::gauge(
            "balance_policy",
            "Who decides about weights: the one with the value 1",
            |m| {
                m.of_agent(|s| {
                    let policy = human::word(&s.agent.policy);
                    vec![(vec![("policy", policy)], 1.0)]
                })
            },
        ),
        Family::gauge(
            "balance_interface_attached",
            "1: what arrives there is forwarded; 0: the interface is gone, or took no program",
            |m| m.of_agent(attached),
        ),
        Family::gauge(
            "balance_config_generation",
            "Configurations that have been in force since the start",
            |m| m.of_agent(|s| alone(s.agent.generation as f64)),
        ),
        Family::gauge(
            "balance_config_last_reload_successful",
            "0: the last file was refused, the one before it is in force",
            |m| m.of_agent(|s| alone(f64::from(u8::from(s.agent.config_error.is_none())))),
        ),
        Family::gauge(
            "balance_flows_settled",
            "Connections that are remembered",
            |m| m.of_agent(|s| alone(s.totals.flows_settled as f64)),
        ),
        Family::gauge(
            "balance_flows_young",
            "Connections that have only begun",
            |m| m.of_agent(|s| alone(s.totals.flows_young as f64)),
        ),
        Family::counter("balance_packets", "Packets by what became of them", |m| {
            m.of_agent(|s| {
                let outcomes = s.totals.outcomes.iter();
                outcomes
                    .map(|(name, n)| (vec![("outcome", name.clone())], *n))
                    .collect()
            })
        }),
        Family::counter(
            "balance_unknown_flows",
            "Packets amid connections of which nothing was known",
            |m| m.of_agent(|s| alone(s.totals.unknown_flows)),
        ),
        Family::counter(
            "balance_insert_failures",
            "Connections that could not be remembered",
            |m| m.of_agent(|s| alone(s.totals.insert_failed)),
        ),
        Family::counter(
            "lost_events",
            "Events that this agent lost since it started",
            |m| m.of_agent(|s| alone(s.totals.lost_events)),
        ),
        Family::counter(
            "log_lines_dropped",
            "Lines of the log that were dropped, such as on a full disk",
            |m| alone(m.log_lines_dropped),
        ),
    ];
}

impl BalanceMetrics {
    /// Without those that leave and whose names have new owners.
    fn backends(&self) -> impl Iterator<Item = &BackendLine> {
        let mut seen = BTreeSet::new();
        let backends = self.status.iter().flat_map(|status| &status.backends);
        backends.filter(move |l| seen.insert((&l.service, &l.backend)))
    }

    fn of_backends(&self, value: fn(&BackendLine) -> Option<f64>) -> Vec<(Labels, f64)> {
        let sample = |l: &BackendLine| Some((labels(&l.service, &l.backend), value(l)?));
        self.backends().filter_map(sample).collect()
    }

    fn of_sums(&self, value: fn(&Sums) -> u64) -> Vec<(Labels, u64)> {
        let sums = self.sums.iter();
        sums.map(|((service, backend), s)| (labels(service, backend), value(s)))
            .collect()
    }

    /// Nothing before the first interval.
    fn of_agent<T>(&self, samples: fn(&Status) -> Vec<(Labels, T)>) -> Vec<(Labels, T)> {
        self.status.as_ref().map_or_else(Vec::new, samples)
    }
}

fn latencies(l: &BackendLine) -> Vec<(Labels, f64)> {
    let latency = &l.latency_ns;
    let quantiles = [
        ("mean", latency.mean),
        ("p50", latency.p50),
        ("p90", latency.p90),
        ("p99", latency.p99),
    ];
    let sample = |(name, ns): (&str, Option<u64>)| {
        let labels = with(labels(&l.service, &l.backend), "statistic", name);
        let labels = with(labels, "vantage", &l.vantage);
        Some((with(labels, "estimator", &l.estimator), seconds(ns?)))
    };
    quantiles.into_iter().filter_map(sample).collect()
}

fn attached(status: &Status) -> Vec<(Labels, f64)> {
    let agent = &status.agent;
    let sample = |name: &String| {
        let attached = !agent.detached.contains(name);
        let labels = vec![("interface", name.clone())];
        (labels, f64::from(u8::from(attached)))
    };
    agent.interfaces.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use batchwise_bpf::balance::Outcomes;

    use super::super::samples;
    use super::*;
    use crate::frame::metrics::Exporter;
    use crate::frame::metrics::testing::{Example, assert_well_formed, scrape};

    impl Example for BalanceMetrics {
        fn example() -> Self {
            let mut status = samples::status();
            let outcomes = Outcomes::default().by_name();
            status.totals.outcomes = outcomes.map(|(name, n)| (name.to_owned(), n)).into();
            let mut metrics = Self::default();
            metrics.interval(&status, 0);
            metrics
        }
    }

    #[test]
    fn a_scrape_is_well_formed_and_in_base_units() {
        let exporter = Exporter::<BalanceMetrics>::bind("127.0.0.1:0").expect("a free port");
        exporter.update(|m| {
            m.interval(&samples::status(), 0);
            m.interval(&samples::status(), 0);
        });
        let body = scrape(&exporter);
        assert_well_formed(&body);
        let s1 = r#"service="web",backend="s1""#;
        for sample in [
            format!("batchwise_balance_weight{{{s1}}} 92.5"),
            format!("batchwise_balance_share_ratio{{{s1}}} 0.9254"),
            format!("batchwise_balance_healthy{{{s1}}} 1.0"),
            format!("batchwise_balance_connections{{{s1}}} 12.0"),
            format!("batchwise_balance_connections_opened_total{{{s1}}} 6"),
            "batchwise_balance_healthy{service=\"web\",backend=\"s2\"} 0.0".to_owned(),
            format!(
                "batchwise_balance_latency_seconds{{{s1},statistic=\"p99\",vantage=\"path\",estimator=\"passive\"}} 0.0023"
            ),
            "batchwise_balance_packets_total{outcome=\"forwarded\"} 900".to_owned(),
            "batchwise_balance_config_generation 2.0".to_owned(),
            "batchwise_balance_interface_attached{interface=\"eth0\"} 1.0".to_owned(),
            "batchwise_balance_config_last_reload_successful 1.0".to_owned(),
        ] {
            assert!(
                body.lines().any(|line| line == sample),
                "{sample} is not in\n{body}"
            );
        }
        let unknown = "batchwise_balance_connections{service=\"web\",backend=\"s2\"}";
        assert!(!body.contains(unknown), "{body}");
    }

    #[test]
    fn one_that_leaves_is_not_mixed_up_with_a_new_owner_of_its_name() {
        let exporter = Exporter::<BalanceMetrics>::bind("127.0.0.1:0").expect("a free port");
        let mut status = samples::status();
        let leaving = |name: &str| BackendLine {
            backend: name.to_owned(),
            connections: Some(77),
            leaves_ns: Some(1),
            ..samples::backend()
        };
        status.backends.extend([leaving("s1"), leaving("s9")]);
        exporter.update(|m| m.interval(&status, 0));
        let body = scrape(&exporter);
        assert_well_formed(&body);
        for (name, connections) in [("s1", 12), ("s9", 77)] {
            let head =
                format!("batchwise_balance_connections{{service=\"web\",backend=\"{name}\"}} ");
            let of: Vec<&str> = body.lines().filter_map(|l| l.strip_prefix(&head)).collect();
            assert_eq!(of, [format!("{connections}.0")], "{name}");
        }
    }

    #[test]
    fn before_the_first_interval_a_scrape_is_well_formed() {
        let exporter = Exporter::<BalanceMetrics>::bind("127.0.0.1:0").expect("a free port");
        assert_well_formed(&scrape(&exporter));
    }
}
