//! Dashboards for Grafana, one for each agent: a layout that is written by hand, of metrics that exist.
//! The top row answers what users feel, the next why, the last what the agent itself does.

mod balance;
mod burst;
mod decap;
mod grafana;
mod passive;
mod profile;
mod tune;
mod watch;
mod window;

use std::collections::BTreeSet;

use super::metrics::{Exported, heartbeat};
use super::promql::Vocabulary;
use super::{alerts, exported, hold_file};

/// The dashboard of an agent. In its queries `@agent` stands for the chosen instances, `@subject`
/// for these and the chosen services.
struct Dashboard {
    agent: &'static str,
    about: &'static str,
    /// Choices offered above the panels: first the instance, then the subject, if it has one.
    variables: &'static [Variable],
    rows: &'static [Row],
    /// Metrics that no panel shows, and why.
    left_out: &'static [(&'static str, &'static str)],
}

/// A choice among the values of a label.
struct Variable {
    label: &'static str,
    /// The series whose labels are offered.
    of: &'static str,
    /// One at a time, and this one at first; else many, and all at first.
    first: Option<&'static str>,
}

struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

struct Panel {
    title: &'static str,
    help: &'static str,
    draw: Draw,
    unit: Unit,
    /// Each with its legend.
    queries: &'static [(&'static str, &'static str)],
    /// From which value on which colour is right, ascending.
    limits: &'static [(f64, &'static str)],
}

#[derive(Clone, Copy, PartialEq)]
enum Draw {
    Lines,
    Stacked,
    /// The latest value alone.
    Value,
    /// The name of the one series alone.
    Name,
    Heatmap,
    /// What 0 and 1 mean, with their colours.
    States([(&'static str, &'static str); 2]),
}

/// As Grafana names units.
#[derive(Clone, Copy)]
enum Unit {
    Seconds,
    /// 0 to 1.
    Share,
    Number,
    RequestsPerSecond,
    PacketsPerSecond,
    EventsPerSecond,
    BytesPerSecond,
    Bytes,
}

/// 0 to 1; both ends are needed for more than 0.4.
const CONFIDENCE: &[(f64, &str)] = &[(f64::MIN, "red"), (0.3, "yellow"), (0.5, "green")];
const ZERO_IS_GOOD: &[(f64, &str)] = &[(f64::MIN, "green"), (1.0, "red")];
const OFF_ON: [(&str, &str); 2] = [("off", "green"), ("on", "blue")];

// Panels that several agents have.

const UPDATED: Panel = Panel::value(
    "Since the last update",
    Unit::Seconds,
    &[(
        "time() - batchwise_heartbeat_timestamp_seconds{@agent}",
        "{{instance}}",
    )],
)
.help("By Prometheus's clock. It grows when the agent hangs")
.limits(&[(f64::MIN, "green"), (60.0, "red")]);

const LOST: Panel = Panel::value(
    "Events lost",
    Unit::Number,
    &[(
        "increase(batchwise_lost_events_total{@agent}[$__range])",
        "{{instance}}",
    )],
)
.help("In the time shown. What was lost is missing in the estimates")
.limits(ZERO_IS_GOOD);

const LOG_DROPPED: Panel = Panel::value(
    "Lines of the log dropped",
    Unit::Number,
    &[(
        "increase(batchwise_log_lines_dropped_total{@agent}[$__range])",
        "{{instance}}",
    )],
)
.help("In the time shown, such as on a full disk")
.limits(ZERO_IS_GOOD);

const SCRAPE: Panel = Panel::lines(
    "Time of a scrape",
    Unit::Seconds,
    &[("scrape_duration_seconds{@agent}", "{{instance}}")],
);

const SERIES: Panel = Panel::value(
    "Series",
    Unit::Number,
    &[("scrape_samples_scraped{@agent}", "{{instance}}")],
)
.help("What this agent costs Prometheus");

impl Panel {
    const fn new(
        draw: Draw,
        title: &'static str,
        unit: Unit,
        queries: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            title,
            help: "",
            draw,
            unit,
            queries,
            limits: &[],
        }
    }

    const fn lines(
        title: &'static str,
        unit: Unit,
        queries: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self::new(Draw::Lines, title, unit, queries)
    }

    const fn stacked(
        title: &'static str,
        unit: Unit,
        queries: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self::new(Draw::Stacked, title, unit, queries)
    }

    const fn value(
        title: &'static str,
        unit: Unit,
        queries: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self::new(Draw::Value, title, unit, queries)
    }

    const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    const fn limits(mut self, limits: &'static [(f64, &'static str)]) -> Self {
        self.limits = limits;
        self
    }
}

impl Dashboard {
    /// The query as Grafana gets it.
    fn query(&self, query: &str) -> String {
        let chosen = |v: &Variable| format!("{0}=~\"${0}\"", v.label);
        let agent = chosen(&self.variables[0]);
        let subject = self.variables.get(1).map(chosen).unwrap_or_default();
        query
            .replace("@agent", &agent)
            .replace("@subject", &format!("{agent}, {subject}"))
    }

    fn panels(&self) -> impl Iterator<Item = &Panel> {
        self.rows.iter().flat_map(|row| row.panels)
    }

    /// Panics where a name does not exist, or a metric is neither shown nor left out on purpose.
    fn check(&self, metrics: &[Exported]) {
        let heartbeat = heartbeat();
        let words = Vocabulary {
            metrics: metrics.iter().chain([&heartbeat]).collect(),
            recorded: alerts::RECORDED,
        };
        let mut shown = BTreeSet::new();
        for (query, legend) in self.panels().flat_map(|panel| panel.queries) {
            // Grafana's variables of time are no PromQL
            let query = self.query(query);
            let query = query.replace("$__rate_interval", "1m");
            let query = query.replace("$__range", "1h");
            shown.extend(words.check(&query));
            words.check_legend(legend, &query);
        }
        for variable in self.variables {
            words.check(&self.query(variable.of));
        }
        for Exported { name, .. } in words.metrics {
            let left_out = self.left_out.iter().any(|(left_out, _)| left_out == name);
            assert!(
                left_out != shown.contains(name),
                "{name} of {} is to be in a panel, or to be left out on purpose",
                self.agent
            );
        }
        for (name, _) in self.left_out {
            let there = metrics.iter().any(|metric| metric.name == *name);
            assert!(there, "{} has no {name} to leave out", self.agent);
        }
    }
}

#[test]
fn the_dashboards_show_metrics_that_exist_and_all_of_them() {
    let all = [
        watch::DASHBOARD,
        tune::DASHBOARD,
        passive::DASHBOARD,
        balance::DASHBOARD,
        decap::DASHBOARD,
        window::DASHBOARD,
        profile::DASHBOARD,
        burst::DASHBOARD,
    ];
    for ((agent, metrics), dashboard) in exported().into_iter().zip(all) {
        assert_eq!(agent, dashboard.agent);
        dashboard.check(&metrics);
        let name = format!("packaging/grafana/batchwise-{agent}.json");
        hold_file(&name, grafana::json(&dashboard));
    }
}
