//! What the path shows as Prometheus metrics.

use std::collections::BTreeMap;

use batchwise_core::passive::Epoch;
use batchwise_core::passive::report::{ServerLine, TotalsLine};

use super::interval::{Interval, Key, MOST_SERVERS, classes};
use crate::frame::human::word;
use crate::frame::metrics::{Buckets, Family, Labels, Metrics, alone, with};

/// A server's counts survive so many intervals without any traffic: they must not begin again
/// whenever nobody asks for a moment.
const SILENT_INTERVALS: u32 = 300;

/// What `batchwise passive` serves.
#[derive(Clone, Debug, Default)]
pub struct PassiveMetrics {
    servers: BTreeMap<Key, Counts>,
    totals: TotalsLine,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    histogram: Buckets,
    flows: u64,
    stalled_flows: u64,
    confidence: Option<f64>,
    epochs: u64,
    batches: u64,
    idle: u64,
    resent: u64,
    discarded: u64,
    silent: u32,
}

impl PassiveMetrics {
    /// An epoch of a flow to this server closed.
    pub fn epoch(&mut self, key: Key, epoch: &Epoch) {
        if !self.servers.contains_key(&key) && self.servers.len() >= MOST_SERVERS {
            return;
        }
        let (counts, estimate) = (self.servers.entry(key).or_default(), &epoch.estimate);
        counts.epochs += 1;
        counts.idle += u64::from(estimate.idle);
        counts.resent += u64::from(epoch.gaps.resent);
        counts.discarded += u64::from(epoch.gaps.discarded);
        if let Some(latency) = estimate.latency {
            let batches = u64::from(estimate.batches);
            counts.batches += batches;
            counts.histogram.observe(latency, batches);
        }
    }

    pub fn interval(&mut self, interval: &Interval) {
        self.totals = interval.totals;
        for counts in self.servers.values_mut() {
            counts.silent += 1;
            counts.flows = 0;
            counts.stalled_flows = 0;
            counts.confidence = None;
        }
        for (key, line) in &interval.servers {
            if let Some(counts) = self.servers.get_mut(key) {
                counts.interval(line);
            }
        }
        self.servers.retain(|_, c| c.silent <= SILENT_INTERVALS);
    }
}

impl Counts {
    fn interval(&mut self, line: &ServerLine) {
        self.silent = 0;
        self.flows = line.flows;
        self.stalled_flows = line.stalled_flows;
        self.confidence = line.confidence;
    }
}

fn labels(key: &Key) -> Labels {
    vec![("server", key.0.to_string()), ("transport", word(&key.1))]
}

/// The labels of an estimate: also how it was made, as the numbers mean nothing without.
fn estimate(key: &Key) -> Labels {
    let labels = with(labels(key), "vantage", "path");
    with(labels, "estimator", "passive")
}

impl Metrics for PassiveMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::histogram(
            "passive_latency",
            "Response latencies: the mean of each epoch of a flow, counted as often as it has batches",
            |m| {
                let measured = m.servers.iter().filter(|(_, c)| c.batches > 0);
                measured
                    .map(|(key, c)| (estimate(key), &c.histogram))
                    .collect()
            },
        ),
        Family::gauge(
            "passive_flows",
            "Flows of which an epoch closed in the latest interval",
            |m| m.of_servers(|c| c.flows as f64),
        ),
        Family::gauge(
            "passive_stalled_flows",
            "Flows that only retransmitted and waited in the latest interval",
            |m| m.of_servers(|c| c.stalled_flows as f64),
        ),
        Family::gauge(
            "passive_confidence",
            "How far to trust the latency of the latest interval, 0 (guess) to 1",
            |m| {
                let servers = m.servers.iter();
                servers
                    .filter_map(|(key, c)| Some((estimate(key), c.confidence?)))
                    .collect()
            },
        ),
        Family::counter("passive_epochs", "Epochs of flows that closed", |m| {
            m.of_servers(|c| c.epochs)
        }),
        Family::counter(
            "passive_batches",
            "Batches of requests: as many latencies were measured",
            |m| m.of_servers(|c| c.batches),
        ),
        Family::counter(
            "passive_idle",
            "Gaps too long to be answers: idle clients, timeouts",
            |m| m.of_servers(|c| c.idle),
        ),
        Family::counter("passive_resent", "Retransmitted packets", |m| {
            m.of_servers(|c| c.resent)
        }),
        Family::counter(
            "passive_discarded",
            "Gaps that no counter had room for",
            |m| m.of_servers(|c| c.discarded),
        ),
        Family::gauge("passive_table_flows", "Flows in the table", |m| {
            alone(m.totals.flows_live as f64)
        }),
        Family::gauge(
            "passive_table_capacity",
            "Flows for which the table has room",
            |m| alone(m.totals.flows_capacity as f64),
        ),
        Family::counter(
            "passive_packets",
            "Packets that were seen, by what they are",
            |m| {
                let classes = classes(&m.totals).into_iter();
                classes
                    .map(|(class, n)| (vec![("class", class.to_owned())], n))
                    .collect()
            },
        ),
        Family::counter("passive_flows_born", "Flows that began", |m| {
            alone(m.totals.born)
        }),
        Family::counter(
            "passive_evictions",
            "Flows that gave their place in the table to others",
            |m| alone(m.totals.evicted),
        ),
        Family::counter(
            "passive_epochs_left_out",
            "Epochs of servers that are not served: 1024 servers are told apart at a time",
            |m| alone(m.totals.epochs_left_out),
        ),
        Family::counter(
            "lost_events",
            "Events that this agent lost since it started",
            |m| alone(m.totals.lost_events),
        ),
    ];
}

impl PassiveMetrics {
    fn of_servers<T>(&self, value: fn(&Counts) -> T) -> Vec<(Labels, T)> {
        let servers = self.servers.iter();
        servers.map(|(key, c)| (labels(key), value(c))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::frame::metrics::testing::{Example, assert_samples, served};

    impl Example for PassiveMetrics {
        fn example() -> Self {
            let mut metrics = Self::default();
            metrics.epoch(samples::KEY, &samples::epoch());
            metrics.interval(&samples::interval());
            metrics
        }
    }

    #[test]
    fn a_scrape_counts_batches_in_base_units() {
        let body = served(PassiveMetrics::example());
        let server = r#"server="10.0.0.1:80",transport="tcp""#;
        let estimate = format!(r#"{server},vantage="path",estimator="passive""#);
        let samples = [
            format!("batchwise_passive_latency_seconds_count{{{estimate}}} 900"),
            format!("batchwise_passive_latency_seconds_bucket{{le=\"0.001\",{estimate}}} 0"),
            format!("batchwise_passive_latency_seconds_bucket{{le=\"0.0015\",{estimate}}} 900"),
            format!("batchwise_passive_latency_seconds_bucket{{le=\"+Inf\",{estimate}}} 900"),
            format!("batchwise_passive_flows{{{server}}} 12.0"),
            format!("batchwise_passive_stalled_flows{{{server}}} 0.0"),
            format!("batchwise_passive_confidence{{{estimate}}} 0.92"),
            format!("batchwise_passive_epochs_total{{{server}}} 1"),
            format!("batchwise_passive_batches_total{{{server}}} 900"),
            "batchwise_passive_packets_total{class=\"measured\"} 15000".to_owned(),
            "batchwise_passive_evictions_total 2".to_owned(),
            "batchwise_passive_table_flows 15.0".to_owned(),
            "batchwise_passive_table_capacity 60.0".to_owned(),
            "batchwise_lost_events_total 7".to_owned(),
        ];
        assert_samples(&body, &samples);
        assert!(
            !body.contains("2001:db8"),
            "a server without an epoch: {body}"
        );
    }
}
