//! What `batchwise balance` serves to Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use batchwise_core::balance::UNIT;
use batchwise_core::balance::report::{BackendLine, Health, State};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::show;
use super::status::Status;
use crate::output::exporter::{Labels, Metrics, counters, gauges, seconds, with};

/// Sums since the agent's start.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    opened: u64,
    closed: u64,
    packets: u64,
    bytes: u64,
    samples: u64,
}

/// What is served.
#[derive(Default)]
pub struct BalanceMetrics {
    status: Option<Status>,
    sums: BTreeMap<(String, String), Sums>,
}

impl BalanceMetrics {
    /// An interval ended.
    pub fn interval(&mut self, status: &Status) {
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
    }
}

fn labels(service: &str, backend: &str) -> Labels {
    vec![
        ("service", service.to_owned()),
        ("backend", backend.to_owned()),
    ]
}

impl Metrics for BalanceMetrics {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(status) = &self.status else {
            return Ok(());
        };
        of_backends(encoder, &distinct(&status.backends))?;
        type Of = fn(&Sums) -> u64;
        let families: [(&str, &str, Of); 5] = [
            ("balance_connections_opened", "Connections opened", |s| {
                s.opened
            }),
            ("balance_connections_closed", "Connections closed", |s| {
                s.closed
            }),
            ("balance_backend_packets", "Packets from clients", |s| {
                s.packets
            }),
            (
                "balance_backend_bytes",
                "Bytes of IP from clients, before encapsulation",
                |s| s.bytes,
            ),
            (
                "balance_samples",
                "Responses of which the latency was estimated",
                |s| s.samples,
            ),
        ];
        for (name, help, of) in families {
            let sums = self.sums.iter();
            let values = sums.map(|((service, backend), s)| (labels(service, backend), of(s)));
            counters(encoder, name, help, values)?;
        }
        of_agent(encoder, status)
    }
}

/// Without those that leave and whose names have new owners.
fn distinct(backends: &[BackendLine]) -> Vec<&BackendLine> {
    let mut seen = BTreeSet::new();
    let mut distinct: Vec<&BackendLine> = backends.iter().collect();
    distinct.retain(|l| seen.insert((&l.service, &l.backend)));
    distinct
}

fn of_backends(encoder: &mut DescriptorEncoder<'_>, backends: &[&BackendLine]) -> fmt::Result {
    let of = |line: &BackendLine| labels(&line.service, &line.backend);
    type Of = fn(&BackendLine) -> Option<f64>;
    let families: [(&str, &str, Of); 8] = [
        (
            "balance_weight",
            "Weight in force, as configured weights are",
            |l| Some(f64::from(l.weight) / f64::from(UNIT)),
        ),
        ("balance_base_weight", "Configured weight", |l| {
            Some(f64::from(l.base_weight))
        }),
        (
            "balance_share_ratio",
            "Of the service's slots, 0 to 1",
            |l| Some(l.share),
        ),
        ("balance_connections", "Active connections", |l| {
            l.connections.map(|n| n as f64)
        }),
        (
            "balance_healthy",
            "1: health checks pass, or there are none; 0: they do not",
            |l| match l.health {
                Health::Up | Health::Unchecked => Some(1.0),
                Health::Down => Some(0.0),
                Health::Unknown => None,
            },
        ),
        (
            "balance_draining",
            "1: it gets no new connections by the operator's will",
            |l| Some(f64::from(u8::from(l.state == State::Draining))),
        ),
        (
            "balance_freshness_ratio",
            "Responses in the interval over active connections",
            |l| l.freshness,
        ),
        (
            "balance_confidence",
            "How far to trust the latency, 0 (guess) to 1",
            |l| l.confidence,
        ),
    ];
    for (name, help, value) in families {
        let values = backends.iter().filter_map(|l| Some((of(l), value(l)?)));
        gauges(encoder, (name, None), help, values)?;
    }
    let latencies = backends.iter().flat_map(|l| {
        let latency = &l.latency_ns;
        let quantiles = [
            ("mean", latency.mean),
            ("p50", latency.p50),
            ("p90", latency.p90),
            ("p99", latency.p99),
        ];
        quantiles.into_iter().filter_map(move |(name, ns)| {
            let labels = with(labels(&l.service, &l.backend), "statistic", name);
            let labels = with(
                with(labels, "vantage", &l.vantage),
                "estimator",
                &l.estimator,
            );
            Some((labels, seconds(ns?)))
        })
    });
    gauges(
        encoder,
        ("balance_latency", Some(Unit::Seconds)),
        "Response latency by the last estimate",
        latencies,
    )?;
    gauges(
        encoder,
        ("balance_latency_age", Some(Unit::Seconds)),
        "Age of the last estimate",
        backends
            .iter()
            .filter_map(|l| Some((of(l), seconds(l.age_ns?)))),
    )
}

fn of_agent(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let (agent, totals) = (&status.agent, &status.totals);
    let policy = with(Labels::new(), "policy", show::policy(agent.policy));
    gauges(
        encoder,
        ("balance_policy", None),
        "Who decides about weights: the one with the value 1",
        std::iter::once((policy, 1.0)),
    )?;
    let attached = agent.interfaces.iter().map(|name| {
        let value = f64::from(u8::from(!agent.detached.contains(name)));
        (vec![("interface", name.clone())], value)
    });
    gauges(
        encoder,
        ("balance_interface_attached", None),
        "1: what arrives there is forwarded; 0: the interface is gone, or took no program",
        attached,
    )?;
    for (name, help, value) in [
        (
            "balance_config_generation",
            "Configurations that have been in force since the start",
            agent.generation as f64,
        ),
        (
            "balance_config_last_reload_successful",
            "0: the last file was refused, the one before it is in force",
            f64::from(u8::from(agent.config_error.is_none())),
        ),
        (
            "balance_flows_settled",
            "Connections that are remembered",
            totals.flows_settled as f64,
        ),
        (
            "balance_flows_young",
            "Connections that have only begun",
            totals.flows_young as f64,
        ),
    ] {
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)
            .and_then(|encoder| ConstGauge::new(value).encode(encoder))?;
    }
    counters(
        encoder,
        "balance_packets",
        "Packets by what became of them",
        totals
            .outcomes
            .iter()
            .map(|(name, n)| (vec![("outcome", name.clone())], *n)),
    )?;
    for (name, help, value) in [
        (
            "balance_unknown_flows",
            "Packets amid connections of which nothing was known",
            totals.unknown_flows,
        ),
        (
            "balance_insert_failures",
            "Connections that could not be remembered",
            totals.insert_failed,
        ),
        (
            "lost_events",
            "Events that this agent lost since it started",
            totals.lost_events,
        ),
    ] {
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)
            .and_then(|encoder| ConstCounter::new(value).encode(encoder))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::output::exporter::Exporter;
    use crate::output::exporter::testing::{assert_well_formed, scrape};

    #[test]
    fn a_scrape_is_well_formed_and_in_base_units() {
        let exporter = Exporter::<BalanceMetrics>::bind("127.0.0.1:0").expect("a free port");
        exporter.update(|m| {
            m.interval(&samples::status());
            m.interval(&samples::status());
        });
        let body = scrape(&exporter);
        assert_well_formed(&body);
        let s1 = r#"service="web",backend="s1""#;
        for sample in [
            format!("batchwise_balance_weight{{{s1}}} 92.5"),
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
        exporter.update(|m| m.interval(&status));
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
