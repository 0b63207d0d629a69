//! The dashboard of `batchwise tune`.

use super::{
    CONFIDENCE, Dashboard, Draw, LOG_DROPPED, LOST, OFF_ON, Panel, Row, SCRAPE, SERIES, UPDATED,
    Unit, Variable,
};

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "tune",
    about: "What tuning Nagle's algorithm does, and what it knows of both settings",
    variables: &[
        Variable {
            label: "instance",
            of: "batchwise_tune_connections",
            first: None,
        },
        Variable {
            label: "service",
            of: "batchwise_tune_connections{@agent}",
            first: None,
        },
    ],
    rows: &[
        Row {
            title: "What users feel",
            panels: &[
                Panel::lines(
                    "Latency, as set",
                    Unit::Seconds,
                    &[
                        (
                            r#"batchwise_tune_latency_seconds{@subject} and on (instance, job, service, side, nagle) label_replace(batchwise_tune_nagle == 1, "nagle", "$1", "state", "(.+)")"#,
                            "{{service}} {{side}}, Nagle {{nagle}} at {{instance}}",
                        ),
                        (
                            r#"batchwise:slo_latency_seconds{service=~"$service|"}"#,
                            "objective {{service}}",
                        ),
                    ],
                )
                .help("Mean of a message in the last test, with the setting that is in force: batchwise watch has the present one"),
                Panel::lines(
                    "Load",
                    Unit::RequestsPerSecond,
                    &[(
                        "batchwise_tune_load_per_second{@subject}",
                        "{{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("Before the first test, segments with data that were sent"),
                Panel::lines(
                    "Confidence",
                    Unit::Share,
                    &[(
                        "batchwise_tune_confidence{@subject}",
                        "{{service}} {{side}}, Nagle {{nagle}} at {{instance}}",
                    )],
                )
                .help("The share of the last test's pairs of slices that say what it says; 0: it was undecided")
                .limits(CONFIDENCE),
            ],
        },
        Row {
            title: "Why",
            panels: &[
                Panel::lines(
                    "Latency of both settings",
                    Unit::Seconds,
                    &[(
                        "batchwise_tune_latency_seconds{@subject}",
                        "Nagle {{nagle}}: {{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("In the last test"),
                Panel::lines(
                    "Throughput of both settings",
                    Unit::RequestsPerSecond,
                    &[(
                        "batchwise_tune_messages_per_second{@subject}",
                        "Nagle {{nagle}}: {{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("In the last test"),
                Panel::lines(
                    "Capacity of both settings",
                    Unit::RequestsPerSecond,
                    &[(
                        "batchwise_tune_capacity_per_second{@subject}",
                        "Nagle {{nagle}}: {{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("What one CPU of the applications at this end would carry, as of the last test"),
                Panel::lines(
                    "Gain",
                    Unit::Number,
                    &[(
                        "batchwise_tune_gain{@subject}",
                        "{{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("How many times better the setting that was not asked for was in the last test"),
                Panel::new(
                    Draw::States(OFF_ON),
                    "Nagle's algorithm",
                    Unit::Number,
                    &[(
                        r#"batchwise_tune_nagle{@subject, state="on"}"#,
                        "{{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("What is in force: decided, held, or asked for by most of the applications"),
                Panel::lines(
                    "Tests by outcome",
                    Unit::Number,
                    &[(
                        "sum by (outcome) (increase(batchwise_tune_trials_total{@subject}[$__rate_interval]))",
                        "{{outcome}}",
                    )],
                )
                .help("adopt: the other setting stays. keep: it does not. abort: it did not come to its end"),
                Panel::lines(
                    "Switches",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_tune_switches_total{@subject}[$__rate_interval])",
                            "switches: {{service}} {{side}} at {{instance}}",
                        ),
                    ],
                ),
                Panel::lines(
                    "Connections",
                    Unit::Number,
                    &[(
                        "batchwise_tune_connections{@subject}",
                        "{{service}} {{side}} at {{instance}}",
                    )],
                ),
            ],
        },
        Row {
            title: "The agent",
            panels: &[
                Panel::lines(
                    "Budget left for tests",
                    Unit::Seconds,
                    &[(
                        "batchwise_tune_budget_left_seconds{@subject}",
                        "{{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("What tests have cost and is not paid for yet, as time of the service. 0: another may come"),
                SCRAPE,
                UPDATED,
                LOST,
                LOG_DROPPED,
                SERIES,
            ],
        },
    ],
    left_out: &[("batchwise_tune_connections_left_alone", "0 but where ports are of thousands of services; the agent warns")],
};
