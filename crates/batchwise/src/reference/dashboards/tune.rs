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
                .help("Mean of a request with the setting that is in force"),
                Panel::lines(
                    "Load",
                    Unit::RequestsPerSecond,
                    &[(
                        "batchwise_tune_load_per_second{@subject}",
                        "{{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("When last measured"),
                Panel::lines(
                    "Confidence",
                    Unit::Share,
                    &[(
                        "batchwise_tune_confidence{@subject}",
                        "{{service}} {{side}}, Nagle {{nagle}} at {{instance}}",
                    )],
                )
                .help("How far to trust the latency with each setting: 0 is a guess. One end alone gives 0.4, and --min-confidence is 0.5 by default")
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
                .help("Under the present load. Absent: never seen under it"),
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
                    "Trials by outcome",
                    Unit::Number,
                    &[(
                        "sum by (outcome) (increase(batchwise_tune_trials_total{@subject}[$__rate_interval]))",
                        "{{outcome}}",
                    )],
                )
                .help("adopt: the other setting stays. keep: it does not. abort: given up. yield: the other end was trying"),
                Panel::lines(
                    "Switches and pulses",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_tune_switches_total{@subject}[$__rate_interval])",
                            "switches: {{service}} {{side}} at {{instance}}",
                        ),
                        (
                            "rate(batchwise_tune_pulses_total{@subject}[$__rate_interval])",
                            "pulses: {{service}} {{side}} at {{instance}}",
                        ),
                        (
                            "rate(batchwise_tune_pulses_found_total{@subject}[$__rate_interval])",
                            "pulses that found a sender behind: {{service}} {{side}} at {{instance}}",
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
                    "Budget left for trials",
                    Unit::Seconds,
                    &[(
                        "batchwise_tune_budget_left_seconds{@subject}",
                        "{{service}} {{side}} at {{instance}}",
                    )],
                )
                .help("How long requests may still take twice as long. Below 0: overdrawn")
                .limits(&[(f64::MIN, "red"), (0.0, "green")]),
                SCRAPE,
                UPDATED,
                LOST,
                LOG_DROPPED,
                SERIES,
            ],
        },
    ],
    left_out: &[],
};
