//! Metrics. A subcommand describes its families once, in a table: name, help, unit, type and where
//! their samples come from. Everything else (encodings, histograms, the HTTP server, OTLP) is
//! here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use batchwise_core::sense::report::Side;
use batchwise_core::sense::tails;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry;

use crate::frame::human;

mod exporter;
pub mod http;
mod otlp;
mod protobuf;
mod push;
mod store;
#[cfg(test)]
pub mod testing;

pub use exporter::Exporter;

/// What tells a sample from the others of its family.
pub type Labels = Vec<(&'static str, String)>;

/// What is served: a state, and the families that are computed from it at each scrape.
pub trait Metrics: Default + Send + Sized + 'static {
    /// All families, in the order in which they are served.
    const FAMILIES: &'static [Family<Self>];
}

impl Metrics for () {
    const FAMILIES: &'static [Family<Self>] = &[];
}

/// Which every agent serves; its state is ns since 1970.
pub const HEARTBEAT: Family<Option<u64>> = Family::seconds(
    "heartbeat_timestamp",
    "Unix time at which the agent's loop last updated these metrics",
    |ns| ns.map_or_else(Vec::new, |ns| alone(seconds(ns))),
);

/// Which every agent serves; its state is s.
pub const CPU: Family<Option<f64>> = Family::spent(
    "agent_cpu",
    "CPU time that the agent's process has used; its programs in the kernel are not in it",
    |spent| spent.map_or_else(Vec::new, alone),
);

/// What an agent that pushes serves as well; its state is their number.
pub const FAILURES: Family<Option<u64>> = Family::counter(
    "otlp_failures",
    "Exports that the collector of --otlp did not take",
    |failures| failures.map_or_else(Vec::new, alone),
);

/// One family of metrics. Without samples it is absent from a scrape.
pub struct Family<M> {
    /// Without the prefix `batchwise_`, the unit and `_total`.
    pub name: &'static str,
    /// One sentence for people.
    pub help: &'static str,
    /// Whether it is in seconds, which the name ends with; else plain numbers.
    pub in_seconds: bool,
    samples: Samples<M>,
}

enum Samples<M> {
    Gauge(fn(&M) -> Vec<(Labels, f64)>),
    Counter(fn(&M) -> Vec<(Labels, u64)>),
    /// A counter of seconds.
    Spent(fn(&M) -> Vec<(Labels, f64)>),
    Histogram(fn(&M) -> Vec<(Labels, &Buckets)>),
}

impl<M> Family<M> {
    /// A value that goes up and down.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        samples: fn(&M) -> Vec<(Labels, f64)>,
    ) -> Self {
        Self::new(name, help, false, Samples::Gauge(samples))
    }

    /// A time that goes up and down.
    pub const fn seconds(
        name: &'static str,
        help: &'static str,
        samples: fn(&M) -> Vec<(Labels, f64)>,
    ) -> Self {
        Self::new(name, help, true, Samples::Gauge(samples))
    }

    /// A value that only grows; its name gets `_total`.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        samples: fn(&M) -> Vec<(Labels, u64)>,
    ) -> Self {
        Self::new(name, help, false, Samples::Counter(samples))
    }

    /// A time that only grows; its name gets `_seconds_total`.
    pub const fn spent(
        name: &'static str,
        help: &'static str,
        samples: fn(&M) -> Vec<(Labels, f64)>,
    ) -> Self {
        Self::new(name, help, true, Samples::Spent(samples))
    }

    /// A distribution of times.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        samples: fn(&M) -> Vec<(Labels, &Buckets)>,
    ) -> Self {
        Self::new(name, help, true, Samples::Histogram(samples))
    }

    const fn new(
        name: &'static str,
        help: &'static str,
        in_seconds: bool,
        samples: Samples<M>,
    ) -> Self {
        Self {
            name,
            help,
            in_seconds,
            samples,
        }
    }

    /// The type as Prometheus names it.
    pub const fn kind(&self) -> MetricType {
        match self.samples {
            Samples::Gauge(_) => MetricType::Gauge,
            Samples::Counter(_) | Samples::Spent(_) => MetricType::Counter,
            Samples::Histogram(_) => MetricType::Histogram,
        }
    }

    /// With all that Prometheus puts around it.
    pub fn full_name(&self) -> String {
        let unit = if self.in_seconds { "_seconds" } else { "" };
        let is_counter = matches!(self.kind(), MetricType::Counter);
        let total = if is_counter { "_total" } else { "" };
        format!("batchwise_{}{unit}{total}", self.name)
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, state: &M) -> fmt::Result {
        match self.samples {
            Samples::Gauge(of) => {
                let samples = of(state).into_iter();
                self.each(encoder, samples.map(|(l, n)| (l, ConstGauge::new(n))))
            }
            Samples::Counter(of) => {
                let samples = of(state).into_iter();
                self.each(encoder, samples.map(|(l, n)| (l, ConstCounter::new(n))))
            }
            Samples::Spent(of) => {
                let samples = of(state).into_iter();
                self.each(encoder, samples.map(|(l, n)| (l, ConstCounter::new(n))))
            }
            Samples::Histogram(of) => self.each(encoder, of(state).into_iter()),
        }
    }

    fn each<S: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        samples: impl Iterator<Item = (Labels, S)>,
    ) -> fmt::Result {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let unit = self.in_seconds.then_some(registry::Unit::Seconds);
        let mut family =
            encoder.encode_descriptor(self.name, self.help, unit.as_ref(), self.kind())?;
        // a sample alone has no braces, either
        if let Some((_, sample)) = samples.next_if(|(labels, _)| labels.is_empty()) {
            return sample.encode(family);
        }
        samples.try_for_each(|(labels, sample)| sample.encode(family.encode_family(&labels)?))
    }
}

/// One value without labels.
pub fn alone<T>(value: T) -> Vec<(Labels, T)> {
    vec![(Labels::new(), value)]
}

/// The labels of one side of a service.
pub fn service(server: String, netns: u32, side: Side) -> Labels {
    vec![
        ("service", server),
        ("side", human::word(&side)),
        ("netns", netns.to_string()),
    ]
}

/// `labels` and one more.
pub fn with(mut labels: Labels, key: &'static str, value: &str) -> Labels {
    labels.push((key, value.to_owned()));
    labels
}

/// Metrics are in base units.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Upper bounds of histograms, s: each power of ten from 1 µs to 10 s is divided in the same way.
const BOUNDS: [f64; 43] = [
    1e-6, 1.5e-6, 2e-6, 3e-6, 5e-6, 7e-6, 1e-5, 1.5e-5, 2e-5, 3e-5, 5e-5, 7e-5, 1e-4, 1.5e-4, 2e-4,
    3e-4, 5e-4, 7e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 1.5e-2, 2e-2, 3e-2, 5e-2, 7e-2,
    1e-1, 1.5e-1, 2e-1, 3e-1, 5e-1, 7e-1, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0,
];

/// A histogram of times in which an observation may count several times, which the client library's
/// does not offer.
#[derive(Clone, Debug)]
pub struct Buckets {
    sum: f64,
    counts: [u64; BOUNDS.len() + 1],
    /// The same in exponential buckets, by the number that OpenTelemetry gives them.
    fine: BTreeMap<i32, u64>,
}

impl Default for Buckets {
    fn default() -> Self {
        Self {
            sum: 0.0,
            counts: [0; BOUNDS.len() + 1],
            fine: BTreeMap::new(),
        }
    }
}

impl Buckets {
    /// Exponential buckets: 2 to the power of this in each octave, 4.4 % wide.
    pub const SCALE: i32 = 4;

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The number and the count of each exponential bucket that has any, in order.
    pub fn fine(&self) -> impl Iterator<Item = (i32, u64)> {
        self.fine.iter().map(|(index, count)| (*index, *count))
    }

    /// The number of the first exponential bucket, and counts from there on.
    pub fn exponential(&self) -> (i32, Vec<u64>) {
        let ends = self.fine.first_key_value().zip(self.fine.last_key_value());
        let Some(((&first, _), (&last, _))) = ends else {
            return (0, Vec::new());
        };
        let count = |index| self.fine.get(&index).copied().unwrap_or(0);
        (first, (first..=last).map(count).collect())
    }

    /// `times` observations of a time in ns.
    pub fn observe(&mut self, ns: u64, times: u64) {
        let value = seconds(ns);
        self.sum += value * times as f64;
        self.counts[BOUNDS.partition_point(|bound| *bound < value)] += times;
        if times > 0 {
            // it ends with its upper bound
            let octaves = value.max(1e-9).log2() * f64::from(1 << Self::SCALE);
            *self.fine.entry(octaves.ceil() as i32 - 1).or_default() += times;
        }
    }

    /// All of a finer histogram.
    pub fn add(&mut self, finer: &tails::Histogram) {
        let sum = self.sum + seconds(finer.sum);
        for (ns, times) in finer.over() {
            self.observe(ns, times);
        }
        self.sum = sum;
    }
}

impl EncodeMetric for &Buckets {
    fn encode(&self, mut encoder: prometheus_client::encoding::MetricEncoder) -> fmt::Result {
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        encoder.encode_histogram(
            self.sum,
            self.count(),
            &bounds.zip(self.counts).collect::<Vec<_>>(),
            None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>,
        )
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
