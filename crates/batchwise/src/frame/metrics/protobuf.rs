//! Metrics in Prometheus's protocol buffers (`io.prometheus.client`), the one form in which it takes native histograms:
//! a histogram has its classic buckets and native ones.

use prost::Message;

use super::{BOUNDS, Buckets, Family, Labels, Samples};

/// How Prometheus asks for this form, and is told that it is.
pub const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Observations below this are 0 in a native histogram: less than any time. That there is such a bound tells Prometheus
/// that it is one, before it has observations.
const NOTHING: f64 = 1e-128;

/// Adds a family's samples to a page.
pub fn append<M>(page: &mut Vec<u8>, family: &Family<M>, state: &M) -> anyhow::Result<()> {
    let (kind, metric) = match family.samples {
        Samples::Gauge(of) => (Kind::Gauge, each(of(state), Metric::gauge)),
        Samples::Counter(of) => {
            let all = of(state).into_iter().map(|(l, n)| (l, n as f64)).collect();
            (Kind::Counter, each(all, Metric::counter))
        }
        Samples::Spent(of) => (Kind::Counter, each(of(state), Metric::counter)),
        Samples::Histogram(of) => (Kind::Histogram, each(of(state), Metric::histogram)),
    };
    if metric.is_empty() {
        return Ok(());
    }
    let family = MetricFamily {
        name: Some(family.full_name()),
        help: Some(family.help.to_owned()),
        kind: Some(kind.into()),
        metric,
    };
    family.encode_length_delimited(page)?;
    Ok(())
}

fn each<T>(samples: Vec<(Labels, T)>, fill: fn(&mut Metric, T)) -> Vec<Metric> {
    let metric = |(labels, value): (Labels, T)| {
        let label = |(name, value): (&str, _)| LabelPair {
            name: Some(name.to_owned()),
            value: Some(value),
        };
        let mut metric = Metric {
            label: labels.into_iter().map(label).collect(),
            ..Metric::default()
        };
        fill(&mut metric, value);
        metric
    };
    samples.into_iter().map(metric).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "Kind", optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    /// Each native bucket's count less that of the one before.
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
}

/// Native buckets next to each other.
#[derive(Clone, PartialEq, Message)]
struct Span {
    /// The first one's number; in later spans the gap before it.
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

impl Metric {
    fn gauge(&mut self, value: f64) {
        self.gauge = Some(Number { value: Some(value) });
    }

    fn counter(&mut self, value: f64) {
        self.counter = Some(Number { value: Some(value) });
    }

    fn histogram(&mut self, of: &Buckets) {
        let mut below = 0;
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let bucket = bounds.zip(of.counts).map(|(bound, count)| {
            below += count;
            Bucket {
                cumulative_count: Some(below),
                upper_bound: Some(bound),
            }
        });
        let bucket = bucket.collect();
        let (mut span, mut delta) = (Vec::<Span>::new(), Vec::new());
        let (mut next, mut before) = (0, 0);
        for (index, count) in of.fine() {
            let number = index + 1; // Prometheus numbers a bucket by its upper bound
            match span.last_mut().filter(|_| number == next) {
                Some(last) => *last.length.get_or_insert_default() += 1,
                None => span.push(Span {
                    offset: Some(number - next),
                    length: Some(1),
                }),
            }
            delta.push(count as i64 - before);
            (next, before) = (number + 1, count as i64);
        }
        self.histogram = Some(Histogram {
            sample_count: Some(of.count()),
            sample_sum: Some(of.sum),
            bucket,
            schema: Some(Buckets::SCALE),
            zero_threshold: Some(NOTHING),
            zero_count: Some(0),
            positive_span: span,
            positive_delta: delta,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct State(Buckets);

    const TIMES: Family<State> =
        Family::histogram("times", "Times.", |state| vec![(Labels::new(), &state.0)]);

    fn read(state: &State) -> Histogram {
        let mut page = Vec::new();
        append(&mut page, &TIMES, state).expect("it fits");
        let family = MetricFamily::decode_length_delimited(&page[..]).expect("its own form");
        assert_eq!(family.name.as_deref(), Some("batchwise_times_seconds"));
        let [metric] = &family.metric[..] else {
            panic!("{family:?}");
        };
        metric.histogram.clone().expect("a histogram")
    }

    /// Number and count of each native bucket.
    fn native(of: &Histogram) -> Vec<(i32, i64)> {
        let (mut number, mut count) = (0, 0);
        let mut deltas = of.positive_delta.iter();
        let mut all = Vec::new();
        for span in &of.positive_span {
            number += span.offset();
            for _ in 0..span.length() {
                count += deltas.next().expect("a delta for each bucket");
                all.push((number, count));
                number += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        all
    }

    #[test]
    fn a_native_histogram_has_the_same_observations_as_the_classic_one() {
        let mut buckets = Buckets::default();
        // 1 s is a bucket's upper bound, 2^(0/16); 1.04 s is in the next one, 2 s in the sixteenth
        for (ns, times) in [
            (1_000_000_000, 3),
            (1_040_000_000, 2),
            (2_000_000_000, 7),
            (100_000, 1),
        ] {
            buckets.observe(ns, times);
        }
        let found = read(&State(buckets));
        let in_seconds = native(&found);
        assert_eq!(in_seconds[1..], [(0, 3), (1, 2), (16, 7)]);
        let (number, 1) = in_seconds[0] else {
            panic!("{in_seconds:?}");
        };
        let upper = (f64::from(number) / 16.0).exp2();
        assert!((1e-4..1.05e-4).contains(&upper), "{upper}");
        assert_eq!(found.sample_count, Some(13));
        let classic = found.bucket.last().and_then(|last| last.cumulative_count);
        assert_eq!(classic, Some(13));
    }

    #[test]
    fn one_without_observations_is_native_nevertheless() {
        let found = read(&State(Buckets::default()));
        assert!(found.zero_threshold() > 0.0);
        assert_eq!(native(&found), []);
    }
}
