//! The picture that the live view of `batchwise balance` and of its `status` draws: a row for every
//! backend, below it what happened last. It knows a status and frames, no terminal.

use batchwise_core::balance::report::{BackendLine, State};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table as Grid};

use super::show;
use super::status::Status;
use crate::output::human;
use crate::output::live::Picture;
use crate::output::view::split;

/// Rows for what happened last.
const EVENTS: u16 = 5;
const WIDTHS: [u16; 14] = [10, 10, 15, 8, 9, 7, 7, 6, 6, 8, 8, 8, 5, 11];

/// What is to be drawn.
#[derive(Default)]
pub struct Table {
    status: Option<Status>,
    first: usize,
    note: Option<String>,
}

impl Table {
    fn draw_header(frame: &mut Frame, area: Rect, status: &Status) {
        let (agent, totals) = (&status.agent, &status.totals);
        let mut right = Vec::new();
        if totals.lost_events > 0 {
            let lost = format!("{} events lost   ", totals.lost_events);
            right.push(lost.bold().red());
        }
        right.push(format!("{} flows   ", totals.flows_settled).dim());
        right.push(human::clock(agent.ts_ns).dim());
        let left = vec![
            " batchwise balance".bold(),
            format!("   {}", agent.name).bold().cyan(),
            format!(
                "   policy {}   {}",
                show::policy(agent.policy),
                agent.interfaces.join(", ")
            )
            .dim(),
        ];
        split(frame, area, Text::from(left), Text::from(right));
    }

    fn draw_backends(&self, frame: &mut Frame, area: Rect, status: &Status, room: usize) {
        let rows = status.backends.iter().skip(self.first).take(room).map(row);
        let names = show::COLUMNS.iter().enumerate();
        let header = Row::new(names.map(|(column, name)| cell(column, (*name).to_owned())));
        let grid = Grid::new(rows, WIDTHS.map(Constraint::Length))
            .header(header.dim())
            .column_spacing(1);
        frame.render_widget(grid, area);
    }

    fn draw_events(frame: &mut Frame, area: Rect, status: &Status) {
        let most = usize::from(area.height);
        let skipped = status.events.len().saturating_sub(most);
        let lines = status.events.iter().skip(skipped).map(|event| {
            let about = match (&event.service, &event.backend) {
                (Some(service), Some(backend)) => format!("{service}/{backend} "),
                (Some(service), None) => format!("{service} "),
                (None, _) => String::new(),
            };
            Text::from(vec![
                format!(" {} ", human::clock(event.ts_ns)).dim(),
                format!("{} ", event.what).bold(),
                about.cyan(),
                Span::from(event.detail.clone()),
            ])
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
    }

    fn draw_footer(&self, frame: &mut Frame, area: Rect, status: &Status, room: usize) {
        let below = status.backends.len().saturating_sub(self.first + room);
        let keys = match (self.first, below) {
            (0, 0) => "q quits".to_owned(),
            (above, below) => format!("↑ {above} ↓ {below} more   q quits"),
        };
        let detached = &status.agent.detached;
        let note = match (&status.agent.config_error, &self.note) {
            _ if !detached.is_empty() => format!(" {}", show::detached(detached)).bold().red(),
            (Some(error), _) => format!(" last reload refused: {error}").bold().red(),
            (None, Some(note)) => format!(" {note}").yellow(),
            (None, None) => Span::default(),
        };
        split(frame, area, Text::from(note), Text::from(keys.dim()));
    }
}

impl Picture for Table {
    type Interval = Status;

    fn interval(&mut self, status: &Status) {
        self.status = Some(status.clone());
    }

    fn scroll(&mut self, by: isize) {
        let rows = self.status.as_ref().map_or(0, |s| s.backends.len());
        self.first = self
            .first
            .saturating_add_signed(by)
            .min(rows.saturating_sub(1));
    }

    fn set_note(&mut self, note: Option<String>) {
        self.note = note;
    }

    fn draw(&mut self, frame: &mut Frame) {
        let [header, body, events, footer] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Min(2),
            Constraint::Length(EVENTS),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let room = usize::from(body.height.saturating_sub(1));
        let rows = self.status.as_ref().map_or(0, |s| s.backends.len());
        self.first = self.first.min(rows.saturating_sub(room));
        let Some(status) = &self.status else {
            let text = " the first interval is not over yet";
            frame.render_widget(Paragraph::new(text.dim()), body);
            return;
        };
        Self::draw_header(frame, header, status);
        self.draw_backends(frame, body, status, room);
        Self::draw_events(frame, events, status);
        self.draw_footer(frame, footer, status, room);
    }
}

fn cell(column: usize, text: String) -> Cell<'static> {
    let alignment = if show::is_text(column) {
        Alignment::Left
    } else {
        Alignment::Right
    };
    Cell::from(Text::from(text).alignment(alignment))
}

fn row(line: &BackendLine) -> Row<'static> {
    let color = match line.state {
        State::Serving => Color::Green,
        State::Draining => Color::Yellow,
        State::Down => Color::Red,
    };
    let cells = show::cells(line).into_iter().enumerate();
    Row::new(cells.map(|(column, text)| {
        let cell = cell(column, text);
        match column {
            1 => cell.bold().cyan(),
            3 | 4 => cell.style(Style::new().fg(color)),
            9 => cell.bold(),
            _ => cell,
        }
    }))
}

#[cfg(test)]
mod tests {

    use super::super::samples;
    use super::*;

    fn picture(view: &mut Table, width: u16, height: u16) -> String {
        crate::output::picture::picture(width, height, |frame| view.draw(frame))
    }

    #[test]
    fn every_backend_is_a_row_and_what_happened_is_below() {
        let mut view = Table::default();
        view.interval(&samples::status());
        let text = picture(&mut view, 140, 20);
        let row = text.lines().find(|l| l.contains("10.79.0.22"));
        let row = row.expect("a row");
        for cell in ["web", "s2", "down", "0.0 %", "–"] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        assert!(text.contains("health web/s2 down: refused"), "{text}");
    }

    #[test]
    fn a_refused_configuration_is_said_loudly() {
        let mut view = Table::default();
        let mut status = samples::status();
        status.agent.config_error = Some("lb.toml:3: bad".to_owned());
        view.interval(&status);
        let text = picture(&mut view, 140, 20);
        assert!(text.contains("last reload refused: lb.toml:3"), "{text}");
    }

    #[test]
    fn an_interface_without_the_program_is_said_before_all_else() {
        let mut view = Table::default();
        let mut status = samples::status();
        status.agent.config_error = Some("lb.toml:3: bad".to_owned());
        status.agent.detached = vec!["eth1".to_owned()];
        view.interval(&status);
        let text = picture(&mut view, 140, 20);
        assert!(text.contains("NOT FORWARDING AT eth1"), "{text}");
    }

    #[test]
    fn every_window_size_can_be_drawn() {
        let mut view = Table::default();
        picture(&mut view, 80, 24);
        view.interval(&samples::status());
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            picture(&mut view, width, height);
        }
    }
}
