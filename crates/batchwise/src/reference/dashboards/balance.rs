//! The dashboard of `batchwise balance`.

use super::{
    CONFIDENCE, Dashboard, Draw, LOG_DROPPED, LOST, Panel, Row, SCRAPE, SERIES, UPDATED, Unit,
    Variable,
};

const DOWN_UP: [(&str, &str); 2] = [("down", "red"), ("up", "green")];

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "balance",
    about: "Latency, shares and health of the backends of a load balancer that measures them",
    variables: &[
        Variable {
            label: "instance",
            of: "batchwise_balance_config_generation",
            first: None,
        },
        Variable {
            label: "service",
            of: "batchwise_balance_weight{@agent}",
            first: None,
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
                            r#"sum by (instance, service) (batchwise_balance_latency_seconds{@subject, statistic="mean"} * on (instance, job, service, backend) rate(batchwise_balance_samples_total{@subject}[$__rate_interval])) / (sum by (instance, service) (rate(batchwise_balance_samples_total{@subject}[$__rate_interval])) > 0)"#,
                            "{{service}} at {{instance}}",
                        ),
                        (
                            r#"batchwise:slo_latency_seconds{service=~"$service|"}"#,
                            "objective {{service}}",
                        ),
                    ],
                )
                .help("Mean of a response over all backends, each counted by its responses. Objectives are there with the rules of packaging/prometheus"),
                Panel::lines(
                    "Responses measured",
                    Unit::RequestsPerSecond,
                    &[(
                        "sum by (instance, service) (rate(batchwise_balance_samples_total{@subject}[$__rate_interval]))",
                        "{{service}} at {{instance}}",
                    )],
                ),
                Panel::lines(
                    "Confidence",
                    Unit::Share,
                    &[(
                        "batchwise_balance_confidence{@subject}",
                        "{{service}} {{backend}}",
                    )],
                )
                .help("How far to trust the latency: 0 is a guess")
                .limits(CONFIDENCE),
                Panel::new(
                    Draw::States(DOWN_UP),
                    "Health",
                    Unit::Number,
                    &[(
                        "batchwise_balance_healthy{@subject}",
                        "{{service}} {{backend}}",
                    )],
                )
                .help("By health checks; up where there are none"),
            ],
        },
        Row {
            title: "Why",
            panels: &[
                Panel::lines(
                    "Latency by backend",
                    Unit::Seconds,
                    &[(
                        r#"batchwise_balance_latency_seconds{@subject, statistic="mean"}"#,
                        "{{service}} {{backend}}",
                    )],
                )
                .help("Mean, by the last estimate"),
                Panel::lines(
                    "99th percentile by backend",
                    Unit::Seconds,
                    &[(
                        r#"batchwise_balance_latency_seconds{@subject, statistic="p99"}"#,
                        "{{service}} {{backend}}",
                    )],
                )
                .help("By the last estimate"),
                Panel::lines(
                    "Age of the estimate",
                    Unit::Seconds,
                    &[(
                        "batchwise_balance_latency_age_seconds{@subject}",
                        "{{service}} {{backend}}",
                    )],
                ),
                Panel::lines(
                    "Share of new connections",
                    Unit::Share,
                    &[(
                        "batchwise_balance_share_ratio{@subject}",
                        "{{service}} {{backend}}",
                    )],
                )
                .help("Of the slots of the service"),
                Panel::lines(
                    "Weight over the configured one",
                    Unit::Share,
                    &[(
                        "batchwise_balance_weight{@subject} / (batchwise_balance_base_weight{@subject} > 0)",
                        "{{service}} {{backend}}",
                    )],
                ),
                Panel::lines(
                    "Connections",
                    Unit::Number,
                    &[(
                        "batchwise_balance_connections{@subject}",
                        "{{service}} {{backend}}",
                    )],
                ),
                Panel::lines(
                    "Connections opened and closed",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_balance_connections_opened_total{@subject}[$__rate_interval])",
                            "opened: {{service}} {{backend}}",
                        ),
                        (
                            "-rate(batchwise_balance_connections_closed_total{@subject}[$__rate_interval])",
                            "closed: {{service}} {{backend}}",
                        ),
                    ],
                )
                .help("Closed ones are drawn downwards"),
                Panel::lines(
                    "Responses over connections",
                    Unit::Number,
                    &[(
                        "batchwise_balance_freshness_ratio{@subject}",
                        "{{service}} {{backend}}",
                    )],
                )
                .help("In the interval. Few: the estimate lags behind"),
                Panel::new(
                    Draw::States([("serving", "green"), ("draining", "yellow")]),
                    "Draining",
                    Unit::Number,
                    &[(
                        "batchwise_balance_draining{@subject}",
                        "{{service}} {{backend}}",
                    )],
                ),
                Panel::lines(
                    "Packets by backend",
                    Unit::PacketsPerSecond,
                    &[(
                        "rate(batchwise_balance_backend_packets_total{@subject}[$__rate_interval])",
                        "{{service}} {{backend}}",
                    )],
                ),
                Panel::lines(
                    "Bytes by backend",
                    Unit::BytesPerSecond,
                    &[(
                        "rate(batchwise_balance_backend_bytes_total{@subject}[$__rate_interval])",
                        "{{service}} {{backend}}",
                    )],
                )
                .help("From clients"),
            ],
        },
        Row {
            title: "The agent",
            panels: &[
                Panel::stacked(
                    "Packets by outcome",
                    Unit::PacketsPerSecond,
                    &[(
                        "sum by (outcome) (rate(batchwise_balance_packets_total{@agent}[$__rate_interval]))",
                        "{{outcome}}",
                    )],
                ),
                Panel::lines(
                    "Connections not known, not remembered",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_balance_unknown_flows_total{@agent}[$__rate_interval])",
                            "packets amid unknown connections at {{instance}}",
                        ),
                        (
                            "rate(batchwise_balance_insert_failures_total{@agent}[$__rate_interval])",
                            "not remembered at {{instance}}",
                        ),
                    ],
                ),
                Panel::lines(
                    "Flows",
                    Unit::Number,
                    &[
                        (
                            "batchwise_balance_flows_settled{@agent}",
                            "remembered at {{instance}}",
                        ),
                        (
                            "batchwise_balance_flows_young{@agent}",
                            "only begun at {{instance}}",
                        ),
                    ],
                ),
                SCRAPE,
                Panel::new(
                    Draw::States([("gone", "red"), ("attached", "green")]),
                    "Interfaces",
                    Unit::Number,
                    &[(
                        "batchwise_balance_interface_attached{@agent}",
                        "{{interface}} at {{instance}}",
                    )],
                ),
                Panel::new(
                    Draw::States([("refused", "red"), ("in force", "green")]),
                    "Latest configuration",
                    Unit::Number,
                    &[(
                        "batchwise_balance_config_last_reload_successful{@agent}",
                        "{{instance}}",
                    )],
                ),
                Panel::value(
                    "Configurations",
                    Unit::Number,
                    &[("batchwise_balance_config_generation{@agent}", "{{instance}}")],
                )
                .help("That have been in force since the start"),
                Panel::new(
                    Draw::Name,
                    "Policy",
                    Unit::Number,
                    &[("batchwise_balance_policy{@agent} == 1", "{{policy}}")],
                ),
                UPDATED,
                LOST,
                LOG_DROPPED,
                SERIES,
            ],
        },
    ],
    left_out: &[],
};
