//! The dashboard of `batchwise passive`.

use super::{
    CONFIDENCE, Dashboard, Draw, LOST, Panel, Row, SCRAPE, SERIES, UPDATED, Unit, Variable,
};

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "passive",
    about: "Response latency of servers from the packets of their clients alone",
    variables: &[
        Variable {
            label: "instance",
            of: "batchwise_passive_table_capacity",
            first: None,
        },
        Variable {
            label: "server",
            of: "batchwise_passive_flows{@agent}",
            first: None,
        },
    ],
    rows: &[
        Row {
            title: "What users feel",
            panels: &[
                Panel::lines(
                    "Latency by server",
                    Unit::Seconds,
                    &[
                        (
                            "sum by (instance, server, transport) (rate(batchwise_passive_latency_seconds_sum{@subject}[$__rate_interval])) / sum by (instance, server, transport) (rate(batchwise_passive_latency_seconds_count{@subject}[$__rate_interval]))",
                            "mean: {{server}} {{transport}} at {{instance}}",
                        ),
                        (
                            r#"batchwise:slo_latency_seconds{service=~"$server|"}"#,
                            "objective {{service}}",
                        ),
                    ],
                )
                .help("Mean of a response, as it passes here. Objectives are there with the rules of packaging/prometheus"),
                Panel::lines(
                    "Batches of requests",
                    Unit::RequestsPerSecond,
                    &[(
                        "rate(batchwise_passive_batches_total{@subject}[$__rate_interval])",
                        "{{server}} {{transport}} at {{instance}}",
                    )],
                )
                .help("As many latencies are measured"),
                Panel::lines(
                    "Confidence",
                    Unit::Share,
                    &[(
                        "batchwise_passive_confidence{@subject}",
                        "{{server}} {{transport}} at {{instance}}",
                    )],
                )
                .help("How far to trust the latency: 0 is a guess")
                .limits(CONFIDENCE),
            ],
        },
        Row {
            title: "Why",
            panels: &[
                Panel::new(
                    Draw::Heatmap,
                    "Batches by latency",
                    Unit::Number,
                    &[(
                        "sum by (le) (increase(batchwise_passive_latency_seconds_bucket{@subject}[$__rate_interval]))",
                        "{{le}}",
                    )],
                )
                .help("The batches of an epoch of a flow count with the epoch's mean"),
                Panel::lines(
                    "Slow flows",
                    Unit::Seconds,
                    &[
                        (
                            "histogram_quantile(0.5, sum by (instance, server, transport, le) (rate(batchwise_passive_latency_seconds_bucket{@subject}[$__rate_interval])))",
                            "half: {{server}} {{transport}} at {{instance}}",
                        ),
                        (
                            "histogram_quantile(0.99, sum by (instance, server, transport, le) (rate(batchwise_passive_latency_seconds_bucket{@subject}[$__rate_interval])))",
                            "99 %: {{server}} {{transport}} at {{instance}}",
                        ),
                    ],
                )
                .help("So many batches are in epochs with a lower mean; these are no percentiles of requests"),
                Panel::lines(
                    "Flows",
                    Unit::Number,
                    &[
                        (
                            "batchwise_passive_flows{@subject}",
                            "{{server}} {{transport}} at {{instance}}",
                        ),
                        (
                            "batchwise_passive_stalled_flows{@subject}",
                            "stalled: {{server}} {{transport}} at {{instance}}",
                        ),
                    ],
                )
                .help("A stalled flow only retransmitted and waited: so does a failing server look"),
                Panel::lines(
                    "Retransmitted packets",
                    Unit::PacketsPerSecond,
                    &[(
                        "rate(batchwise_passive_resent_total{@subject}[$__rate_interval])",
                        "{{server}} {{transport}} at {{instance}}",
                    )],
                ),
                Panel::lines(
                    "Epochs, and gaps without latency",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_passive_epochs_total{@subject}[$__rate_interval])",
                            "epochs: {{server}} {{transport}} at {{instance}}",
                        ),
                        (
                            "rate(batchwise_passive_idle_total{@subject}[$__rate_interval])",
                            "idle: {{server}} {{transport}} at {{instance}}",
                        ),
                        (
                            "rate(batchwise_passive_discarded_total{@subject}[$__rate_interval])",
                            "no room: {{server}} {{transport}} at {{instance}}",
                        ),
                    ],
                )
                .help("idle: too long to be answers, such as idle clients. no room: no counter was free"),
            ],
        },
        Row {
            title: "The agent",
            panels: &[
                Panel::lines(
                    "Table of flows in use",
                    Unit::Share,
                    &[(
                        "batchwise_passive_table_flows{@agent} / batchwise_passive_table_capacity{@agent}",
                        "{{instance}}",
                    )],
                )
                .limits(&[(f64::MIN, "green"), (0.9, "red")]),
                Panel::stacked(
                    "Packets by class",
                    Unit::PacketsPerSecond,
                    &[(
                        "sum by (class) (rate(batchwise_passive_packets_total{@agent}[$__rate_interval]))",
                        "{{class}}",
                    )],
                ),
                Panel::lines(
                    "Flows that began, and that were evicted",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_passive_flows_born_total{@agent}[$__rate_interval])",
                            "began at {{instance}}",
                        ),
                        (
                            "rate(batchwise_passive_evictions_total{@agent}[$__rate_interval])",
                            "evicted at {{instance}}",
                        ),
                    ],
                ),
                SCRAPE,
                UPDATED,
                LOST,
                SERIES,
            ],
        },
    ],
    left_out: &[("batchwise_passive_epochs_left_out_total", "0 but where there are thousands of servers; the agent warns")],
};
