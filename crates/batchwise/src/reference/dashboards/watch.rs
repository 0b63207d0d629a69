//! The dashboard of `batchwise watch`.

use super::{
    CONFIDENCE, Dashboard, Draw, LOST, Panel, Row, SCRAPE, SERIES, UPDATED, Unit, Variable,
    ZERO_IS_GOOD,
};

// Of a native histogram, or of its classic form.
const REQUESTS_HALF: &str = "\
histogram_quantile(0.5, sum by (instance, service, side) (rate(batchwise_request_duration_seconds{@subject}[$__rate_interval]))) \
or histogram_quantile(0.5, sum by (instance, service, side, le) (rate(batchwise_request_duration_seconds_bucket{@subject}[$__rate_interval])))";
const REQUESTS_99: &str = "\
histogram_quantile(0.99, sum by (instance, service, side) (rate(batchwise_request_duration_seconds{@subject}[$__rate_interval]))) \
or histogram_quantile(0.99, sum by (instance, service, side, le) (rate(batchwise_request_duration_seconds_bucket{@subject}[$__rate_interval])))";

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "watch",
    about: "End-to-end latency of services from the queues of their TCP sockets",
    variables: &[
        Variable {
            label: "instance",
            of: "batchwise_series_dropped_total",
            first: None,
        },
        Variable {
            label: "service",
            of: "batchwise_connections{@agent}",
            first: None,
        },
        Variable {
            label: "unit",
            of: "batchwise_throughput_per_second{@subject}",
            first: Some("sends"),
        },
    ],
    rows: &[
        Row {
            title: "What users feel",
            panels: &[
                Panel::lines(
                    "Latency by service",
                    Unit::Seconds,
                    &[
                        (
                            r#"batchwise_latency_seconds{@subject, part="total", unit="$unit"}"#,
                            "{{service}} {{side}} {{connection}} ({{estimator}}) at {{instance}}",
                        ),
                        (
                            r#"batchwise:slo_latency_seconds{service=~"$service|"}"#,
                            "objective {{service}}",
                        ),
                    ],
                )
                .help("Mean of a request, end to end, in the latest interval. Objectives are there with the rules of packaging/prometheus"),
                Panel::lines(
                    "Tails",
                    Unit::Seconds,
                    &[(
                        r#"batchwise_latency_quantile_seconds{@subject, unit="$unit", quantile=~"0.5|0.99"}"#,
                        "{{quantile}}: {{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("Percentiles of the requests of the latest interval that were matched with their responses"),
                Panel::lines(
                    "Throughput",
                    Unit::RequestsPerSecond,
                    &[(
                        r#"batchwise_throughput_per_second{@subject, unit="$unit"}"#,
                        "{{service}} {{side}} {{connection}} at {{instance}}",
                    )],
                )
                .help("Items of the chosen unit a second; sends are the closest to requests"),
                Panel::lines(
                    "Confidence",
                    Unit::Share,
                    &[(
                        r#"batchwise_confidence{@subject, unit="$unit"}"#,
                        "{{service}} {{side}} {{connection}} ({{estimator}}) at {{instance}}",
                    )],
                )
                .help("How far to trust the latency: 0 is a guess. One end alone gives 0.4 at most")
                .limits(CONFIDENCE),
            ],
        },
        Row {
            title: "Why",
            panels: &[
                Panel::lines(
                    "Where the time goes",
                    Unit::Seconds,
                    &[(
                        r#"batchwise_latency_seconds{@subject, part!="total", unit="$unit"}"#,
                        "{{part}}: {{service}} {{side}} {{connection}}",
                    )],
                )
                .help("network: both stacks and the wire. turnaround: the server application"),
                Panel::lines(
                    "Queueing delays",
                    Unit::Seconds,
                    &[(
                        r#"batchwise_stage_seconds{@subject, unit="$unit"}"#,
                        "{{stage}}: {{service}} {{side}} {{connection}}",
                    )],
                )
                .help("unacked: sent and not acknowledged. unread: waiting for an application to read. ackdelay: acknowledgements held back"),
                Panel::new(
                    Draw::Heatmap,
                    "Intervals by latency",
                    Unit::Number,
                    &[(
                        "sum by (le) (increase(batchwise_interval_latency_seconds_bucket{@subject}[$__rate_interval]))",
                        "{{le}}",
                    )],
                )
                .help("Each interval counts once, with its mean"),
                Panel::lines(
                    "Slow intervals",
                    Unit::Seconds,
                    &[
                        (
                            "histogram_quantile(0.5, sum by (instance, service, side, le) (rate(batchwise_interval_latency_seconds_bucket{@subject}[$__rate_interval])))",
                            "half: {{service}} {{side}} at {{instance}}",
                        ),
                        (
                            "histogram_quantile(0.99, sum by (instance, service, side, le) (rate(batchwise_interval_latency_seconds_bucket{@subject}[$__rate_interval])))",
                            "99 %: {{service}} {{side}} at {{instance}}",
                        ),
                    ],
                )
                .help("So many of the intervals had a lower mean; these are no percentiles of requests"),
                Panel::lines(
                    "Slow requests",
                    Unit::Seconds,
                    &[
                        (REQUESTS_HALF, "half: {{service}} {{side}} at {{instance}}"),
                        (REQUESTS_99, "99 %: {{service}} {{side}} at {{instance}}"),
                    ],
                )
                .help("So many of the requests that were counted took less at this end, over the time of the rate: a native histogram where Prometheus takes these, else its coarse form"),
                Panel::lines(
                    "Connections",
                    Unit::Number,
                    &[(
                        "sum by (instance, service, side) (batchwise_connections{@subject})",
                        "{{service}} {{side}} at {{instance}}",
                    )],
                ),
                Panel::stacked(
                    "Nagle's algorithm",
                    Unit::Number,
                    &[("sum by (state) (batchwise_nagle{@subject})", "{{state}}")],
                )
                .help("How many of the shown ends have it on, off, or differ between their sockets"),
            ],
        },
        Row {
            title: "The agent",
            panels: &[
                UPDATED,
                Panel::lines(
                    "Cost",
                    Unit::Share,
                    &[("batchwise_cost_ratio{@agent}", "{{instance}}")],
                )
                .help("CPU time of the agent and its hooks, as a share of one CPU: what --cost sets"),
                Panel::lines(
                    "Counted",
                    Unit::Share,
                    &[(
                        "batchwise_coverage_ratio{@subject}",
                        "{{service}} {{side}} {{connection}} at {{instance}}",
                    )],
                )
                .help("Share of the traffic that the estimates are made from"),
                LOST,
                Panel::value(
                    "Lines without room",
                    Unit::Number,
                    &[(
                        "increase(batchwise_series_dropped_total{@agent}[$__range])",
                        "{{instance}}",
                    )],
                )
                .help("In the time shown. At most 1024 lines of an interval are served")
                .limits(ZERO_IS_GOOD),
                SERIES,
                SCRAPE,
            ],
        },
    ],
    left_out: &[],
};
