//! What a subcommand describes: its columns, and an interval that is shown in them.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use serde::Serialize;

use crate::frame::human;

/// A column: its name, and what a row has there.
pub struct Column<R> {
    name: &'static str,
    /// At least.
    pub(super) width: usize,
    pub(super) right: bool,
    /// The live view has it elsewhere.
    pub(super) text_only: bool,
    pub(super) cell: fn(&R) -> Span<'static>,
}

impl<R> Column<R> {
    /// Words: aligned to the left.
    pub const fn left(name: &'static str, width: usize, cell: fn(&R) -> Span<'static>) -> Self {
        Self {
            name,
            width,
            right: false,
            text_only: false,
            cell,
        }
    }

    /// Numbers: aligned to the right.
    pub const fn right(name: &'static str, width: usize, cell: fn(&R) -> Span<'static>) -> Self {
        Self {
            right: true,
            ..Self::left(name, width, cell)
        }
    }

    /// Not in the live view.
    pub const fn text_only(self) -> Self {
        Self {
            text_only: true,
            ..self
        }
    }

    /// What its header says.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// A row's cell without any style.
    pub fn text(&self, row: &R) -> String {
        (self.cell)(row).content.into_owned()
    }

    pub(super) fn aligned(&self, text: &str, width: usize) -> String {
        if self.right {
            format!("{text:>width$}")
        } else {
            format!("{text:<width$}")
        }
    }
}

/// An order of rows, the highest first, and the key that asks for it.
pub struct Order<R> {
    pub key: u8,
    pub name: &'static str,
    pub rank: fn(&R) -> f64,
}

/// An interval of a subcommand, as it is shown.
pub trait View: Clone + 'static {
    /// What a row is about.
    type Row: 'static;

    /// The columns, the most important first: the live view leaves out what finds no room.
    const COLUMNS: &'static [Column<Self::Row>];
    const NAME: &'static str;
    /// Below what is waited for: when a row appears.
    const WAITING: &'static str = "";
    /// Lines below the live table.
    const DETAILS: u16 = 0;
    /// Of the live view's rows; the first is in force until another is asked for. Without any they stay as they come.
    const ORDERS: &'static [Order<Self::Row>] = &[];
    /// What is drawn in the course of time of a row that is opened.
    const COURSE: &'static [&'static str] = &[];

    fn rows(&self) -> Vec<&Self::Row>;

    /// Those that text has, where that are not all.
    fn text_rows(&self) -> Vec<&Self::Row> {
        self.rows()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()>;

    /// Text before the rows, whole lines.
    fn notes(&self) -> String {
        String::new()
    }

    /// Whether silence is to be spoken of.
    fn is_waiting(&self) -> bool {
        self.rows().is_empty()
    }

    /// What the live view says while there are no rows, where it is not that it waits.
    fn silence(&self) -> Option<String> {
        None
    }

    /// The live view's title: what is beside the name, and at the right.
    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        (Vec::new(), Vec::new())
    }

    /// Worth a warning in the live view.
    fn warning(&self) -> Option<String> {
        None
    }

    /// What the live view draws in the course of time for a row: the row's identity, a value, and those of
    /// [`Self::COURSE`], ns.
    fn recent(_row: &Self::Row) -> Option<(String, Vec<Option<u64>>)> {
        None
    }

    /// What is wrong with a row, in the last column.
    fn remark(_row: &Self::Row) -> Option<String> {
        None
    }

    /// More about a row that is opened, below its details.
    fn page(_row: &Self::Row) -> Vec<Line<'static>> {
        Vec::new()
    }

    /// Below the live table: about the row that is chosen, or about the interval.
    fn details(&self, _chosen: Option<&Self::Row>, _width: u16) -> Vec<Line<'static>> {
        Vec::new()
    }
}

/// JSON objects, one a line.
#[derive(Debug, Default)]
pub struct JsonLines(pub(super) Vec<u8>);

impl JsonLines {
    pub fn push(&mut self, line: &impl Serialize) -> serde_json::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        self.0.push(b'\n');
        Ok(())
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The text of a view.
    #[cfg(test)]
    pub fn of(view: &impl View) -> serde_json::Result<String> {
        let mut lines = Self::default();
        view.json(&mut lines)?;
        // JSON is UTF-8
        Ok(String::from_utf8_lossy(&lines.0).into_owned())
    }
}

/// Text of which a person needs nothing but the words.
pub fn plain(text: impl Into<String>) -> Span<'static> {
    Span::from(text.into())
}

/// What a row is called.
pub fn name(text: impl Into<String>) -> Span<'static> {
    text.into().bold().cyan()
}

/// How far to trust, 0 to 1, or a dash.
pub fn confidence(confidence: Option<f64>) -> Span<'static> {
    match confidence {
        None => Span::from(human::UNKNOWN),
        Some(c) if c >= 0.8 => format!("{c:.2}").green(),
        Some(c) if c >= 0.5 => format!("{c:.2}").yellow(),
        Some(c) => format!("{c:.2}").red(),
    }
}

/// Events that were lost, where there are any.
pub fn lost(events: u64) -> Vec<Span<'static>> {
    match events {
        0 => Vec::new(),
        1 => vec!["1 event lost   ".bold().red()],
        n => vec![format!("{n} events lost   ").bold().red()],
    }
}

/// What to say while there is no traffic.
pub fn waiting(ports: &[String]) -> String {
    match ports {
        [] => "waiting for traffic…".to_owned(),
        [port] => format!("waiting for traffic on port {port}…"),
        _ => format!("waiting for traffic on ports {}…", ports.join(", ")),
    }
}
