//! How `batchwise balance` and its `status` are shown as text and as JSON lines.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use batchwise_core::balance::UNIT;
use batchwise_core::balance::report::{
    BackendLine, DecisionLine, EventLine, Health, Line, State, TotalsLine,
};

use super::status::Status;
use super::view::Table;
use crate::output::aside::Aside;
use crate::output::live::Live;
use crate::output::pipe::{self, Watched};
use crate::output::{Form, Sink, human};

/// Opens standard output for the agent's own intervals.
///
/// # Errors
/// The terminal cannot be taken over.
pub fn open(form: Form) -> anyhow::Result<Box<dyn Sink<Status>>> {
    Ok(match form {
        Form::Live => Box::new(Live::open(Table::default())?),
        Form::Text => Box::new(Text {
            out: Aside::stdout(),
        }),
        Form::Jsonl => Box::new(Jsonl {
            out: Aside::stdout(),
        }),
    })
}

/// Writes what happens and what is decided.
struct Text<W> {
    out: W,
}

impl<W: Write + Watched> Sink<Status> for Text<W> {
    fn interval(&mut self, status: &Status) -> anyhow::Result<()> {
        let mut text = String::new();
        for line in &status.news {
            match line {
                Line::Event(event) => text += &event_line(event),
                Line::Decision(decision) if decision.moved_slots > 0 => {
                    text += &decision_line(decision);
                }
                Line::Decision(_) | Line::Backend(_) | Line::Totals(_) => {}
            }
        }
        pipe::write_all(&mut self.out, text.as_bytes())
    }

    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        self.out.closed_within(timeout)
    }
}

/// Writes one JSON object a line: backends, what was new, totals.
struct Jsonl<W> {
    out: W,
}

impl<W: Write + Watched> Sink<Status> for Jsonl<W> {
    fn interval(&mut self, status: &Status) -> anyhow::Result<()> {
        let backends = status.backends.iter().cloned().map(Box::new);
        let totals = std::iter::once(Line::Totals(status.totals.clone()));
        let mut text = Vec::new();
        for line in backends
            .map(Line::Backend)
            .chain(status.news.iter().cloned())
            .chain(totals)
        {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        pipe::write_all(&mut self.out, &text)
    }

    fn poll_quit(&mut self, timeout: Duration) -> anyhow::Result<bool> {
        self.out.closed_within(timeout)
    }
}

fn event_line(event: &EventLine) -> String {
    let about = match (&event.service, &event.backend) {
        (Some(service), Some(backend)) => format!("  {service}/{backend}"),
        (Some(service), None) => format!("  {service}"),
        (None, _) => String::new(),
    };
    let clock = human::clock(event.ts_ns);
    format!("{clock}  {}{about}  {}\n", event.what, event.detail)
}

fn decision_line(decision: &DecisionLine) -> String {
    let changed = decision.backends.iter().filter(|b| b.before != b.after);
    let parts: Vec<String> = changed
        .map(|b| {
            let (before, after) = (weight(b.before), weight(b.after));
            format!("{} {before} -> {after} ({})", b.backend, b.why.word())
        })
        .collect();
    format!(
        "{}  decision  {}  {}{}; {} slots{}\n",
        human::clock(decision.ts_ns),
        decision.service,
        parts.join(", "),
        if parts.is_empty() { "table" } else { "" },
        decision.moved_slots,
        if decision.applied {
            " moved"
        } else {
            " would move (observe)"
        }
    )
}

/// An effective weight as the configuration has weights.
pub fn weight(effective: u32) -> String {
    let whole = f64::from(effective) / f64::from(UNIT);
    if effective.is_multiple_of(UNIT) {
        format!("{whole:.0}")
    } else {
        format!("{whole:.1}")
    }
}

/// As in JSON.
pub const fn state(state: State) -> &'static str {
    match state {
        State::Serving => "serving",
        State::Draining => "draining",
        State::Down => "down",
    }
}

/// As in JSON.
pub const fn health(health: Health) -> &'static str {
    match health {
        Health::Up => "up",
        Health::Down => "down",
        Health::Unknown => "unknown",
        Health::Unchecked => "unchecked",
    }
}

/// The names of [`cells`].
pub const COLUMNS: [&str; 14] = [
    "service", "backend", "address", "state", "health", "weight", "share", "conns", "opened",
    "mean", "p99", "age", "fresh", "why",
];

/// Columns of text that are aligned to the left.
pub const fn is_text(column: usize) -> bool {
    column < 5 || column == 13
}

/// A backend's row.
pub fn cells(line: &BackendLine) -> [String; 14] {
    let dash = || human::UNKNOWN.to_owned();
    [
        line.service.clone(),
        line.backend.clone(),
        line.address.clone(),
        state(line.state).to_owned(),
        health(line.health).to_owned(),
        weight(line.weight),
        format!("{:.1} %", line.share * 100.0),
        line.connections.map_or_else(dash, |n| n.to_string()),
        line.opened.to_string(),
        human::maybe_duration(line.latency_ns.mean),
        human::maybe_duration(line.latency_ns.p99),
        human::maybe_duration(line.age_ns),
        line.freshness.map_or_else(dash, |f| format!("{f:.2}")),
        line.why.word().to_owned(),
    ]
}

/// That interfaces are without the program.
pub fn detached(names: &[String]) -> String {
    format!("NOT FORWARDING AT {} (gone?)", names.join(", "))
}

/// The whole status for people.
pub fn table(status: &Status) -> String {
    let agent = &status.agent;
    let mut text = format!(
        "balancer {}  policy {}  pid {}  interfaces {}  configuration {} (generation {})\n",
        agent.name,
        policy(agent.policy),
        agent.pid,
        agent.interfaces.join(", "),
        agent.config,
        agent.generation,
    );
    if let Some(error) = &agent.config_error {
        let _ = writeln!(
            text,
            "THE LAST RELOAD WAS REFUSED, the configuration before it is in force: {error}"
        );
    }
    if !agent.detached.is_empty() {
        let _ = writeln!(text, "{}", detached(&agent.detached));
    }
    let rows: Vec<[String; 14]> = std::iter::once(COLUMNS.map(str::to_owned))
        .chain(status.backends.iter().map(cells))
        .collect();
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|c| c.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String does not fail.
            let _ = if is_text(column) {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    for line in &status.backends {
        if let (true, Some(why)) = (line.health != Health::Up, &line.health_why) {
            let _ = writeln!(text, "{}/{}: {why}", line.service, line.backend);
        }
    }
    text += &totals(&status.totals);
    text
}

/// As in JSON.
pub const fn policy(policy: batchwise_core::balance::report::Policy) -> &'static str {
    use batchwise_core::balance::report::Policy;
    match policy {
        Policy::Static => "static",
        Policy::Observe => "observe",
        Policy::Latency => "latency",
    }
}

/// Fates of packets for people; those that there were none of are left out.
pub fn totals(totals: &TotalsLine) -> String {
    let fates = totals.outcomes.iter().filter(|(_, n)| **n > 0);
    let fates: Vec<String> = fates.map(|(name, n)| format!("{n} {name}")).collect();
    let mut text = if fates.is_empty() {
        "no packets yet".to_owned()
    } else {
        format!("packets: {}", fates.join(", "))
    };
    let _ = writeln!(
        text,
        "; flows {} (young {}), unknown {}, not kept {}, events lost {}",
        totals.flows_settled,
        totals.flows_young,
        totals.unknown_flows,
        totals.insert_failed,
        totals.lost_events
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_table_is_what_people_read() {
        let expected = "\
balancer default  policy latency  pid 4242  interfaces eth0  configuration lb.toml (generation 2)
service  backend  address     state    health  weight   share  conns  opened     mean      p99     age  fresh  why
web      s1       10.79.0.21  serving  up        92.5  92.5 %     12       3  1.01 ms  2.30 ms  120 ms  35.00  takes
web      s2       10.79.0.22  down     down         0   0.0 %      –       0        –        –       –      –  down
web/s2: connecting: refused
packets: 900 forwarded, 1 fragment; flows 12 (young 1), unknown 4, not kept 0, events lost 0
";
        assert_eq!(table(&samples::status()), expected);
    }

    #[test]
    fn a_refused_reload_is_said_with_its_error() {
        let mut status = samples::status();
        status.agent.config_error = Some("lb.toml:3: unknown field".to_owned());
        let text = table(&status);
        assert!(text.contains("REFUSED") && text.contains("lb.toml:3: unknown field"));
    }

    #[test]
    fn an_interface_without_the_program_is_said() {
        let mut status = samples::status();
        status.agent.detached = vec!["eth1".to_owned()];
        let text = table(&status);
        assert!(text.contains("NOT FORWARDING AT eth1"), "{text}");
    }

    #[test]
    fn a_status_is_the_same_after_its_lines() {
        let status = samples::status();
        let lines = status.to_lines().expect("JSON");
        assert_eq!(Status::from_lines(&lines), Ok(status));
        assert!(
            lines.lines().all(|l| l.starts_with("{\"kind\":\"")),
            "{lines}"
        );
        assert!(Status::from_lines("{}").is_err());
        assert!(Status::from_lines("").is_err());
    }
}
