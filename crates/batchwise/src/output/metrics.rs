//! The lines of the latest interval as Prometheus metrics.
//!
//! Every scrape is encoded from the latest lines, so services that vanished and parts that are not
//! known are absent by construction.

use std::fmt;

use batchwise_core::sense::report::{Line, Nagle};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use super::exporter::{Labels, Metrics, gauges, seconds, service, with};
use super::parts;

/// A service's histogram survives this many intervals of silence, as its counts must not restart
/// whenever nobody asks for a moment.
const SILENT_INTERVALS: u32 = 300;

/// The histogram's bounds within a power of ten.
const BOUNDS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];

/// What `batchwise watch` serves.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    lines: Vec<Line>,
    lost_events: u64,
    totals: Vec<Totals>,
}

/// The interval totals of one service, which add up over time.
#[derive(Debug)]
struct Totals {
    labels: Labels,
    histogram: Histogram,
    silent: u32,
}

impl WatchMetrics {
    /// The lines of the interval that just ended take the place of those before.
    pub fn interval(&mut self, lines: &[Line]) {
        self.lines = lines.to_vec();
        // The agent's count, which all lines repeat.
        let lost = lines.iter().map(|line| line.lost_events).max();
        self.lost_events = self.lost_events.max(lost.unwrap_or(0));
        for totals in &mut self.totals {
            totals.silent += 1;
        }
        for line in lines {
            let labels = series(line);
            let index = self.totals.iter().position(|known| known.labels == labels);
            let index = index.unwrap_or_else(|| {
                self.totals.push(Totals {
                    labels,
                    histogram: histogram(),
                    silent: 0,
                });
                self.totals.len() - 1
            });
            self.totals[index].silent = 0;
            if let Some(total) = line.latency_ns.total {
                self.totals[index].histogram.observe(seconds(total));
            }
        }
        self.totals
            .retain(|totals| totals.silent <= SILENT_INTERVALS);
    }
}

/// Log-linear: every power of ten from 1 µs to 10 s is divided in the same way.
fn histogram() -> Histogram {
    // Dividing gives the number that 1.5e-6 stands for; multiplying by a power of ten does not.
    let bounds = (0..7)
        .rev()
        .flat_map(|power| BOUNDS.map(|bound| bound / 10f64.powi(power)));
    Histogram::new(bounds.chain([10.0]))
}

/// The labels that tell one line's series from another's.
fn series(line: &Line) -> Labels {
    let mut labels = service(line.service.clone(), line.side);
    if let Some(connection) = &line.connection {
        labels.push(("connection", connection.clone()));
    }
    labels
}

/// The labels of an estimate: also how it was made, as the numbers mean nothing without.
fn estimate(line: &Line) -> Labels {
    let mut labels = series(line);
    labels.push(("unit", parts::unit(line.unit).to_owned()));
    labels.push(("estimator", parts::estimator(line.estimator).to_owned()));
    labels
}

impl Metrics for WatchMetrics {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let lines = &self.lines;
        gauges(
            encoder,
            ("latency", Some(Unit::Seconds)),
            "Mean latency of a request in the latest interval, by part",
            lines.iter().flat_map(latencies),
        )?;
        gauges(
            encoder,
            ("stage", Some(Unit::Seconds)),
            "Mean queueing delays that the network latency was computed from",
            lines.iter().flat_map(stages),
        )?;
        gauges(
            encoder,
            ("throughput_per_second", None),
            "Requests (items of the unit) a second",
            lines
                .iter()
                .map(|line| (estimate(line), line.throughput_per_s)),
        )?;
        gauges(
            encoder,
            ("connections", None),
            "Connections that were open at any time in the latest interval",
            lines
                .iter()
                .map(|line| (series(line), line.connections as f64)),
        )?;
        gauges(
            encoder,
            ("confidence", None),
            "How far to trust the latency, 0 (guess) to 1",
            lines.iter().map(|line| (estimate(line), line.confidence)),
        )?;
        gauges(
            encoder,
            ("nagle", None),
            "Whether Nagle's algorithm is in this state on the sockets of this end",
            lines.iter().flat_map(nagle_states),
        )?;
        encoder
            .encode_descriptor(
                "lost_events",
                "Events that this agent lost since it started",
                None,
                MetricType::Counter,
            )
            .and_then(|encoder| ConstCounter::new(self.lost_events).encode(encoder))?;
        if self.totals.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "interval_latency",
            "Mean total latencies of the intervals since the agent started",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        self.totals.iter().try_for_each(|totals| {
            totals
                .histogram
                .encode(family.encode_family(&totals.labels)?)
        })
    }
}

fn latencies(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    let latency = &line.latency_ns;
    known(
        line,
        "part",
        [
            ("network", latency.network),
            ("turnaround", latency.turnaround),
            ("total", latency.total),
        ],
    )
}

fn stages(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    let stages = &line.stages_ns;
    known(
        line,
        "stage",
        [
            ("unacked", stages.unacked),
            ("unread_local", stages.unread_local),
            ("unread_remote", stages.unread_remote),
            ("ackdelay_remote", stages.ackdelay_remote),
        ],
    )
}

fn known<const N: usize>(
    line: &Line,
    key: &'static str,
    values: [(&'static str, Option<u64>); N],
) -> impl Iterator<Item = (Labels, f64)> {
    values
        .into_iter()
        .filter_map(move |(name, ns)| Some((with(estimate(line), key, name), seconds(ns?))))
}

fn nagle_states(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    [Nagle::On, Nagle::Off, Nagle::Mixed]
        .into_iter()
        .map(move |state| {
            let labels = with(series(line), "state", parts::nagle(state));
            (labels, f64::from(u8::from(line.nagle == state)))
        })
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
