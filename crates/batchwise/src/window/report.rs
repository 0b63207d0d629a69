//! What people, programs and Prometheus see of the applications' sockets.

use serde::Serialize;

use super::apps::Seen;
use crate::frame::clock::wall_clock_ns;
use crate::frame::human;
use crate::frame::metrics::{Family, Metrics, alone};
use crate::frame::rows::{Column, JsonLines, View, name, plain};

/// The line of one application. The field names are a contract.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line {
    /// Always `window`.
    kind: &'static str,
    /// When it was counted, ns since the Unix epoch.
    ts_ns: u64,
    /// The application's process.
    pid: i32,
    /// Its name.
    application: String,
    /// Sockets that it has registered.
    sockets: u64,
    /// Those of them on which it waits until TCP can send.
    waiting: u64,
    /// Bytes that wait in the kernel, a socket in the mean, as of the sockets' last acknowledgments.
    unsent_bytes: u64,
    /// Times that the programs looked since the last line: twice for most acknowledgments.
    events: u64,
    /// Times that the application was woken since then.
    wakeups: u64,
    /// Times that it looked again as nothing had rung in time.
    fallbacks: u64,
    /// The longest of the sockets' last wake-ups, from the program to the application's hearing of it.
    lag_ns: u64,
}

/// All applications.
#[derive(Clone, Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
    /// Bytes that wait in the kernel, of all sockets.
    unsent: u64,
    refused: u64,
    gated: u64,
}

impl Report {
    pub fn of(seen: Vec<Seen>, refused: u64, gated: u64) -> Self {
        let ts_ns = wall_clock_ns();
        let unsent = seen.iter().map(|seen| seen.unsent).sum();
        let line = |seen: Seen| Line {
            kind: "window",
            ts_ns,
            pid: seen.pid,
            application: seen.name,
            sockets: seen.sockets,
            waiting: seen.waiting,
            unsent_bytes: seen.unsent / seen.sockets.max(1),
            events: seen.events,
            wakeups: seen.rung,
            fallbacks: seen.fallbacks,
            lag_ns: seen.lag_ns,
        };
        Self {
            lines: seen.into_iter().map(line).collect(),
            unsent,
            refused,
            gated,
        }
    }
}

impl View for Report {
    type Row = Line;

    const COLUMNS: &'static [Column<Line>] = &[
        Column::left("application", 16, |line| name(&line.application)),
        Column::right("pid", 8, |line| plain(line.pid.to_string())),
        Column::right("sockets", 8, |line| plain(line.sockets.to_string())),
        Column::right("waiting", 8, |line| plain(line.waiting.to_string())),
        Column::right("unsent B", 10, |line| plain(line.unsent_bytes.to_string())),
        Column::right("looks", 10, |line| plain(line.events.to_string())),
        Column::right("wakeups", 10, |line| plain(line.wakeups.to_string())),
        Column::right("fallbacks", 10, |line| plain(line.fallbacks.to_string())),
        Column::right("lag", 8, |line| plain(human::duration(line.lag_ns))),
    ];
    const NAME: &'static str = "window";

    fn rows(&self) -> Vec<&Line> {
        self.lines.iter().collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        self.lines.iter().try_for_each(|line| lines.push(line))
    }
}

/// Counters are sums over all applications since the start.
#[derive(Debug, Default)]
pub struct WindowMetrics {
    sockets: u64,
    unsent: u64,
    events: u64,
    wakeups: u64,
    fallbacks: u64,
    refused: u64,
    lag_ns: u64,
    gated: u64,
}

impl WindowMetrics {
    pub fn take(&mut self, report: &Report) {
        let sum = |of: fn(&Line) -> u64| report.lines.iter().map(of).sum::<u64>();
        self.sockets = sum(|line| line.sockets);
        self.unsent = report.unsent;
        self.events += sum(|line| line.events);
        self.wakeups += sum(|line| line.wakeups);
        self.fallbacks += sum(|line| line.fallbacks);
        (self.refused, self.gated) = (report.refused, report.gated);
        self.lag_ns = report
            .lines
            .iter()
            .map(|line| line.lag_ns)
            .max()
            .unwrap_or(0);
    }
}

impl Metrics for WindowMetrics {
    const FAMILIES: &'static [Family<Self>] = &[
        Family::gauge("window_sockets", "Registered sockets", |m| {
            alone(m.sockets as f64)
        }),
        Family::gauge(
            "window_unsent_bytes",
            "Bytes of registered sockets that wait in the kernel, as of their last acknowledgments",
            |m| alone(m.unsent as f64),
        ),
        Family::counter(
            "window_events",
            "Times that the programs looked at a registered socket: twice for most acknowledgments",
            |m| alone(m.events),
        ),
        Family::counter(
            "window_wakeups",
            "Times that an application was woken as TCP could send",
            |m| alone(m.wakeups),
        ),
        Family::counter(
            "window_fallbacks",
            "Times that an application looked again as nothing had rung in time",
            |m| alone(m.fallbacks),
        ),
        Family::gauge(
            "window_lag_seconds",
            "Longest of the sockets' last wake-ups, from the program to the application's hearing of it",
            |m| alone(m.lag_ns as f64 / 1e9),
        ),
        Family::counter(
            "window_gated",
            "Connections at a port of --gate that are writable only while nothing of them waits",
            |m| alone(m.gated),
        ),
        Family::counter("window_refused", "Sockets that were refused", |m| {
            alone(m.refused)
        }),
    ];
}

#[cfg(test)]
impl crate::frame::metrics::testing::Example for WindowMetrics {
    fn example() -> Self {
        Self::default()
    }
}
