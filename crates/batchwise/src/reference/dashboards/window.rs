//! The dashboard of `batchwise window`.

use super::{Dashboard, Panel, Row, SCRAPE, SERIES, UPDATED, Unit, Variable};

pub const DASHBOARD: Dashboard = Dashboard {
    agent: "window",
    about: "What applications that write when TCP can send leave in the kernel, and how they are woken",
    variables: &[Variable {
        label: "instance",
        of: "batchwise_window_sockets",
        first: None,
    }],
    rows: &[
        Row {
            title: "What users feel",
            panels: &[
                Panel::lines(
                    "Bytes that wait in the kernel, a socket",
                    Unit::Bytes,
                    &[(
                        "batchwise_window_unsent_bytes{@agent} / batchwise_window_sockets{@agent}",
                        "{{instance}}",
                    )],
                )
                .help("What is urgent waits behind these. As of the sockets' last acknowledgments"),
                Panel::lines(
                    "Registered sockets",
                    Unit::Number,
                    &[("batchwise_window_sockets{@agent}", "{{instance}}")],
                ),
            ],
        },
        Row {
            title: "Why",
            panels: &[
                Panel::lines(
                    "Wake-ups, fallbacks and looks",
                    Unit::EventsPerSecond,
                    &[
                        (
                            "rate(batchwise_window_wakeups_total{@agent}[$__rate_interval])",
                            "wake-ups at {{instance}}",
                        ),
                        (
                            "rate(batchwise_window_fallbacks_total{@agent}[$__rate_interval])",
                            "fallbacks at {{instance}}",
                        ),
                        (
                            "rate(batchwise_window_events_total{@agent}[$__rate_interval])",
                            "looks at {{instance}}",
                        ),
                    ],
                )
                .help("A fallback: nothing rang in half a round trip, and the application looked again"),
                Panel::lines(
                    "Lag of a wake-up",
                    Unit::Seconds,
                    &[("batchwise_window_lag_seconds{@agent}", "{{instance}}")],
                )
                .help("From the program to the application's hearing of it; the longest of the sockets' last ones"),
                Panel::lines(
                    "Gated connections",
                    Unit::EventsPerSecond,
                    &[(
                        "rate(batchwise_window_gated_total{@agent}[$__rate_interval])",
                        "{{instance}}",
                    )],
                )
                .help("New connections at the ports of --gate"),
                Panel::lines(
                    "Refused sockets",
                    Unit::EventsPerSecond,
                    &[(
                        "rate(batchwise_window_refused_total{@agent}[$__rate_interval])",
                        "{{instance}}",
                    )],
                )
                .help("They fall back to TCP_NOTSENT_LOWAT, or are none of TCP's"),
            ],
        },
        Row {
            title: "The agent",
            panels: &[UPDATED, SERIES, SCRAPE],
        },
    ],
    left_out: &[],
};
