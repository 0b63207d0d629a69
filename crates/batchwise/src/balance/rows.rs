//! How `batchwise balance` and its `status` are shown: a row for each backend, what happened, and the
//! fates of packets.

use std::fmt::Write as _;

use batchwise_core::balance::UNIT;
use batchwise_core::balance::report::{
    BackendLine, DecisionLine, EventLine, Health, Line, State, TotalsLine,
};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line as Text, Span};

use super::status::Status;
use crate::frame::human;
use crate::frame::rows::{Column, JsonLines, TextTable, View, lost, name, plain};

impl View for Status {
    type Row = BackendLine;

    const COLUMNS: &'static [Column<BackendLine>] = &[
        Column::left("service", 0, |l| plain(l.service.clone())),
        Column::left("backend", 0, |l| name(l.backend.clone())),
        Column::left("address", 0, |l| plain(l.address.clone())),
        Column::left("state", 0, |l| by_state(l, human::word(&l.state))),
        Column::left("health", 0, |l| by_state(l, human::word(&l.health))),
        Column::right("weight", 0, |l| plain(weight(l.weight))),
        Column::right("share", 0, |l| plain(format!("{:.1} %", l.share * 100.0))),
        Column::right("conns", 0, |l| known(l.connections.map(|n| n.to_string()))),
        Column::right("opened", 0, |l| plain(l.opened.to_string())),
        Column::right("mean", 0, |l| {
            plain(human::maybe_duration(l.latency_ns.mean)).bold()
        }),
        Column::right("p99", 0, |l| plain(human::maybe_duration(l.latency_ns.p99))),
        Column::right("age", 0, |l| plain(human::maybe_duration(l.age_ns))),
        Column::right("fresh", 0, |l| {
            known(l.freshness.map(|f| format!("{f:.2}")))
        }),
        Column::left("why", 0, |l| plain(human::word(&l.why))),
    ];
    const NAME: &'static str = "balance";
    const DETAILS: u16 = 5;

    fn rows(&self) -> Vec<&BackendLine> {
        self.backends.iter().collect()
    }

    /// Of an agent's interval people read what happened.
    fn text_rows(&self) -> Vec<&BackendLine> {
        Vec::new()
    }

    /// Backends, what was new, totals.
    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        for backend in &self.backends {
            lines.push(&Line::Backend(Box::new(backend.clone())))?;
        }
        self.news.iter().try_for_each(|line| lines.push(line))?;
        lines.push(&Line::Totals(self.totals.clone()))
    }

    fn notes(&self) -> String {
        let notes = self.news.iter().map(|line| match line {
            Line::Event(event) => event_line(event),
            Line::Decision(decision) if decision.moved_slots > 0 => decision_line(decision),
            Line::Decision(_) | Line::Backend(_) | Line::Totals(_) => String::new(),
        });
        notes.collect()
    }

    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        let (agent, totals) = (&self.agent, &self.totals);
        let (policy, interfaces) = (human::word(&agent.policy), agent.interfaces.join(", "));
        let left = vec![
            name(agent.name.clone()),
            format!("   policy {policy}   {interfaces}").dim(),
        ];
        let mut right = lost(totals.lost_events);
        right.push(format!("{} flows   ", totals.flows_settled).dim());
        right.push(human::clock(agent.ts_ns).dim());
        (left, right)
    }

    fn warning(&self) -> Option<String> {
        let agent = &self.agent;
        if !agent.detached.is_empty() {
            return Some(detached(&agent.detached));
        }
        let error = agent.config_error.as_ref()?;
        Some(format!("last reload refused: {error}"))
    }

    /// What happened last.
    fn details(&self, _chosen: Option<&BackendLine>, _width: u16) -> Vec<Text<'static>> {
        let skipped = self.events.len().saturating_sub(Self::DETAILS.into());
        let line = |event: &EventLine| {
            Text::from(vec![
                format!(" {} ", human::clock(event.ts_ns)).dim(),
                format!("{} ", event.what).bold(),
                about(event).cyan(),
                format!(" {}", event.detail).into(),
            ])
        };
        self.events.iter().skip(skipped).map(line).collect()
    }
}

fn by_state(line: &BackendLine, word: String) -> Span<'static> {
    let color = match line.state {
        State::Serving => Color::Green,
        State::Draining => Color::Yellow,
        State::Down => Color::Red,
    };
    Span::styled(word, Style::new().fg(color))
}

fn known(text: Option<String>) -> Span<'static> {
    plain(text.unwrap_or_else(|| human::UNKNOWN.to_owned()))
}

fn about(event: &EventLine) -> String {
    match (&event.service, &event.backend) {
        (Some(service), Some(backend)) => format!("{service}/{backend}"),
        (Some(service), None) => service.clone(),
        (None, _) => String::new(),
    }
}

fn event_line(event: &EventLine) -> String {
    let (clock, about) = (human::clock(event.ts_ns), about(event));
    let gap = if about.is_empty() { "" } else { "  " };
    format!("{clock}  {}{gap}{about}  {}\n", event.what, event.detail)
}

fn decision_line(decision: &DecisionLine) -> String {
    let changed = decision.backends.iter().filter(|b| b.before != b.after);
    let parts: Vec<String> = changed
        .map(|b| {
            let (before, after) = (weight(b.before), weight(b.after));
            format!(
                "{} {before} -> {after} ({})",
                b.backend,
                human::word(&b.why)
            )
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
fn weight(effective: u32) -> String {
    let whole = f64::from(effective) / f64::from(UNIT);
    if effective.is_multiple_of(UNIT) {
        format!("{whole:.0}")
    } else {
        format!("{whole:.1}")
    }
}

/// That interfaces are without the program.
fn detached(names: &[String]) -> String {
    format!("NOT FORWARDING AT {} (gone?)", names.join(", "))
}

/// The whole status for people.
pub fn table(status: &Status) -> String {
    let agent = &status.agent;
    let mut text = format!(
        "balancer {}  policy {}  pid {}  interfaces {}  configuration {} (generation {})\n",
        agent.name,
        human::word(&agent.policy),
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
    text += &TextTable::new(Status::COLUMNS).rows(&status.rows());
    for line in &status.backends {
        if let (true, Some(why)) = (line.health != Health::Up, &line.health_why) {
            let _ = writeln!(text, "{}/{}: {why}", line.service, line.backend);
        }
    }
    text += &totals(&status.totals);
    text
}

/// Fates of packets for people; those that there were none of are left out.
fn totals(totals: &TotalsLine) -> String {
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
    use crate::frame::rows::LiveTable;
    use crate::frame::rows::picture::picture;

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

    fn drawn(status: &Status) -> String {
        let mut table = LiveTable::new(String::new());
        table.show(status);
        picture(140, 20, |frame| table.draw(frame))
    }

    #[test]
    fn every_backend_is_a_row_and_what_happened_is_below() {
        let text = drawn(&samples::status());
        let row = text.lines().find(|l| l.contains("10.79.0.22"));
        let row = row.expect("a row");
        for cell in ["web", "s2", "down", "0.0 %", "–"] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        assert!(text.contains("health web/s2 down: refused"), "{text}");
    }

    #[test]
    fn a_refused_configuration_and_more_so_an_interface_without_the_program_are_said_loudly() {
        let mut status = samples::status();
        status.agent.config_error = Some("lb.toml:3: bad".to_owned());
        let text = drawn(&status);
        assert!(text.contains("last reload refused: lb.toml:3"), "{text}");
        status.agent.detached = vec!["eth1".to_owned()];
        let (text, table) = (drawn(&status), table(&status));
        assert!(text.contains("NOT FORWARDING AT eth1"), "{text}");
        for said in ["REFUSED", ": lb.toml:3: bad", "NOT FORWARDING AT eth1"] {
            assert!(table.contains(said), "{table}");
        }
    }
}
