//! The lines of the latest interval as Prometheus metrics.
//!
//! Every scrape is encoded from the latest lines, so services that vanished and parts that are not
//! known are absent by construction.

use std::collections::{BTreeMap, HashSet};

use batchwise_core::sense::report::{Line, Nagle};

use super::counting::Histograms;
use crate::frame::human::word;
use crate::frame::metrics::{Buckets, Family, Labels, Metrics, alone, seconds, service, with};

/// A service's histogram survives this many intervals of silence, as its counts must not restart
/// whenever nobody asks for a moment.
const SILENT_INTERVALS: u32 = 300;
/// So many lines of an interval, and so many histograms, are served.
const MOST_SERIES: usize = 1024;

/// What `batchwise watch` serves.
#[derive(Debug, Default)]
pub struct WatchMetrics {
    lines: Vec<Line>,
    lost_events: u64,
    /// Lines that found no room.
    dropped: u64,
    means: Totals,
    requests: Totals,
}

/// Histograms that add up over time, by their labels, and for how many intervals nothing came.
#[derive(Debug, Default)]
struct Totals(BTreeMap<Labels, (Buckets, u32)>);

impl Totals {
    /// What to add to; `None` if there is no room.
    fn at(&mut self, labels: Labels) -> Option<&mut Buckets> {
        if self.0.len() >= MOST_SERIES && !self.0.contains_key(&labels) {
            return None;
        }
        let (total, silent) = self.0.entry(labels).or_default();
        *silent = 0;
        Some(total)
    }

    /// An interval is over.
    fn age(&mut self) {
        self.0.retain(|_, (_, silent)| *silent <= SILENT_INTERVALS);
        self.0.values_mut().for_each(|(_, silent)| *silent += 1);
    }

    fn samples(&self) -> Vec<(Labels, &Buckets)> {
        let all = self.0.iter();
        all.map(|(labels, (total, _))| (labels.clone(), total))
            .collect()
    }
}

impl WatchMetrics {
    /// The lines of the interval that just ended take the place of those before; the latencies of its
    /// requests are added to those before.
    pub fn interval<'a>(&mut self, lines: impl Iterator<Item = &'a Line>, latencies: &Histograms) {
        let known: HashSet<_> = self.lines.iter().map(series).collect();
        let mut served: Vec<_> = lines.cloned().collect();
        // the agent's count, which all lines repeat
        let lost = served.iter().map(|line| line.lost_events).max();
        self.lost_events = self.lost_events.max(lost.unwrap_or(0));
        // a crowd that comes later takes nobody's place
        served.sort_by_cached_key(|line| !known.contains(&series(line)));
        self.dropped += served.len().saturating_sub(MOST_SERIES) as u64;
        served.truncate(MOST_SERIES);
        for line in &served {
            match (self.means.at(series(line)), line.latency_ns.total) {
                (None, _) => self.dropped += 1,
                (Some(means), Some(total)) => means.observe(total, 1),
                (Some(_), None) => {}
            }
        }
        let owners: BTreeMap<_, _> = served
            .iter()
            .map(|line| (bare(line), owner(line)))
            .collect();
        for (of, latencies) in latencies {
            let mut labels = service(of.server.to_string(), of.netns, of.side);
            let owner = owners.get(&labels).cloned();
            labels.extend(owner.into_iter().flatten());
            if latencies.requests() > 0
                && let Some(requests) = self.requests.at(labels)
            {
                requests.add(latencies);
            }
        }
        self.lines = served;
        self.means.age();
        self.requests.age();
    }
}

/// The labels that tell one line's series from another's.
fn series(line: &Line) -> Labels {
    let mut labels = bare(line);
    labels.extend(owner(line));
    if let Some(connection) = &line.connection {
        labels.push(("connection", connection.clone()));
    }
    labels
}

fn bare(line: &Line) -> Labels {
    service(line.service.clone(), line.netns, line.side)
}

/// Whose it is, as far as that lasts: a number does not.
fn owner(line: &Line) -> Labels {
    let process = line.process.iter();
    let labels = process.flat_map(|p| {
        let pod = p.pod.as_ref();
        [
            ("process", Some(&p.comm)),
            ("unit", p.unit.as_ref()),
            ("container", p.container.as_ref()),
            ("pod_uid", p.pod_uid.as_ref()),
            ("pod_namespace", pod.map(|pod| &pod.namespace)),
            ("pod_name", pod.map(|pod| &pod.name)),
            ("workload", pod.map(|pod| &pod.workload)),
        ]
    });
    labels
        .filter_map(|(name, value)| Some((name, value?.clone())))
        .collect()
}

/// The labels of an estimate: also how it was made, as the numbers mean nothing without.
fn estimate(line: &Line) -> Labels {
    let mut labels = series(line);
    labels.push(("count", word(&line.unit)));
    labels.push(("estimator", word(&line.estimator)));
    labels
}

impl Metrics for WatchMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::seconds(
            "latency",
            "Mean latency of a request in the latest interval, by part",
            |m| m.lines.iter().flat_map(latencies).collect(),
        ),
        Family::seconds(
            "stage",
            "Mean delays at the stages of a message; held_by_nagle is a part of unsent, held_by_delack of what the other end has",
            |m| m.lines.iter().flat_map(stages).collect(),
        ),
        Family::seconds(
            "latency_quantile",
            "Percentiles of the latency of requests in the latest interval",
            |m| m.lines.iter().flat_map(quantiles).collect(),
        ),
        Family::gauge(
            "throughput_per_second",
            "A second: turns where the estimator is turns, requests where it is hint, otherwise items of the unit",
            |m| of_lines(m, estimate, |line| line.throughput_per_s),
        ),
        Family::gauge(
            "connections",
            "Connections that were open at any time in the latest interval",
            |m| of_lines(m, series, |line| line.connections as f64),
        ),
        Family::gauge(
            "requests_under_way",
            "Requests under way at the end of the latest interval",
            |m| known_of_lines(m, |line| line.under_way.map(|n| n as f64)),
        ),
        Family::seconds(
            "oldest_request",
            "How long the oldest request under way has been, at the end of the latest interval",
            |m| known_of_lines(m, |line| line.oldest_ns.map(seconds)),
        ),
        Family::gauge(
            "confidence",
            "How far to trust the latency, 0 (guess) to 1",
            |m| of_lines(m, estimate, |line| line.confidence),
        ),
        Family::gauge(
            "coverage_ratio",
            "Share of the service's traffic that was counted in the latest interval",
            |m| of_lines(m, series, |line| line.coverage),
        ),
        Family::gauge(
            "cost_ratio",
            "What sensing cost in the latest interval, CPU time as a share of one CPU",
            |m| alone_share(m.lines.first().map(|line| line.cost)),
        ),
        Family::gauge(
            "advice",
            "1 for what is wrong with the service, by its name on the page about advice",
            |m| m.lines.iter().filter_map(advice).collect(),
        ),
        Family::gauge(
            "nagle",
            "Whether Nagle's algorithm is in this state on the sockets of this end",
            |m| m.lines.iter().flat_map(nagle_states).collect(),
        ),
        Family::counter(
            "lost_events",
            "Events that this agent lost since it started",
            |m| alone(m.lost_events),
        ),
        Family::counter(
            "series_dropped",
            "Lines of intervals that found no room among the series",
            |m| alone(m.dropped),
        ),
        Family::histogram(
            "interval_latency",
            "Mean total latencies of the intervals since the agent started",
            |m| m.means.samples(),
        ),
        Family::histogram(
            "request_duration",
            "Latencies of single requests since the agent started: of those that were counted (above the \
             budget only in windows) and matched with their responses. At a client from the send to the \
             read of the response, at a server from arrival to response, without the network",
            |m| m.requests.samples(),
        ),
    ];
}

/// The agent's own, once there is one.
fn alone_share(share: Option<f64>) -> Vec<(Labels, f64)> {
    share
        .into_iter()
        .map(|share| (Labels::new(), share))
        .collect()
}

fn of_lines(
    metrics: &WatchMetrics,
    labels: fn(&Line) -> Labels,
    value: fn(&Line) -> f64,
) -> Vec<(Labels, f64)> {
    let lines = metrics.lines.iter();
    lines.map(|line| (labels(line), value(line))).collect()
}

fn known_of_lines(metrics: &WatchMetrics, value: fn(&Line) -> Option<f64>) -> Vec<(Labels, f64)> {
    let lines = metrics.lines.iter();
    lines
        .filter_map(|line| Some((estimate(line), value(line)?)))
        .collect()
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

fn quantiles(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    let tails = &line.tails_ns;
    known(
        line,
        "quantile",
        [
            ("0.5", tails.p50),
            ("0.9", tails.p90),
            ("0.99", tails.p99),
            ("0.999", tails.p999),
        ],
    )
}

fn stages(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    let stages = &line.stages_ns;
    known(
        line,
        "stage",
        [
            ("unsent", stages.unsent),
            ("held_by_nagle", stages.held_by_nagle),
            ("held_by_delack", stages.held_by_delack),
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

fn advice(line: &Line) -> Option<(Labels, f64)> {
    let advice = line.advice.as_ref()?;
    Some((with(series(line), "id", &word(&advice.id)), 1.0))
}

fn nagle_states(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    [Nagle::On, Nagle::Off, Nagle::Mixed]
        .into_iter()
        .map(move |state| {
            let labels = with(series(line), "state", &word(&state));
            (labels, f64::from(u8::from(line.nagle == state)))
        })
}

#[cfg(test)]
mod tests;
