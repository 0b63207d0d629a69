//! Scraping, for the tests of what is served.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::MetricFamily;
use prost::Message as _;

use super::form::Form;
use super::{Exporter, Family, Labels, Metrics, Samples};

/// A state that has a sample of every family.
pub trait Example: Metrics {
    fn example() -> Self;
}

/// The labels of each sample of a family.
pub fn labels<M>(family: &Family<M>, state: &M) -> Vec<Labels> {
    fn of<T>(samples: Vec<(Labels, T)>) -> Vec<Labels> {
        samples.into_iter().map(|(labels, _)| labels).collect()
    }
    match family.samples {
        Samples::Gauge(samples) => of(samples(state)),
        Samples::Counter(samples) => of(samples(state)),
        Samples::Histogram(samples) => of(samples(state)),
        Samples::Native(samples) => of(samples(state)),
    }
}

/// Whether it is a native histogram to those who take it.
pub fn is_native<M>(family: &Family<M>) -> bool {
    matches!(family.samples, Samples::Native(_))
}

/// The body of the answer in a form.
fn get<M: Metrics>(exporter: &Exporter<M>, form: Form) -> Vec<u8> {
    let mut stream = TcpStream::connect(exporter.address).expect("the exporter listens");
    let accept = form.content_type();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAccept: {accept}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
    let body = answer.split_off(head.expect("a head and a body") + 4);
    let head = String::from_utf8(answer).expect("UTF-8");
    assert!(
        head.contains(&format!("content-type: {accept}\r\n")),
        "{head}"
    );
    body
}

/// Serves this state.
fn exporter<M: Metrics>(state: M) -> Exporter<M> {
    let exporter = Exporter::bind("127.0.0.1:0").expect("a free port");
    exporter.update(|served| *served = state);
    exporter
}

/// What Prometheus is told of this state, which is well-formed.
pub fn served<M: Metrics>(state: M) -> String {
    let body = scrape(&exporter(state));
    assert_well_formed(&body);
    body
}

/// What Prometheus is told.
pub fn scrape<M: Metrics>(exporter: &Exporter<M>) -> String {
    String::from_utf8(get(exporter, Form::Text)).expect("UTF-8")
}

/// The same in protobuf, which says the same.
pub fn served_in_protobuf<M: Metrics>(state: M) -> Vec<MetricFamily> {
    let exporter = exporter(state);
    let text = scrape(&exporter);
    let body = get(&exporter, Form::Protobuf);
    let (mut rest, mut families) = (&body[..], Vec::new());
    while !rest.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut rest).expect("a family"));
    }
    let samples: BTreeSet<_> = families.iter().flat_map(samples).collect();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines: BTreeSet<_> = lines.map(sample).collect();
    assert_eq!(samples, lines);
    families
}

/// What tells a sample from others, and its value.
type Sample = (String, BTreeSet<String>, String);

/// A number however it is written.
fn number(text: &str) -> String {
    text.parse::<f64>().expect("a number").to_string()
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches("\"}").split("\",");
    let labels = labels.filter_map(|label| label.split_once("=\""));
    let labels = labels.map(|(label, value)| match label {
        "le" => format!("{label} {}", number(&value.replace("+Inf", "inf"))),
        _ => format!("{label} {value}"),
    });
    (name.to_owned(), labels.collect(), number(value))
}

fn samples(family: &MetricFamily) -> Vec<Sample> {
    let mut all = Vec::new();
    for metric in &family.metric {
        let labels = metric
            .label
            .iter()
            .map(|l| format!("{} {}", l.name, l.value));
        let labels: BTreeSet<_> = labels.collect();
        let mut add = |ending: &str, le: Option<f64>, value: f64| {
            let le = le.map(|le| format!("le {le}"));
            let labels = labels.iter().cloned().chain(le).collect();
            all.push((
                format!("{}{ending}", family.name),
                labels,
                value.to_string(),
            ));
        };
        let plain = metric.gauge.map(|g| g.value);
        let plain = plain.or(metric.counter.as_ref().map(|c| c.value));
        plain.into_iter().for_each(|value| add("", None, value));
        if let Some(histogram) = &metric.histogram {
            add("_sum", None, histogram.sample_sum);
            add("_count", None, histogram.sample_count as f64);
            for bucket in &histogram.bucket {
                let count = bucket.cumulative_count as f64;
                add("_bucket", Some(bucket.upper_bound), count);
            }
        }
    }
    all
}

/// Each of these samples is there.
pub fn assert_samples(body: &str, samples: &[String]) {
    for sample in samples {
        let there = body.lines().any(|line| line == sample);
        assert!(there, "{sample} is not in\n{body}");
    }
}

/// It is OpenMetrics.
pub fn assert_well_formed(body: &str) {
    assert!(body.ends_with("# EOF\n"));
    let mut family = String::new();
    let mut seen = Vec::new();
    for line in body.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            let kind = words.next().expect("HELP, TYPE or UNIT");
            let name = words.next().expect("a name").to_owned();
            assert!(["HELP", "TYPE", "UNIT"].contains(&kind), "{line}");
            if name != family {
                assert!(!seen.contains(&name), "{name} comes in two pieces");
                seen.push(name.clone());
                family = name;
            }
            continue;
        }
        let (name, rest) = line.split_once([' ', '{']).expect("a sample");
        assert!(
            name.starts_with(&family),
            "{line} does not belong to {family}"
        );
        let value = rest.rsplit(' ').next().expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    let ours = seen.iter().all(|name| name.starts_with("batchwise_"));
    assert!(ours, "{seen:?}");
}
