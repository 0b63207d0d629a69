//! Tests of what Prometheus is told.

use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::{Advice, Diagnosis, Side};
use batchwise_core::sense::tails::Histogram;

use super::super::samples;
use super::*;
use crate::frame::metrics::testing::{Example, assert_samples, served};

impl Example for WatchMetrics {
    fn example() -> Self {
        let mut metrics = after(&[&[Line {
            connection: Some("10.0.0.2:6379 -> 10.0.0.1:40000".to_owned()),
            advice: Some(Diagnosis {
                id: Advice::NagleHolds,
                text: "held by Nagle's algorithm, 20.0 µs of 34.1 µs".to_owned(),
                share: Some(0.586),
            }),
            ..samples::two_sided()
        }]]);
        metrics.interval(metrics.lines.clone().iter(), &requests(&[980_000; 1_000]));
        metrics
    }
}

/// Requests of a server that took so long, ns.
fn requests(ns: &[u64]) -> Histograms {
    let mut latencies = Histogram {
        over: vec![0; 896],
        sum: ns.iter().sum(),
        shift: 0,
        ..Histogram::default()
    };
    for ns in ns {
        latencies.over[bucket(*ns)] += 1;
    }
    let server = "10.0.0.2:6379".parse().expect("an address");
    let service = ServiceKey {
        server,
        netns: samples::NETNS,
        side: Side::Server,
    };
    [(service, latencies)].into()
}

/// The one of 1/32 of an octave that holds this time.
fn bucket(ns: u64) -> usize {
    let shift = (64 - ns.leading_zeros()).saturating_sub(6);
    (shift << 5) as usize + (ns >> shift) as usize
}

/// After intervals of these lines.
fn after(intervals: &[&[Line]]) -> WatchMetrics {
    let mut metrics = WatchMetrics::default();
    let none = Histograms::new();
    let mut interval = |lines: &&[Line]| metrics.interval(lines.iter(), &none);
    intervals.iter().for_each(&mut interval);
    metrics
}

#[test]
fn a_scrape_has_every_part_in_base_units_with_its_labels() {
    let body = served(after(&[&[samples::two_sided(), samples::local()]]));
    let service = r#"service="10.0.0.2:6379",side="server",netns="4026531840",process="redis-server",unit="redis-server.service""#;
    let made = r#"count="sends",estimator="two_sided""#;
    let samples = [
        format!("batchwise_latency_seconds{{{service},{made},part=\"network\"}} 0.000024"),
        format!("batchwise_latency_seconds{{{service},{made},part=\"total\"}} 0.00003412"),
        format!("batchwise_stage_seconds{{{service},{made},stage=\"unacked\"}} 0.0000192"),
        format!("batchwise_throughput_per_second{{{service},{made}}} 5012.3"),
        format!("batchwise_connections{{{service}}} 12.0"),
        format!("batchwise_confidence{{{service},{made}}} 0.92"),
        format!("batchwise_nagle{{{service},state=\"off\"}} 1.0"),
        format!("batchwise_nagle{{{service},state=\"on\"}} 0.0"),
        format!("batchwise_interval_latency_seconds_count{{{service}}} 1"),
    ];
    assert_samples(&body, &samples);
    let connections = served(WatchMetrics::example());
    let connection = r#"connection="10.0.0.2:6379 -> 10.0.0.1:40000",count="sends""#;
    assert!(connections.contains(connection), "{connections}");
}

#[test]
fn parts_that_are_not_known_and_services_that_vanished_are_absent() {
    let body = served(after(&[&[samples::local()]]));
    assert!(body.contains(r#"part="total""#));
    assert!(!body.contains(r#"part="network""#));
    assert!(!body.contains(r#"stage="unread_remote""#));
    assert!(body.contains("batchwise_lost_events_total 7\n"));
    let body = served(after(&[&[samples::local()], &[samples::two_sided()]]));
    let vanished = r#"batchwise_connections{service="[2001:db8::17]:11211""#;
    assert!(!body.contains(vanished), "{body}");
    // it never goes back
    assert!(body.contains("batchwise_lost_events_total 7\n"));
}

#[test]
fn a_histogram_survives_a_short_silence_but_not_a_long_one() {
    for (silent, survives) in [(SILENT_INTERVALS, true), (SILENT_INTERVALS + 1, false)] {
        let mut metrics = after(&[&[samples::two_sided()]]);
        (0..silent).for_each(|_| metrics.interval([].iter(), &Histograms::new()));
        let body = served(metrics);
        let there = body.contains("batchwise_interval_latency_seconds");
        assert_eq!(there, survives, "after {silent} intervals");
    }
}

#[test]
fn a_crowd_of_services_is_bounded_and_counted() {
    let crowd = |first: usize| -> Vec<Line> {
        let names = (first..first + 2_000).map(|n| format!("10.0.0.2:{n}"));
        let lines = names.map(|service| Line {
            service,
            ..samples::two_sided()
        });
        lines.collect()
    };
    let body = served(after(&[&crowd(1), &crowd(10_000)]));
    for sample in [
        "batchwise_interval_latency_seconds_count",
        "batchwise_confidence{",
    ] {
        assert_eq!(body.matches(sample).count(), MOST_SERIES, "{sample}");
    }
    let dropped = 2 * (2_000 - MOST_SERIES) + MOST_SERIES;
    let sample = format!("batchwise_series_dropped_total {dropped}\n");
    assert!(body.contains(&sample), "{sample}");
}

#[test]
fn a_crowd_takes_no_known_services_place() {
    let line = |service: String| Line {
        service,
        ..samples::two_sided()
    };
    let known = line("10.9.9.9:6379".to_owned());
    let crowd = (0..2_000).map(|n| line(format!("10.0.0.2:{n}")));
    let all: Vec<_> = crowd.chain([known.clone()]).collect();
    let body = served(after(&[&[known], &all]));
    assert!(body.contains(r#"batchwise_connections{service="10.9.9.9:6379""#));
}

#[test]
fn latencies_of_requests_add_up_and_survive_a_short_silence() {
    let mut metrics = WatchMetrics::default();
    metrics.interval([].iter(), &requests(&[900_000, 40_000_000]));
    metrics.interval([].iter(), &requests(&[]));
    metrics.interval([].iter(), &requests(&[2_500_000]));
    let service = r#"service="10.0.0.2:6379",side="server",netns="4026531840""#;
    let name = "batchwise_request_duration_seconds";
    let samples = [
        format!("{name}_sum{{{service}}} 0.0434"),
        format!("{name}_count{{{service}}} 3"),
        format!("{name}_bucket{{le=\"0.001\",{service}}} 1"),
        format!("{name}_bucket{{le=\"0.003\",{service}}} 2"),
        format!("{name}_bucket{{le=\"0.05\",{service}}} 3"),
    ];
    assert_samples(&served(metrics), &samples);
}
