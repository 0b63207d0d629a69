//! The dashboard of `batchwise burst`.

use super::{Dashboard, Panel, Row, SCRAPE, SERIES, UPDATED, Unit, Variable};

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "burst",
    about: "Bursts that senders mark, and that a router's queue takes whole or not at all",
    variables: &[Variable {
        label: "instance",
        of: "batchwise_heartbeat_timestamp_seconds",
        first: None,
    }],
    rows: &[
        Row {
            title: "What users feel",
            panels: &[
                Panel::lines(
                    "Bursts",
                    Unit::EventsPerSecond,
                    &[(
                        "rate(batchwise_burst_decisions_total{@agent}[$__rate_interval])",
                        "{{verdict}} at {{instance}}",
                    )],
                )
                .help("A refused burst is sent again as a whole; one that is admitted loses nothing here"),
                Panel::lines(
                    "Dropped packets",
                    Unit::PacketsPerSecond,
                    &[
                        (
                            "rate(batchwise_burst_router_packets_total{@agent, fate=~\"denied|overflowed|unmarked_dropped\"}[$__rate_interval])",
                            "{{fate}} at {{instance}}",
                        ),
                        (
                            "rate(batchwise_burst_queue_drops_total{@agent}[$__rate_interval])",
                            "by the queue itself at {{instance}}",
                        ),
                    ],
                ),
                Panel::lines(
                    "The queue",
                    Unit::Bytes,
                    &[
                        ("batchwise_burst_queue_bytes{@agent}", "now at {{instance}}"),
                        (
                            "batchwise_burst_queue_highest_bytes{@agent}",
                            "highest at {{instance}}",
                        ),
                        ("batchwise_burst_reserved_bytes{@agent}", "reserved at {{instance}}"),
                        ("batchwise_burst_queue_limit_bytes{@agent}", "limit at {{instance}}"),
                    ],
                ),
            ],
        },
        Row {
            title: "Why",
            panels: &[
                Panel::lines(
                    "Reserved and not come",
                    Unit::BytesPerSecond,
                    &[(
                        "rate(batchwise_burst_lost_bytes_total{@agent}[$__rate_interval])",
                        "{{instance}}",
                    )],
                )
                .help("A mark is rounded up, so a little is usual"),
                Panel::lines(
                    "Lost leases",
                    Unit::EventsPerSecond,
                    &[(
                        "rate(batchwise_burst_lost_leases_total{@agent}[$__rate_interval])",
                        "{{instance}}",
                    )],
                ),
                Panel::lines(
                    "Known sources",
                    Unit::Number,
                    &[("batchwise_burst_sources{@agent}", "{{instance}}")],
                ),
                Panel::lines(
                    "Marked packets by segments left",
                    Unit::PacketsPerSecond,
                    &[(
                        "sum by (segments) (rate(batchwise_burst_marked_packets_total{@agent}[$__rate_interval]))",
                        "{{segments}}",
                    )],
                )
                .help("At senders; a GSO buffer is one packet"),
                Panel::lines(
                    "Bursts that began, marks taken off",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_burst_begun_total{@agent}[$__rate_interval])",
                            "began at {{instance}}",
                        ),
                        (
                            "rate(batchwise_burst_cleared_packets_total{@agent}[$__rate_interval])",
                            "taken off at {{instance}}",
                        ),
                    ],
                ),
                Panel::lines(
                    "Packets that are not marked",
                    Unit::PacketsPerSecond,
                    &[(
                        "sum by (reason) (rate(batchwise_burst_unmarked_packets_total{@agent}[$__rate_interval]))",
                        "{{reason}}",
                    )],
                ),
            ],
        },
        Row {
            title: "The agent",
            panels: &[UPDATED, SERIES, SCRAPE],
        },
    ],
    left_out: &[],
};
