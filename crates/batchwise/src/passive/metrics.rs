//! What the path shows as Prometheus metrics.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use batchwise_core::passive::Epoch;
use batchwise_core::passive::report::{ServerLine, TotalsLine};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::interval::{Interval, Key, MOST_SERVERS, classes, word};
use crate::output::exporter::{Labels, Metrics, counters, gauges, seconds, with};

/// A server's counts survive so many intervals without any traffic: they must not begin again
/// whenever nobody asks for a moment.
const SILENT_INTERVALS: u32 = 300;

/// What `batchwise passive` serves.
#[derive(Debug, Default)]
pub struct PassiveMetrics {
    servers: BTreeMap<Key, Counts>,
    totals: TotalsLine,
}

#[derive(Debug, Default)]
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

/// The histogram's bounds, s: each power of ten from 1 µs to 10 s is divided in the same way.
const BOUNDS: [f64; 43] = [
    1e-6, 1.5e-6, 2e-6, 3e-6, 5e-6, 7e-6, 1e-5, 1.5e-5, 2e-5, 3e-5, 5e-5, 7e-5, 1e-4, 1.5e-4, 2e-4,
    3e-4, 5e-4, 7e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 5e-2, 7e-2,
    1e-1, 1.5e-1, 2e-1, 3e-1, 5e-1, 7e-1, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0,
];

/// A histogram whose observations count as many times as an epoch had batches, which the client
/// library's does not offer.
#[derive(Debug)]
struct Buckets {
    sum: f64,
    counts: [u64; BOUNDS.len() + 1],
}

impl Default for Buckets {
    fn default() -> Self {
        Self {
            sum: 0.0,
            counts: [0; BOUNDS.len() + 1],
        }
    }
}

impl Buckets {
    fn observe(&mut self, value: f64, times: u64) {
        self.sum += value * times as f64;
        self.counts[BOUNDS.partition_point(|bound| *bound < value)] += times;
    }
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
            counts.histogram.observe(seconds(latency), batches);
        }
    }

    /// An interval ended.
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
    vec![
        ("server", key.0.to_string()),
        ("transport", word(key.1).to_owned()),
    ]
}

/// The labels of an estimate: also how it was made, as the numbers mean nothing without.
fn estimate(key: &Key) -> Labels {
    let labels = with(labels(key), "vantage", "path");
    with(labels, "estimator", "passive")
}

impl Metrics for PassiveMetrics {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.histograms(encoder)?;
        self.of_servers(encoder)?;
        let totals = &self.totals;
        for (name, help, value) in [
            (
                "passive_table_flows",
                "Flows in the table",
                totals.flows_live,
            ),
            (
                "passive_table_capacity",
                "Flows for which the table has room",
                totals.flows_capacity,
            ),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)
                .and_then(|encoder| ConstGauge::new(value as f64).encode(encoder))?;
        }
        counters(
            encoder,
            "passive_packets",
            "Packets that were seen, by what they are",
            classes(totals)
                .into_iter()
                .map(|(class, n)| (vec![("class", class.to_owned())], n)),
        )?;
        for (name, help, count) in [
            ("passive_flows_born", "Flows that began", totals.born),
            (
                "passive_evictions",
                "Flows that gave their place in the table to others",
                totals.evicted,
            ),
            (
                "lost_events",
                "Events that this agent lost since it started",
                totals.lost_events,
            ),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)
                .and_then(|encoder| ConstCounter::new(count).encode(encoder))?;
        }
        Ok(())
    }
}

impl PassiveMetrics {
    fn histograms(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut known = self
            .servers
            .iter()
            .filter(|(_, c)| c.batches > 0)
            .peekable();
        if known.peek().is_none() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "passive_latency",
            "Response latencies: the mean of each epoch of a flow, counted as often as it has batches",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (key, counts) in known {
            let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.histogram.counts).collect();
            family.encode_family(&estimate(key))?.encode_histogram(
                counts.histogram.sum,
                counts.batches,
                &buckets,
                None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>,
            )?;
        }
        Ok(())
    }

    fn of_servers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = || self.servers.iter();
        gauges(
            encoder,
            ("passive_flows", None),
            "Flows of which an epoch closed in the latest interval",
            all().map(|(key, c)| (labels(key), c.flows as f64)),
        )?;
        gauges(
            encoder,
            ("passive_stalled_flows", None),
            "Flows that only sent again and waited in the latest interval",
            all().map(|(key, c)| (labels(key), c.stalled_flows as f64)),
        )?;
        gauges(
            encoder,
            ("passive_confidence", None),
            "How far to trust the latency of the latest interval, 0 (guess) to 1",
            all().filter_map(|(key, c)| Some((estimate(key), c.confidence?))),
        )?;
        type Of = fn(&Counts) -> u64;
        let families: [(&str, &str, Of); 5] = [
            ("passive_epochs", "Epochs of flows that closed", |c| {
                c.epochs
            }),
            (
                "passive_batches",
                "Batches of requests: as many latencies were measured",
                |c| c.batches,
            ),
            (
                "passive_idle",
                "Gaps too long to be answers: idle clients, timeouts",
                |c| c.idle,
            ),
            ("passive_resent", "Packets that came again", |c| c.resent),
            ("passive_discarded", "Gaps that fitted no mode", |c| {
                c.discarded
            }),
        ];
        for (name, help, of) in families {
            let values = all().map(|(key, c)| (labels(key), of(c)));
            counters(encoder, name, help, values)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::output::exporter::Exporter;
    use crate::output::exporter::testing::{assert_well_formed, scrape};

    #[test]
    fn a_scrape_is_well_formed_and_counts_batches_in_base_units() {
        let exporter = Exporter::<PassiveMetrics>::bind("127.0.0.1:0").expect("a free port");
        exporter.update(|m| {
            m.epoch(samples::KEY, &samples::epoch());
            m.interval(&samples::interval());
        });
        let body = scrape(&exporter);
        assert_well_formed(&body);
        let server = r#"server="10.0.0.1:80",transport="tcp""#;
        let estimate = format!(r#"{server},vantage="path",estimator="passive""#);
        for sample in [
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
        ] {
            assert!(
                body.lines().any(|line| line == sample),
                "{sample} is not in\n{body}"
            );
        }
        assert!(
            !body.contains("2001:db8"),
            "a server without an epoch: {body}"
        );
    }

    #[test]
    fn without_any_traffic_a_scrape_is_well_formed() {
        let exporter = Exporter::<PassiveMetrics>::bind("127.0.0.1:0").expect("a free port");
        let families = assert_well_formed(&scrape(&exporter));
        assert!(families.contains(&"batchwise_lost_events".to_owned()));
    }
}
