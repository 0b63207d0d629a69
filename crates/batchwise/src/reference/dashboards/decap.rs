//! The dashboard of `batchwise decap`.

use super::{Dashboard, Panel, Row, SCRAPE, SERIES, UPDATED, Unit, Variable};

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "decap",
    about: "What the servers' end of balance's tunnels does with packets",
    variables: &[Variable {
        label: "instance",
        of: "batchwise_decap_packets_total",
        first: None,
    }],
    rows: &[
        Row {
            title: "What users feel",
            panels: &[
                Panel::lines(
                    "Packets decapsulated",
                    Unit::PacketsPerSecond,
                    &[(
                        r#"rate(batchwise_decap_packets_total{@agent, fate="decapsulated"}[$__rate_interval])"#,
                        "{{instance}}",
                    )],
                )
                .help("Requests from the balancer. None: its clients are not served here"),
                Panel::lines(
                    "Tunnelled packets that are refused",
                    Unit::PacketsPerSecond,
                    &[(
                        r#"sum by (instance, fate) (rate(batchwise_decap_packets_total{@agent, fate=~"foreign_source|foreign_inner|fragment|options|malformed"}[$__rate_interval]))"#,
                        "{{fate}} at {{instance}}",
                    )],
                )
                .help("foreign_source: from none that --from names. foreign_inner: for an address that this host does not have"),
            ],
        },
        Row {
            title: "Why",
            panels: &[Panel::stacked(
                "Packets by fate",
                Unit::PacketsPerSecond,
                &[(
                    "sum by (fate) (rate(batchwise_decap_packets_total{@agent}[$__rate_interval]))",
                    "{{fate}}",
                )],
            )],
        },
        Row {
            title: "The agent",
            panels: &[UPDATED, SERIES, SCRAPE],
        },
    ],
    left_out: &[],
};
