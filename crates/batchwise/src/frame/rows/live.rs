//! The picture that every live view draws: a title, a table with a row for each thing that is
//! measured, what is below it, a footer. It knows views and frames, no terminal.

use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::view::{Column, View};

/// Intervals whose values are drawn in the course of time.
const HISTORY: usize = 60;
/// Other columns leave them so much room.
const LEAST_HISTORY: u16 = 10;
/// Between two columns.
const GAP: u16 = 1;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is to be drawn.
pub struct LiveTable<V: View> {
    waiting: String,
    view: Option<V>,
    recent: BTreeMap<String, VecDeque<Option<u64>>>,
    /// The row that is chosen, and the first that is shown.
    chosen: usize,
    first: usize,
    note: Option<String>,
}

impl<V: View> LiveTable<V> {
    /// Shows `waiting` until there are rows.
    pub fn new(waiting: String) -> Self {
        Self {
            waiting,
            view: None,
            recent: BTreeMap::new(),
            chosen: 0,
            first: 0,
            note: None,
        }
    }

    pub fn show(&mut self, view: &V) {
        let mut values: BTreeMap<String, Option<u64>> =
            view.rows().into_iter().filter_map(V::recent).collect();
        for key in values.keys() {
            self.recent.entry(key.clone()).or_default();
        }
        self.recent.retain(|key, recent| {
            let there = values.contains_key(key);
            recent.push_back(values.remove(key).flatten());
            if recent.len() > HISTORY {
                recent.pop_front();
            }
            there || recent.iter().any(Option::is_some)
        });
        self.view = Some(view.clone());
    }

    /// Chooses another row: so many further down, or up if negative.
    pub fn scroll(&mut self, by: isize) {
        let rows = self.view.as_ref().map_or(0, |view| view.rows().len());
        let chosen = self.chosen.saturating_add_signed(by);
        self.chosen = chosen.min(rows.saturating_sub(1));
    }

    pub fn set_note(&mut self, note: Option<String>) {
        self.note = note;
    }

    pub fn draw(&mut self, frame: &mut Frame) {
        // rows come first where there is little room
        let details = V::DETAILS.min(frame.area().height / 3);
        let [title, body, details, footer] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Min(2),
            Constraint::Length(details),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let head = self.view.as_ref().map(View::title).unwrap_or_default();
        let name = format!(" batchwise {}   ", V::NAME).bold();
        let left: Vec<Span> = std::iter::once(name).chain(head.0).collect();
        split(frame, title, Line::from(left), Line::from(head.1));
        let rows = self.view.as_ref().map(View::rows).unwrap_or_default();
        let room = usize::from(body.height.saturating_sub(1)).max(1);
        self.chosen = self.chosen.min(rows.len().saturating_sub(1));
        self.first = self.first.min(rows.len().saturating_sub(room));
        self.first = self
            .first
            .clamp((self.chosen + 1).saturating_sub(room), self.chosen);
        if rows.is_empty() {
            let silence = self.view.as_ref().and_then(View::silence);
            let waiting = silence.as_ref().unwrap_or(&self.waiting);
            draw_waiting(frame, body, waiting, V::WAITING);
        } else {
            self.draw_rows(frame, body, &rows, room);
        }
        if let Some(view) = &self.view {
            let lines = view.details(rows.get(self.chosen).copied(), details.width);
            frame.render_widget(Paragraph::new(lines), details);
        }
        let below = rows.len().saturating_sub(self.first + room);
        self.draw_footer(frame, footer, below);
    }

    fn draw_rows(&self, frame: &mut Frame, area: Rect, rows: &[&V::Row], room: usize) {
        let shown: Vec<_> = rows
            .iter()
            .enumerate()
            .skip(self.first)
            .take(room)
            .collect();
        let all = V::COLUMNS.iter().filter(|column| !column.text_only);
        let mut columns = Vec::new();
        let mut used = 1;
        let reserved = if self.recent.is_empty() {
            0
        } else {
            GAP + LEAST_HISTORY
        };
        for column in all {
            let cells = shown.iter().map(|(_, row)| (column.cell)(row));
            let cells: Vec<Span> = cells.collect();
            let width = cells.iter().map(Span::width).max().unwrap_or(0);
            let width = width.max(column.name().chars().count()) as u16;
            // the first column is cut rather than left out
            if !columns.is_empty() && used + GAP + width + reserved > area.width {
                break;
            }
            used += GAP + width;
            columns.push((column, width, cells));
        }
        let left = area.width.saturating_sub(used + GAP);
        let history = (left > 0 && reserved > 0).then_some(left);
        let mut header = vec![Cell::from("")];
        header.extend(columns.iter().map(|(c, ..)| cell(c, Span::from(c.name()))));
        let mut widths = vec![Constraint::Length(1)];
        widths.extend(
            columns
                .iter()
                .map(|(_, width, _)| Constraint::Length(*width)),
        );
        if history.is_some() {
            header.push(Cell::from("recent"));
            widths.push(Constraint::Fill(1));
        }
        let lines = shown.iter().enumerate().map(|(line, (index, row))| {
            let mark = if V::DETAILS > 0 && rows.len() > 1 && *index == self.chosen {
                "▸"
            } else {
                ""
            };
            let mut cells = vec![Cell::from(mark)];
            cells.extend(columns.iter().map(|(c, _, of)| cell(c, of[line].clone())));
            if let Some(width) = history {
                cells.push(Cell::from(self.spark(row, width.into()).cyan()));
            }
            Row::new(cells)
        });
        let table = Table::new(lines, widths)
            .header(Row::new(header).dim())
            .column_spacing(GAP);
        frame.render_widget(table, area);
    }

    /// The last values as bars below the highest of them; a dot where there is none.
    fn spark(&self, row: &V::Row, width: usize) -> String {
        let recent = V::recent(row).and_then(|(key, _)| self.recent.get(&key));
        let Some(recent) = recent else {
            return String::new();
        };
        let shown = || recent.iter().skip(recent.len().saturating_sub(width));
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

    fn draw_footer(&self, frame: &mut Frame, area: Rect, below: usize) {
        let keys = match (self.first, below) {
            (0, 0) => "q quits".to_owned(),
            (0, below) => format!("↓ {below} more   q quits"),
            (above, 0) => format!("↑ {above} more   q quits"),
            (above, below) => format!("↑ {above} ↓ {below} more   q quits"),
        };
        let warning = self.view.as_ref().and_then(View::warning);
        let note = match (warning, &self.note) {
            (Some(warning), _) => format!(" {warning}").bold().red(),
            (None, Some(note)) => format!(" {note}").yellow(),
            (None, None) => Span::default(),
        };
        split(frame, area, Line::from(note), Line::from(keys.dim()));
    }
}

fn cell<R>(column: &Column<R>, text: Span<'static>) -> Cell<'static> {
    let alignment = if column.right {
        Alignment::Right
    } else {
        Alignment::Left
    };
    Cell::from(Line::from(text).alignment(alignment))
}

fn draw_waiting(frame: &mut Frame, area: Rect, waiting: &str, hint: &'static str) {
    let [_, middle, _] = Layout::vertical([
        Constraint::Fill(1),
        Constraint::Length(2),
        Constraint::Fill(1),
    ])
    .areas(area);
    let text = vec![Line::from(waiting.bold()), Line::from(hint.dim())];
    frame.render_widget(Paragraph::new(text).alignment(Alignment::Center), middle);
}

/// One line with text at its left and at its right; the left one is cut if both do not fit.
fn split(frame: &mut Frame, area: Rect, left: Line, right: Line) {
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
mod tests {
    use super::super::picture::picture;
    use super::super::view::{JsonLines, name, plain};
    use super::*;

    #[derive(Clone)]
    struct Numbers(Vec<(String, u64)>);

    impl View for Numbers {
        type Row = (String, u64);

        const COLUMNS: &'static [Column<Self::Row>] = &[
            Column::left("who", 0, |row| name(row.0.clone())),
            Column::right("n", 0, |row| plain(row.1.to_string())),
            Column::left("long", 0, |_| plain("words ".repeat(5))),
        ];
        const NAME: &'static str = "test";
        const WAITING: &'static str = "a row appears with the first number";
        const DETAILS: u16 = 1;

        fn rows(&self) -> Vec<&Self::Row> {
            self.0.iter().collect()
        }

        fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
            lines.push(&self.0)
        }

        fn recent(row: &Self::Row) -> Option<(String, Option<u64>)> {
            Some((row.0.clone(), Some(row.1)))
        }

        fn details(&self, chosen: Option<&Self::Row>, _width: u16) -> Vec<Line<'static>> {
            let chosen = chosen.map_or("none", |row| &row.0);
            vec![Line::from(format!("about {chosen}"))]
        }
    }

    fn numbers(count: u64) -> Numbers {
        Numbers((1..=count).map(|n| (format!("s{n:02}"), n)).collect())
    }

    fn table(views: &[Numbers]) -> LiveTable<Numbers> {
        let mut table = LiveTable::new("waiting for traffic…".to_owned());
        for view in views {
            table.show(view);
        }
        table
    }

    fn drawn(table: &mut LiveTable<Numbers>, width: u16, height: u16) -> String {
        picture(width, height, |frame| table.draw(frame))
    }

    #[test]
    fn before_any_traffic_it_says_what_it_waits_for_and_what_is_wrong() {
        let mut table = table(&[]);
        table.set_note(Some("WARN something".to_owned()));
        let text = drawn(&mut table, 60, 10);
        for part in [
            "batchwise test",
            "waiting for traffic…",
            "a row appears",
            "WARN something",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn what_finds_no_room_is_left_out_from_the_right() {
        let wide = drawn(&mut table(&[numbers(2)]), 80, 10);
        assert!(wide.contains("words") && wide.contains("recent"), "{wide}");
        let narrow = drawn(&mut table(&[numbers(2)]), 22, 10);
        assert!(
            narrow.contains("s01") && narrow.contains("recent"),
            "{narrow}"
        );
        assert!(!narrow.contains("words"), "{narrow}");
    }

    #[test]
    fn a_row_has_its_values_in_the_course_of_time() {
        let [slow, fast] = [3000, 1000].map(|n| Numbers(vec![("s01".to_owned(), n)]));
        let gone = Numbers(Vec::new());
        let text = drawn(&mut table(&[slow, gone, fast]), 80, 10);
        assert!(text.contains("█·▃"), "{text}");
    }

    #[test]
    fn more_rows_than_fit_can_be_reached_and_chosen() {
        let mut table = table(&[numbers(20)]);
        let first = drawn(&mut table, 60, 10);
        assert!(
            first.contains("▸ s01") && first.contains("about s01"),
            "{first}"
        );
        assert!(
            first.contains("↓ 15 more") && !first.contains("s06"),
            "{first}"
        );
        table.scroll(isize::MAX);
        let last = drawn(&mut table, 60, 10);
        assert!(
            last.contains("▸ s20") && last.contains("about s20"),
            "{last}"
        );
        assert!(last.contains("↑ 15 more"), "{last}");
        table.scroll(isize::MIN);
        assert_eq!(drawn(&mut table, 60, 10), first);
    }

    #[test]
    fn every_window_size_can_be_drawn() {
        let mut table = table(&[numbers(3)]);
        for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
            drawn(&mut table, width, height);
        }
    }
}
