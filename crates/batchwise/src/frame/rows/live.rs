//! The picture that every live view draws: a title, a table with a row for each thing that is
//! measured, what is below it, a footer. It knows views and frames, no terminal.

use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Cell, Chart, Dataset, GraphType, LegendPosition, Paragraph, Row, Table,
};

use super::view::{Column, View};
use crate::frame::human;

/// Intervals whose values are drawn in the course of time.
const HISTORY: usize = 300;
/// Other columns leave them so much room.
const LEAST_HISTORY: u16 = 10;
/// Lines of an opened row's page, and of its values in the course of time, at least.
const MOST_LINES: u16 = 8;
const LEAST_COURSE: u16 = 12;
/// Between two columns.
const GAP: u16 = 1;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is to be drawn.
pub struct LiveTable<V: View> {
    waiting: String,
    view: Option<V>,
    /// By the row's identity, the newest last.
    recent: BTreeMap<String, VecDeque<Vec<Option<u64>>>>,
    /// Which of the orders is in force.
    order: usize,
    /// The row that is chosen, by its identity and where it is now, and the first that is shown.
    identity: Option<String>,
    chosen: usize,
    first: usize,
    /// The chosen row is shown alone.
    is_open: bool,
    note: Option<String>,
}

impl<V: View> LiveTable<V> {
    /// Shows `waiting` until there are rows.
    pub fn new(waiting: String) -> Self {
        Self {
            waiting,
            view: None,
            recent: BTreeMap::new(),
            order: 0,
            identity: None,
            chosen: 0,
            first: 0,
            is_open: false,
            note: None,
        }
    }

    pub fn show(&mut self, view: &V) {
        let mut values: BTreeMap<_, _> = view.rows().into_iter().filter_map(V::recent).collect();
        for key in values.keys() {
            self.recent.entry(key.clone()).or_default();
        }
        self.recent.retain(|key, recent| {
            let there = values.contains_key(key);
            recent.push_back(values.remove(key).unwrap_or_default());
            if recent.len() > HISTORY {
                recent.pop_front();
            }
            there || recent.iter().flatten().any(Option::is_some)
        });
        self.view = Some(view.clone());
        self.follow();
    }

    /// The rows in the order that is in force.
    fn rows(&self) -> Vec<&V::Row> {
        let mut rows = self.view.as_ref().map(View::rows).unwrap_or_default();
        if let Some(order) = V::ORDERS.get(self.order) {
            rows.sort_by(|a, b| (order.rank)(b).total_cmp(&(order.rank)(a)));
        }
        rows
    }

    /// The row that was chosen may be elsewhere now.
    fn follow(&mut self) {
        let rows = self.rows();
        let is_it = |row: &&V::Row| V::recent(row).map(|(key, _)| key) == self.identity;
        let place = self
            .identity
            .as_ref()
            .and_then(|_| rows.iter().position(is_it));
        let last = rows.len().saturating_sub(1);
        self.chosen = place.unwrap_or(self.chosen.min(last));
    }

    /// Shows the chosen row alone, or all again.
    pub fn toggle(&mut self) {
        self.is_open = !self.is_open && !V::COURSE.is_empty() && !self.rows().is_empty();
        self.choose(self.chosen);
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Sorts anew, if a key's letter asks for that.
    pub fn order(&mut self, letter: u8) {
        if let Some(order) = V::ORDERS.iter().position(|order| order.key == letter) {
            self.order = order;
            self.follow();
        }
    }

    fn choose(&mut self, row: usize) {
        let identity = self.rows().get(row).and_then(|row| V::recent(row));
        (self.chosen, self.identity) = (row, identity.map(|(key, _)| key));
    }

    /// Chooses another row: so many further down, or up if negative.
    pub fn scroll(&mut self, by: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.choose(self.chosen.saturating_add_signed(by).min(last));
    }

    pub fn set_note(&mut self, note: Option<String>) {
        self.note = note;
    }

    pub fn draw(&mut self, frame: &mut Frame) {
        // rows come first where there is little room
        let details = match self.is_open {
            true => (V::DETAILS + MOST_LINES).min(frame.area().height.saturating_sub(LEAST_COURSE)),
            false => V::DETAILS.min(frame.area().height / 3),
        };
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
        let room = usize::from(body.height.saturating_sub(1)).max(1);
        let count = self.rows().len();
        self.chosen = self.chosen.min(count.saturating_sub(1));
        self.first = self.first.min(count.saturating_sub(room));
        self.first = self
            .first
            .clamp((self.chosen + 1).saturating_sub(room), self.chosen);
        let rows = self.rows();
        if let (true, Some(row)) = (self.is_open, rows.get(self.chosen)) {
            self.draw_course(frame, body, row);
        } else if rows.is_empty() {
            let silence = self.view.as_ref().and_then(View::silence);
            let waiting = silence.as_ref().unwrap_or(&self.waiting);
            draw_waiting(frame, body, waiting, V::WAITING);
        } else {
            self.draw_rows(frame, body, &rows, room);
        }
        if let Some(view) = &self.view {
            let chosen = rows.get(self.chosen).copied();
            let mut lines = view.details(chosen, details.width);
            lines.extend(
                chosen
                    .filter(|_| self.is_open)
                    .into_iter()
                    .flat_map(V::page),
            );
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
                cells.push(Cell::from(match V::remark(row) {
                    Some(remark) => remark.yellow(),
                    None => self.spark(row, width.into()).cyan(),
                }));
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
        let first = |values: &Vec<Option<u64>>| values.first().copied().flatten();
        let shown = || {
            recent
                .iter()
                .skip(recent.len().saturating_sub(width))
                .map(first)
        };
        let top = shown().flatten().max().unwrap_or(0).max(1);
        let bars = shown().map(|value| match value {
            None => '·',
            Some(value) => {
                let height = u128::from(value) * BARS.len() as u128 / (u128::from(top) + 1);
                BARS[height as usize]
            }
        });
        bars.collect()
    }

    /// How a row's values went: each a line of dots over time.
    fn draw_course(&self, frame: &mut Frame, area: Rect, row: &V::Row) {
        let recent = V::recent(row).and_then(|(key, _)| self.recent.get(&key));
        let Some(recent) = recent else {
            return;
        };
        let of = |at: usize| {
            let values = recent.iter().enumerate();
            let known = values.filter_map(|(x, values)| Some((x, (*values.get(at + 1)?)?)));
            let points = known.map(|(x, ns)| ((HISTORY - recent.len() + x) as f64, ns as f64));
            points.collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..V::COURSE.len()).map(of).collect();
        let top = all.iter().flatten().map(|(_, ns)| *ns).fold(1.0, f64::max);
        let colors = [Color::Green, Color::Yellow, Color::Red];
        let lines = V::COURSE.iter().zip(&all).zip(colors);
        let lines = lines.map(|((name, points), color)| {
            let line = Dataset::default().name(*name).data(points);
            let line = line.marker(Marker::Braille).graph_type(GraphType::Line);
            line.style(color)
        });
        let times = Axis::default().bounds([0.0, (HISTORY - 1) as f64]);
        let label = |share: f64| human::duration((top * share) as u64);
        let labels = [0.0, 0.5, 1.0].map(label);
        let values = Axis::default().bounds([0.0, top]).labels(labels).dim();
        let chart = Chart::new(lines.collect()).x_axis(times).y_axis(values);
        frame.render_widget(chart.legend_position(Some(LegendPosition::TopLeft)), area);
    }

    fn draw_footer(&self, frame: &mut Frame, area: Rect, below: usize) {
        let warning = self.view.as_ref().and_then(View::warning);
        let note = match (warning, &self.note) {
            (Some(warning), _) => format!(" {warning}").bold().red(),
            (None, Some(note)) => format!(" {note}").yellow(),
            (None, None) => Span::default(),
        };
        // what is to be known goes before what can be done
        let keys = self.keys(below, note.content.is_empty());
        split(frame, area, Line::from(note), Line::from(keys.dim()));
    }

    fn keys(&self, below: usize, all: bool) -> String {
        if self.is_open {
            return "↑ ↓ others   Esc all   q quits".to_owned();
        }
        let mut keys = Vec::new();
        match (self.first, below) {
            (0, 0) => {}
            (0, below) => keys.push(format!("↓ {below} more")),
            (above, 0) => keys.push(format!("↑ {above} more")),
            (above, below) => keys.push(format!("↑ {above} ↓ {below} more")),
        }
        if all && !V::COURSE.is_empty() {
            keys.push("Enter opens".to_owned());
        }
        for (at, order) in V::ORDERS.iter().enumerate().filter(|_| all) {
            let mark = if at == self.order { "▾" } else { "" };
            keys.push(format!("{} {}{mark}", char::from(order.key), order.name));
        }
        keys.push("q quits".to_owned());
        keys.join("   ")
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
    use super::super::view::{JsonLines, Order, name, plain};
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
        const ORDERS: &'static [Order<Self::Row>] = &[
            Order {
                key: b'c',
                name: "as it comes",
                rank: |_| 0.0,
            },
            Order {
                key: b'n',
                name: "number",
                rank: |row| row.1 as f64,
            },
        ];
        const COURSE: &'static [&'static str] = &["value"];

        fn rows(&self) -> Vec<&Self::Row> {
            self.0.iter().collect()
        }

        fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
            lines.push(&self.0)
        }

        fn recent(row: &Self::Row) -> Option<(String, Vec<Option<u64>>)> {
            Some((row.0.clone(), vec![Some(row.1); 2]))
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
    fn a_letter_sorts_and_the_row_that_was_chosen_stays_chosen() {
        let mut table = table(&[numbers(3)]);
        table.scroll(0);
        table.order(b'n');
        let text = drawn(&mut table, 80, 10);
        let rows: Vec<_> = text.lines().filter(|line| line.contains("words")).collect();
        assert!(
            rows[0].contains("s03") && rows[2].contains("▸ s01"),
            "{text}"
        );
        assert!(text.contains("n number▾"), "{text}");
        table.show(&Numbers(vec![("s01".to_owned(), 9), ("s02".to_owned(), 2)]));
        let text = drawn(&mut table, 80, 10);
        assert!(text.contains("▸ s01"), "{text}");
        table.order(b'x');
        assert_eq!(drawn(&mut table, 80, 10), text);
    }

    #[test]
    fn enter_opens_a_row_with_its_course_and_gives_all_back() {
        let mut table = table(&[numbers(3), numbers(3)]);
        let all = drawn(&mut table, 80, 24);
        assert!(all.contains("Enter opens"), "{all}");
        table.scroll(1);
        table.toggle();
        let open = drawn(&mut table, 80, 24);
        assert!(table.is_open() && open.contains("about s02"), "{open}");
        assert!(open.contains("value") && !open.contains("words"), "{open}");
        table.scroll(-1);
        table.toggle();
        assert_eq!(drawn(&mut table, 80, 24), all);
    }

    #[test]
    fn every_window_size_can_be_drawn() {
        for is_open in [false, true] {
            let mut table = table(&[numbers(3)]);
            if is_open {
                table.toggle();
            }
            for (width, height) in [(1, 1), (20, 3), (80, 24), (300, 100)] {
                drawn(&mut table, width, height);
            }
        }
    }
}
