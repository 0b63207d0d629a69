//! Tests of the exporter, over HTTP as Prometheus does it.

use super::super::samples;
use super::*;
use crate::frame::metrics::Exporter;
use crate::frame::metrics::testing::{Example, assert_well_formed, get, scrape};

impl Example for WatchMetrics {
    fn example() -> Self {
        let mut metrics = Self::default();
        let connection = Line {
            connection: Some("10.0.0.2:6379 -> 10.0.0.1:40000".to_owned()),
            ..samples::two_sided()
        };
        metrics.interval(&[connection]);
        metrics
    }
}

fn exporter() -> Exporter<WatchMetrics> {
    Exporter::bind("127.0.0.1:0").expect("a free port on loopback")
}

#[test]
fn a_scrape_has_every_part_in_base_units_with_its_labels() {
    let exporter = exporter();
    exporter.update(|m| m.interval(&[samples::two_sided()]));
    let (head, body) = get(&exporter, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    let service = r#"service="10.0.0.2:6379",side="server""#;
    let made = r#"unit="sends",estimator="two_sided""#;
    for sample in [
        format!("batchwise_latency_seconds{{{service},{made},part=\"network\"}} 0.000024"),
        format!("batchwise_latency_seconds{{{service},{made},part=\"total\"}} 0.00003412"),
        format!("batchwise_stage_seconds{{{service},{made},stage=\"unacked\"}} 0.0000192"),
        format!("batchwise_throughput_per_second{{{service},{made}}} 5012.3"),
        format!("batchwise_connections{{{service}}} 12.0"),
        format!("batchwise_confidence{{{service},{made}}} 0.92"),
        format!("batchwise_nagle{{{service},state=\"off\"}} 1.0"),
        format!("batchwise_nagle{{{service},state=\"on\"}} 0.0"),
        "batchwise_lost_events_total 0".to_owned(),
        format!("batchwise_interval_latency_seconds_count{{{service}}} 1"),
    ] {
        assert!(
            body.lines().any(|line| line == sample),
            "{sample} is not in\n{body}"
        );
    }
}

#[test]
fn a_scrape_is_well_formed_openmetrics() {
    let exporter = exporter();
    exporter.update(|m| m.interval(&[samples::two_sided(), samples::local()]));
    let body = scrape(&exporter);
    let seen = assert_well_formed(&body);
    assert!(seen.contains(&"batchwise_interval_latency_seconds".to_owned()));
}

#[test]
fn parts_that_are_not_known_are_absent() {
    let exporter = exporter();
    exporter.update(|m| m.interval(&[samples::local()]));
    let body = scrape(&exporter);
    assert!(body.contains(r#"part="total""#));
    assert!(!body.contains(r#"part="network""#));
    assert!(!body.contains(r#"stage="unread_remote""#));
    assert!(body.contains("batchwise_lost_events_total 7\n"));
}

#[test]
fn a_service_that_vanished_is_absent_and_lost_events_never_go_back() {
    let exporter = exporter();
    exporter.update(|m| m.interval(&[samples::local()]));
    exporter.update(|m| m.interval(&[samples::two_sided()]));
    let body = scrape(&exporter);
    assert!(
        !body.contains(r#"batchwise_connections{service="[2001:db8::17]:11211""#),
        "{body}"
    );
    assert!(body.contains("batchwise_lost_events_total 7\n"));
}

#[test]
fn a_histogram_survives_a_short_silence_but_not_a_long_one() {
    let exporter = exporter();
    exporter.update(|m| m.interval(&[samples::two_sided()]));
    for _ in 0..SILENT_INTERVALS {
        exporter.update(|m| m.interval(&[]));
    }
    assert!(scrape(&exporter).contains("batchwise_interval_latency_seconds_count"));
    exporter.update(|m| m.interval(&[]));
    assert!(!scrape(&exporter).contains("batchwise_interval_latency_seconds"));
}

#[test]
fn a_crowd_of_services_is_bounded_and_counted() {
    let exporter = exporter();
    let crowd = |first: usize| -> Vec<Line> {
        let names = (first..first + 2_000).map(|n| format!("10.0.0.2:{n}"));
        let lines = names.map(|service| Line {
            service,
            ..samples::two_sided()
        });
        lines.collect()
    };
    exporter.update(|m| {
        m.interval(&crowd(1));
        m.interval(&crowd(10_000));
    });
    let body = scrape(&exporter);
    let counts = body
        .matches("batchwise_interval_latency_seconds_count")
        .count();
    assert_eq!(counts, MOST_SERIES);
    let lines = body.matches("batchwise_confidence{").count();
    assert_eq!(lines, MOST_SERIES);
    let dropped = 2 * (2_000 - MOST_SERIES) + MOST_SERIES;
    let sample = format!("batchwise_series_dropped_total {dropped}\n");
    assert!(body.contains(&sample), "{sample}");
}

#[test]
fn connections_are_told_apart_by_a_label() {
    let exporter = exporter();
    let connection = Some("10.0.0.2:6379 -> 10.0.0.1:40000".to_owned());
    exporter.update(|m| {
        m.interval(&[Line {
            connection,
            ..samples::two_sided()
        }])
    });
    assert!(
        scrape(&exporter).contains(r#"connection="10.0.0.2:6379 -> 10.0.0.1:40000",unit="sends""#)
    );
}

#[test]
fn other_paths_say_where_the_metrics_are() {
    let (head, body) = get(&exporter(), "/");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert!(body.contains("/metrics"));
}

#[test]
fn an_address_in_use_and_a_bad_address_are_explained() {
    let first = exporter();
    let error = Exporter::<WatchMetrics>::bind(&first.address().to_string()).expect_err("taken");
    assert!(
        error.to_string().ends_with("in use; choose another port"),
        "{error}"
    );
    let error = Exporter::<WatchMetrics>::bind(":9464").expect_err("no address");
    assert!(
        error.to_string().contains("such as 127.0.0.1:9464"),
        "{error}"
    );
}
