//! Latencies of requests as a native histogram; in text, which has none, with the bounds of the others.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use batchwise_core::sense::exponential::{SCHEMA, middle};
use batchwise_core::sense::tails::Histogram;
use prometheus_client::encoding::{
    EncodeMetric, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

use super::{Buckets, seconds};

/// Shorter times count as none, s: no request is so short. It makes the histogram a native one.
const NOTHING: f64 = 1.0 / (1u128 << 127) as f64;

/// How a histogram is told to Prometheus.
pub struct Native<'a>(pub &'a Histogram);

impl EncodeMetric for Native<'_> {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let buckets = self.0.exponential();
        let mut classic = Buckets::default();
        for (&number, &count) in &buckets {
            classic.observe((middle(number) * 1e9) as u64, count);
        }
        let (spans, deltas) = sparse(&buckets);
        encoder.encode_histogram_with_native(
            seconds(self.0.sum),
            self.0.requests(),
            &classic.counted(),
            None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>,
            NativeHistogram {
                schema: SCHEMA,
                zero_threshold: NOTHING,
                zero_count: 0,
                negative: NativeHistogramBuckets {
                    spans: &[],
                    deltas: &[],
                },
                positive: NativeHistogramBuckets {
                    spans: &spans,
                    deltas: &deltas,
                },
                created: None,
            },
        )
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Runs of buckets, each with its distance to the end of the one before and its length, and by how much
/// each bucket's count differs from that of the bucket before it.
fn sparse(buckets: &BTreeMap<i32, u64>) -> (Vec<(i32, u32)>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<(i32, u32)>::new(), Vec::new());
    let (mut next, mut last) = (0, 0);
    for (&number, &count) in buckets {
        match spans.last_mut() {
            Some((_, length)) if number == next => *length += 1,
            _ => spans.push((number - next, 1)),
        }
        deltas.push(count as i64 - last);
        (next, last) = (number + 1, count as i64);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_told_by_runs_and_differences() {
        let buckets = [(-160, 604), (-159, 396), (-150, 7), (0, 7), (1, 9)];
        let (spans, deltas) = sparse(&buckets.into());
        assert_eq!(spans, [(-160, 2), (8, 1), (149, 2)]);
        assert_eq!(deltas, [604, -208, -389, 0, 2]);
        assert_eq!(sparse(&BTreeMap::new()), (vec![], vec![]));
    }
}
