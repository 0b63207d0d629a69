//! The dashboard of `batchwise profile`.

use super::{Dashboard, Panel, Row, SCRAPE, SERIES, UPDATED, Unit, Variable};

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "profile",
    about: "Where the CPU time of the network stack goes",
    variables: &[Variable {
        label: "instance",
        of: "batchwise_profile_cpus_busy",
        first: None,
    }],
    rows: &[
        Row {
            title: "Where the CPU time goes",
            panels: &[
                Panel::stacked(
                    "Shares by component",
                    Unit::Share,
                    &[(
                        "sum by (component) (rate(batchwise_profile_samples_total{@agent}[$__rate_interval])) / on() group_left() \
                         sum(rate(batchwise_profile_samples_total{@agent}[$__rate_interval]))",
                        "{{component}}",
                    )],
                )
                .help("Of the time in which CPUs did something"),
                Panel::lines(
                    "Busy CPUs",
                    Unit::Number,
                    &[("batchwise_profile_cpus_busy{@agent}", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "The agent",
            panels: &[
                Panel::lines(
                    "Lost samples",
                    Unit::EventsPerSecond,
                    &[(
                        "rate(batchwise_profile_lost_samples_total{@agent}[$__rate_interval])",
                        "{{instance}}",
                    )],
                ),
                UPDATED,
                SERIES,
                SCRAPE,
            ],
        },
    ],
    left_out: &[],
};
