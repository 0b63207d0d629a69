//! The picture that the live view of `batchwise passive` draws: a table with a row for every server,
//! the recent means beside it. It knows intervals and frames, no terminal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use batchwise_core::passive::report::ServerLine;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table as Grid};

use super::interval::{Interval, Key, pressure, word};
use super::show;
use crate::output::human;
use crate::output::live::Picture;
use crate::output::view::split;

/// Intervals of which the means are drawn.
const HISTORY: usize = 60;
/// Columns besides the recent means, with the gaps between them.
const COLUMNS: u16 = 87;
/// From here on a table that fills up is worth a warning.
const PRESSURE: f64 = 0.9;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is to be drawn.
pub struct Table {
    place: String,
    waiting: String,
    interval: Interval,
    history: BTreeMap<Key, VecDeque<Option<u64>>>,
    first: usize,
    note: Option<String>,
}

impl Table {
    /// Shows `place`, where packets are seen, and `waiting` until there is traffic.
    pub fn new(place: String, waiting: String) -> Self {
        Self {
            place,
            waiting,
            interval: Interval::default(),
            history: BTreeMap::new(),
            first: 0,
            note: None,
        }
    }

    fn draw_header(&self, frame: &mut Frame, area: Rect) {
        let totals = &self.interval.totals;
        let mut right = Vec::new();
        if totals.lost_events > 0 {
            right.push(
                format!("{} events lost   ", totals.lost_events)
                    .bold()
                    .red(),
            );
        }
        if totals.evicted > 0 {
            right.push(format!("{} flows evicted   ", totals.evicted).yellow());
        }
        let pressure = pressure(totals);
        let table = format!("table {:.0} % full   ", pressure * 100.0);
        right.push(if pressure >= PRESSURE {
            table.bold().red()
        } else {
            table.dim()
        });
        if totals.ts_ns > 0 {
            right.push(human::clock(totals.ts_ns).dim());
        }
        let left = vec![
            " batchwise passive".bold(),
            format!("   {}", self.place).dim(),
        ];
        split(frame, area, Text::from(left), Text::from(right));
    }

    fn draw_footer(&self, frame: &mut Frame, area: Rect, room: usize) {
        let below = self
            .interval
            .servers
            .len()
            .saturating_sub(self.first + room);
        let keys = match (self.first, below) {
            (0, 0) => "q quits".to_owned(),
            (above, below) => format!("↑ {above} ↓ {below} more   q quits"),
        };
        let note = match &self.note {
            Some(note) => Span::from(format!(" {note}")).yellow(),
            None => Span::default(),
        };
        split(frame, area, Text::from(note), Text::from(keys.dim()));
    }

    fn draw_servers(&self, frame: &mut Frame, area: Rect, room: usize) {
        let width = usize::from(area.width.saturating_sub(COLUMNS)).min(HISTORY);
        let servers = self.interval.servers.iter().skip(self.first).take(room);
        let rows = servers.map(|(key, line)| {
            let recent = self.history.get(key).map(|h| spark(h, width));
            row(line, recent.unwrap_or_default())
        });
        let right = |name: &'static str| Cell::from(Text::from(name).alignment(Alignment::Right));
        let header = Row::new([
            Cell::from(" server"),
            Cell::from("proto"),
            right("flows"),
            right("mean"),
            right("p50"),
            right("p90"),
            right("p99"),
            right("trust"),
            right("stalled"),
            Cell::from("recent means"),
        ]);
        let widths = [22, 5, 5, 8, 8, 8, 8, 5, 7].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Fill(1)]);
        let grid = Grid::new(rows, widths)
            .header(header.dim())
            .column_spacing(1);
        frame.render_widget(grid, area);
    }
}

impl Picture for Table {
    type Interval = Interval;

    fn interval(&mut self, interval: &Interval) {
        self.interval = interval.clone();
        for (key, line) in &interval.servers {
            let history = self.history.entry(*key).or_default();
            history.push_back(line.latency_ns.mean);
            if history.len() > HISTORY {
                history.pop_front();
            }
        }
        let there: BTreeSet<Key> = interval.servers.iter().map(|(key, _)| *key).collect();
        self.history.retain(|key, _| there.contains(key));
    }

    fn scroll(&mut self, by: isize) {
        let last = self.interval.servers.len().saturating_sub(1);
        self.first = self.first.saturating_add_signed(by).min(last);
    }

    fn set_note(&mut self, note: Option<String>) {
        self.note = note;
    }

    fn draw(&mut self, frame: &mut Frame) {
        let [header, body, footer] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let room = usize::from(body.height.saturating_sub(1));
        let most = self.interval.servers.len().saturating_sub(room);
        self.first = self.first.min(most);
        self.draw_header(frame, header);
        if self.interval.servers.is_empty() {
            draw_waiting(frame, body, &self.waiting);
        } else {
            self.draw_servers(frame, body, room);
        }
        self.draw_footer(frame, footer, room);
    }
}

fn row(server: &ServerLine, recent: String) -> Row<'static> {
    let number = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let latency = &server.latency_ns;
    let time = |ns| number(human::maybe_duration(ns));
    let trust = match server.confidence {
        Some(c) if c >= 0.8 => Color::Green,
        Some(c) if c >= 0.5 => Color::Yellow,
        _ => Color::Red,
    };
    let stalled = number(server.stalled_flows.to_string());
    Row::new([
        Cell::from(format!(" {}", server.server)).bold().cyan(),
        Cell::from(word(server.transport)),
        number(server.flows.to_string()),
        time(latency.mean).bold(),
        time(latency.p50),
        time(latency.p90),
        time(latency.p99),
        number(show::confidence(server.confidence)).style(Style::new().fg(trust)),
        if server.stalled_flows > 0 {
            stalled.bold().red()
        } else {
            stalled
        },
        Cell::from(recent).cyan(),
    ])
}

/// The last `width` values as bars below the highest of them; a dot where there is none.
fn spark(values: &VecDeque<Option<u64>>, width: usize) -> String {
    let shown = || values.iter().skip(values.len().saturating_sub(width));
    let top = shown().flatten().max().copied().unwrap_or(0).max(1);
    let bars = shown().map(|value| match value {
        None => '·',
        Some(value) => {
            let height = u128::from(*value) * BARS.len() as u128 / (u128::from(top) + 1);
            BARS[height as usize]
        }
    });
    bars.collect()
}

fn draw_waiting(frame: &mut Frame, area: Rect, waiting: &str) {
    let [_, middle, _] = Layout::vertical([
        Constraint::Fill(1),
        Constraint::Length(2),
        Constraint::Fill(1),
    ])
    .areas(area);
    let text = vec![
        Text::from(waiting.bold()),
        Text::from("a server appears here when the first epoch of one of its flows closes".dim()),
    ];
    frame.render_widget(Paragraph::new(text).alignment(Alignment::Center), middle);
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use batchwise_core::passive::Transport;

    use super::super::samples;
    use super::*;

    fn picture(view: &mut Table, width: u16, height: u16) -> String {
        crate::output::picture::picture(width, height, |frame| view.draw(frame))
    }

    fn view() -> Table {
        Table::new(
            "eth1, native XDP".to_owned(),
            "waiting for traffic…".to_owned(),
        )
    }

    #[test]
    fn before_any_traffic_it_says_what_it_waits_for_and_where() {
        let text = picture(&mut view(), 100, 12);
        assert!(text.contains("waiting for traffic…"), "{text}");
        assert!(text.contains("eth1, native XDP"), "{text}");
    }

    #[test]
    fn every_server_is_a_row_with_its_numbers_and_its_recent_means() {
        let mut view = view();
        let mut slow = samples::interval();
        slow.servers[0].1.latency_ns.mean = Some(4_000_000);
        view.interval(&slow);
        view.interval(&samples::interval());
        let text = picture(&mut view, 110, 12);
        let row = text.lines().find(|l| l.contains("10.0.0.1:80"));
        let row = row.expect("a row");
        for cell in [
            "tcp", "12", "1.01 ms", "980 µs", "1.40 ms", "2.30 ms", "0.92", "█▃",
        ] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        let stalled = text.lines().find(|l| l.contains("[2001:db8::17]:443"));
        let stalled = stalled.expect("a row");
        assert!(stalled.contains("–") && stalled.contains("··"), "{stalled}");
        assert!(text.contains("7 events lost"), "{text}");
        assert!(text.contains("2 flows evicted"), "{text}");
        assert!(text.contains("table 25 % full"), "{text}");
    }

    #[test]
    fn more_servers_than_fit_can_be_scrolled_to() {
        let mut view = view();
        let servers = (1..=20).map(|n| {
            let key = SocketAddr::from(([10, 0, 0, n], 80));
            let line = ServerLine {
                server: key.to_string(),
                ..samples::server()
            };
            ((key, Transport::Tcp), line)
        });
        view.interval(&Interval {
            servers: servers.collect(),
            ..samples::interval()
        });
        assert!(!picture(&mut view, 100, 10).contains("10.0.0.20:80"));
        view.scroll(isize::MAX);
        let text = picture(&mut view, 100, 10);
        assert!(
            text.contains("10.0.0.20:80") && text.contains("↑ 14"),
            "{text}"
        );
    }

    #[test]
    fn every_window_size_can_be_drawn() {
        let mut view = view();
        view.interval(&samples::interval());
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            picture(&mut view, width, height);
        }
    }
}
