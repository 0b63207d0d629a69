//! Metrics as OpenTelemetry has them: the same families, by the official crate's messages. What a service is called
//! goes into resources, one for each service's owner; a histogram of times goes as an exponential one.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use batchwise_core::sense::process::called;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets as Counts;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::{Buckets, Family, Labels, Samples};

/// What all resources have: the host's name, and what the environment adds.
pub type Attributes = Vec<(String, String)>;

/// Samples of a metric, each with its attributes.
type Points<T> = Vec<(Vec<KeyValue>, T)>;

/// What is sent.
pub struct Export {
    of_all: Attributes,
    /// Of the agent's start, ns since 1970.
    started: u64,
    now: u64,
    by_resource: BTreeMap<Attributes, Vec<Metric>>,
}

impl Export {
    pub fn new(of_all: Attributes, started: u64, now: u64) -> Self {
        Self {
            of_all,
            started,
            now,
            by_resource: BTreeMap::new(),
        }
    }

    /// Adds a family's samples.
    pub fn add<M>(&mut self, family: &Family<M>, state: &M) {
        match family.samples {
            Samples::Gauge(of) => self.each(family, of(state), Self::gauge),
            Samples::Counter(of) => self.each(family, of(state), Self::counter),
            Samples::Spent(of) => self.each(family, of(state), Self::spent),
            Samples::Histogram(of) => self.each(family, of(state), Self::histogram),
        }
    }

    fn each<M, T>(
        &mut self,
        family: &Family<M>,
        samples: Vec<(Labels, T)>,
        data: fn(&Self, Points<T>) -> Data,
    ) {
        let mut by_resource: BTreeMap<Attributes, Vec<_>> = BTreeMap::new();
        for (labels, value) in samples {
            let (resource, attributes) = divide(&labels);
            by_resource
                .entry(resource)
                .or_default()
                .push((attributes, value));
        }
        for (resource, points) in by_resource {
            let metric = Metric {
                name: format!("batchwise.{}", family.name),
                description: family.help.to_owned(),
                unit: if family.in_seconds { "s" } else { "" }.to_owned(),
                data: Some(data(self, points)),
                ..Metric::default()
            };
            self.by_resource.entry(resource).or_default().push(metric);
        }
    }

    fn numbers<T>(&self, points: Points<T>, value: fn(T) -> Value) -> Vec<NumberDataPoint> {
        let point = |(attributes, of)| NumberDataPoint {
            attributes,
            start_time_unix_nano: self.started,
            time_unix_nano: self.now,
            value: Some(value(of)),
            ..NumberDataPoint::default()
        };
        points.into_iter().map(point).collect()
    }

    fn gauge(&self, points: Points<f64>) -> Data {
        Data::Gauge(Gauge {
            data_points: self.numbers(points, Value::AsDouble),
        })
    }

    fn counter(&self, points: Points<u64>) -> Data {
        Self::sum(self.numbers(points, |n| Value::AsInt(n as i64)))
    }

    fn spent(&self, points: Points<f64>) -> Data {
        Self::sum(self.numbers(points, Value::AsDouble))
    }

    fn sum(data_points: Vec<NumberDataPoint>) -> Data {
        Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        })
    }

    fn histogram(&self, points: Points<&Buckets>) -> Data {
        let point = |(attributes, of): (_, &Buckets)| {
            let (offset, bucket_counts) = of.exponential();
            ExponentialHistogramDataPoint {
                attributes,
                start_time_unix_nano: self.started,
                time_unix_nano: self.now,
                count: of.count(),
                sum: Some(of.sum),
                scale: Buckets::SCALE,
                positive: Some(Counts {
                    offset,
                    bucket_counts,
                }),
                ..ExponentialHistogramDataPoint::default()
            }
        };
        Data::ExponentialHistogram(ExponentialHistogram {
            data_points: points.into_iter().map(point).collect(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        })
    }

    /// All of it.
    pub fn request(self) -> ExportMetricsServiceRequest {
        let scope = InstrumentationScope {
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let resource = |(own, metrics): (Attributes, _)| {
            let of_all = self
                .of_all
                .iter()
                .filter(|(key, _)| own.iter().all(|(k, _)| k != key));
            let all = of_all.chain(&own).map(|(key, value)| attribute(key, value));
            ResourceMetrics {
                resource: Some(Resource {
                    attributes: all.collect(),
                    ..Resource::default()
                }),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope.clone()),
                    metrics,
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }
        };
        ExportMetricsServiceRequest {
            resource_metrics: self.by_resource.into_iter().map(resource).collect(),
        }
    }
}

/// A sample's resource, by the conventions' names, and its attributes. What has no owner is the agent's.
fn divide(labels: &Labels) -> (Attributes, Vec<KeyValue>) {
    let (mut workload, mut unit, mut process) = (None, None, "batchwise");
    let (mut resource, mut attributes) = (Attributes::new(), Vec::new());
    for (key, value) in labels {
        match *key {
            "container" => resource.push(("container.id".to_owned(), value.clone())),
            "pod_uid" => resource.push(("k8s.pod.uid".to_owned(), value.clone())),
            "pod_name" => resource.push(("k8s.pod.name".to_owned(), value.clone())),
            "pod_namespace" => resource.push(("k8s.namespace.name".to_owned(), value.clone())),
            "workload" => workload = Some(value.as_str()),
            "process" => process = value,
            "unit" => unit = Some(value.as_str()),
            "service" => {
                attributes.push(attribute(key, value));
                let at = value.parse::<SocketAddr>();
                attributes.extend(at.into_iter().flat_map(|at| {
                    [
                        attribute("server.address", &at.ip().to_string()),
                        number("server.port", at.port().into()),
                        attribute("network.transport", "tcp"),
                    ]
                }));
            }
            _ => attributes.push(attribute(key, value)),
        }
    }
    let name = called(workload, unit, process).to_owned();
    resource.push(("service.name".to_owned(), name));
    (resource, attributes)
}

fn attribute(key: &str, value: &str) -> KeyValue {
    pair(key, any_value::Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: i64) -> KeyValue {
    pair(key, any_value::Value::IntValue(value))
}

fn pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
