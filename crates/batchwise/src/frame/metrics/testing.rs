//! Scraping, for the tests of what is served.

use std::io::{Read, Write};
use std::net::TcpStream;

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
        Samples::Gauge(samples) | Samples::Spent(samples) => of(samples(state)),
        Samples::Counter(samples) => of(samples(state)),
        Samples::Histogram(samples) => of(samples(state)),
    }
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
    let mut stream = TcpStream::connect(exporter.address().expect("it is served"))
        .expect("the exporter listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    body.to_owned()
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
