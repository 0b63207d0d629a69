//! The picture that the live view draws: a header, a block of rows for every service, a footer.
//! It knows lines and frames, no terminal, so tests draw it on a buffer.

use std::collections::{BTreeMap, VecDeque};

use batchwise_core::sense::report::{Line, Side};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Paragraph, Sparkline};

use super::human;
use super::live::Picture;
use super::parts::{self, Part, Place};

/// Intervals that the sparkline shows.
const HISTORY: usize = 60;
/// Rows of a service's block, with the blank one below it.
const BLOCK: u16 = 7;
/// Columns that the sparkline leaves for the words on both sides of it.
const SPARK_MARGINS: u16 = 34;

/// A line's identity from one interval to the next.
type Key = (String, Side, Option<String>);

fn key(line: &Line) -> Key {
    (line.service.clone(), line.side, line.connection.clone())
}

/// What is to be drawn.
pub struct View {
    waiting: String,
    lines: Vec<Line>,
    history: BTreeMap<Key, VecDeque<Option<u64>>>,
    first: usize,
    note: Option<String>,
}

impl View {
    /// A view that shows `waiting` until there is traffic.
    pub fn new(waiting: String) -> Self {
        Self {
            waiting,
            lines: Vec::new(),
            history: BTreeMap::new(),
            first: 0,
            note: None,
        }
    }
}

impl Picture for View {
    type Interval = [Line];

    fn interval(&mut self, lines: &[Line]) {
        self.lines = lines.to_vec();
        self.lines.sort_by_key(key);
        for line in lines {
            self.history.entry(key(line)).or_default();
        }
        for (known, totals) in &mut self.history {
            let line = self.lines.iter().find(|line| key(line) == *known);
            totals.push_back(line.and_then(|line| line.latency_ns.total));
            if totals.len() > HISTORY {
                totals.pop_front();
            }
        }
        self.history.retain(|known, totals| {
            totals.iter().any(Option::is_some) || self.lines.iter().any(|line| key(line) == *known)
        });
    }

    fn scroll(&mut self, by: isize) {
        let last = self.lines.len().saturating_sub(1);
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
        self.draw_header(frame, header);
        if self.lines.is_empty() {
            draw_waiting(frame, body, &self.waiting);
        } else {
            // The last block needs no blank row below it.
            let room = usize::from((body.height + 1) / BLOCK).max(1);
            self.first = self.first.min(self.lines.len().saturating_sub(room));
            for (line, top) in self
                .lines
                .iter()
                .skip(self.first)
                .take(room)
                .zip((body.y..).step_by(BLOCK.into()))
            {
                let block = Rect {
                    y: top,
                    height: BLOCK,
                    ..body
                }
                .intersection(body);
                draw_block(frame, block, line, &self.history[&key(line)]);
            }
        }
        self.draw_footer(frame, footer, body);
    }
}

impl View {
    fn draw_header(&self, frame: &mut Frame, area: Rect) {
        let mut right = Vec::new();
        let lost = self
            .lines
            .iter()
            .map(|line| line.lost_events)
            .max()
            .unwrap_or(0);
        if lost > 0 {
            let events = if lost == 1 { "event" } else { "events" };
            right.push(format!("{lost} {events} lost").bold().red());
            right.push("   ".into());
        }
        if let Some(line) = self.lines.first() {
            right.push(human::clock(line.ts_ns).dim());
        }
        let services = match self.lines.len() {
            0 => String::new(),
            1 => "   1 service".to_owned(),
            n => format!("   {n} services"),
        };
        let left = Text::from(vec![" batchwise watch".bold(), services.dim()]);
        split(frame, area, left, Text::from(right));
    }

    fn draw_footer(&self, frame: &mut Frame, area: Rect, body: Rect) {
        let room = usize::from((body.height + 1) / BLOCK).max(1);
        let below = self.lines.len().saturating_sub(self.first + room);
        let keys = match (self.first, below) {
            (0, 0) => "q quits".to_owned(),
            (0, below) => format!("↓ {below} more   q quits"),
            (above, 0) => format!("↑ {above} more   q quits"),
            (above, below) => format!("↑ {above} ↓ {below} more   q quits"),
        };
        let note = match &self.note {
            Some(note) => Span::from(format!(" {note}")).yellow(),
            None => Span::default(),
        };
        split(frame, area, Text::from(note), Text::from(keys.dim()));
    }
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
        Text::from("a service appears here as soon as its connections carry requests".dim()),
    ];
    frame.render_widget(Paragraph::new(text).alignment(Alignment::Center), middle);
}

fn draw_block(frame: &mut Frame, area: Rect, line: &Line, history: &VecDeque<Option<u64>>) {
    let [title, total, bar, labels, values, recent, _] =
        Layout::vertical([Constraint::Length(1); BLOCK as usize]).areas(area);
    draw_title(frame, title, line);
    draw_total(frame, total, line);
    let parts = parts::parts(line);
    draw_bar(frame, bar, &parts);
    draw_legend(frame, labels, values, &parts);
    draw_recent(frame, recent, line, history);
}

fn draw_title(frame: &mut Frame, area: Rect, line: &Line) {
    let name = line.connection.as_ref().unwrap_or(&line.service);
    let trust = match line.confidence {
        c if c >= 0.8 => Color::Green,
        c if c >= 0.5 => Color::Yellow,
        _ => Color::Red,
    };
    let connections = if line.connections == 1 {
        "conn"
    } else {
        "conns"
    };
    let right = vec![
        parts::estimate(line).into(),
        "   confidence ".dim(),
        Span::styled(format!("{:.2}", line.confidence), trust),
        format!("   {} {connections}", line.connections).into(),
    ];
    let right = Text::from(right);
    let side = parts::side(line.side);
    let room = usize::from(area.width).saturating_sub(right.width() + side.len() + 6);
    let left = vec![
        " ".into(),
        tail(name, room).bold().cyan(),
        "  ".into(),
        side.into(),
    ];
    split(frame, area, Text::from(left), right);
}

/// The end of a name that is too long: the port and the remote address are there.
fn tail(name: &str, room: usize) -> String {
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    let cut = length - room.saturating_sub(1);
    std::iter::once('…').chain(name.chars().skip(cut)).collect()
}

fn draw_total(frame: &mut Frame, area: Rect, line: &Line) {
    let latency = &line.latency_ns;
    let left = vec![
        " ".into(),
        // The one number to see from afar.
        format!(" {:>7} ", human::maybe_duration(latency.total))
            .bold()
            .reversed(),
        " total".bold(),
        format!(
            " = {} network + {} turnaround",
            human::maybe_duration(latency.network),
            human::maybe_duration(latency.turnaround)
        )
        .into(),
    ];
    let right = vec![
        human::rate(line.throughput_per_s).bold(),
        format!(" {}", parts::per_second(line.unit)).into(),
    ];
    split(frame, area, Text::from(left), Text::from(right));
}

/// Distinct without colour as well.
const fn paint(place: Place) -> (&'static str, Color) {
    match place {
        Place::Transit => ("█", Color::Blue),
        Place::UnreadHere => ("▓", Color::Yellow),
        Place::UnreadPeer => ("▒", Color::Magenta),
        Place::Application => ("░", Color::Green),
    }
}

fn draw_bar(frame: &mut Frame, area: Rect, parts: &[Part]) {
    let width = area.width.saturating_sub(2);
    let spans: Vec<Span> = cells(parts, width)
        .into_iter()
        .zip(parts)
        .map(|(cells, part)| {
            let (glyph, colour) = paint(part.place);
            Span::styled(glyph.repeat(cells.into()), Style::new().fg(colour))
        })
        .collect();
    let bar = if spans.iter().all(|span| span.content.is_empty()) {
        Text::from("·".repeat(width.into()).dim())
    } else {
        Text::from(spans)
    };
    frame.render_widget(
        bar,
        Rect {
            x: area.x + 1,
            width,
            ..area
        },
    );
}

/// Divides `width` cells in proportion to the parts that are known, each boundary rounded to the
/// nearest cell, so that the cells always add up.
fn cells(parts: &[Part], width: u16) -> Vec<u16> {
    let sum: u128 = parts
        .iter()
        .filter_map(|part| part.ns)
        .map(u128::from)
        .sum();
    let mut before = 0u128;
    let mut drawn = 0u16;
    parts
        .iter()
        .map(|part| {
            before += u128::from(part.ns.unwrap_or(0));
            let boundary = (before * u128::from(width) * 2 + sum).checked_div(sum * 2);
            let boundary = boundary.map_or(0, |cell| u16::try_from(cell).unwrap_or(width));
            let cells = boundary - drawn;
            drawn = boundary;
            cells
        })
        .collect()
}

fn draw_legend(frame: &mut Frame, labels: Rect, values: Rect, parts: &[Part]) {
    // A share of the whole needs the whole.
    let whole: Option<u64> = parts.iter().map(|part| part.ns).sum();
    let columns = |row: Rect| {
        let row = Rect {
            x: row.x + 1,
            width: row.width.saturating_sub(1),
            ..row
        };
        Layout::horizontal([Constraint::Ratio(1, 4); 4]).areas::<4>(row)
    };
    for ((part, label), value) in parts.iter().zip(columns(labels)).zip(columns(values)) {
        let (glyph, colour) = paint(part.place);
        let name = vec![
            Span::styled(glyph, colour),
            format!(" {}", part.place.label()).dim(),
        ];
        frame.render_widget(Text::from(name), label);
        let mut time = vec![format!("  {}", part.text()).into()];
        if let (Some(ns), Some(whole @ 1..)) = (part.ns, whole) {
            time.push(format!("  {:.0} %", ns as f64 / whole as f64 * 100.0).dim());
        }
        frame.render_widget(Text::from(time), value);
    }
}

fn draw_recent(frame: &mut Frame, area: Rect, line: &Line, history: &VecDeque<Option<u64>>) {
    let width = area.width.saturating_sub(SPARK_MARGINS).min(HISTORY as u16);
    let shown = history
        .iter()
        .skip(history.len().saturating_sub(width.into()))
        .copied();
    let shown: Vec<Option<u64>> = shown.collect();
    let worst = shown.iter().copied().flatten().max();
    let left = Text::from(" total ".dim());
    let right = Text::from(vec![
        "max ".dim(),
        human::maybe_duration(worst).into(),
        "   Nagle ".dim(),
        parts::nagle(line.nagle).into(),
    ]);
    let spark = Rect {
        x: area.x + 7,
        width: shown.len() as u16,
        ..area
    }
    .intersection(area);
    split(frame, area, left, right);
    frame.render_widget(
        Sparkline::default()
            .data(shown)
            .max(worst.unwrap_or(1).max(1))
            .absent_value_symbol("·")
            .style(Style::new().fg(Color::Cyan)),
        spark,
    );
}

/// One row with text at its left and at its right; the left one is cut if both do not fit.
pub fn split(frame: &mut Frame, area: Rect, left: Text, right: Text) {
    let width = u16::try_from(right.width()).unwrap_or(area.width);
    let row = Rect {
        width: area.width.saturating_sub(1),
        height: area.height.min(1),
        ..area
    };
    let [start, end] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)])
        .spacing(2)
        .areas(row);
    frame.render_widget(left, start);
    frame.render_widget(right, end);
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
