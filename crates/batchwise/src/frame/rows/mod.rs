//! Rows: a subcommand describes its columns once, and shows an interval as text, as a live table or
//! as JSON lines.

mod live;
#[cfg(test)]
pub mod picture;
mod terminal;
mod text;

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use serde::Serialize;

use super::stdout::{Bond, Stdout};
pub use live::LiveTable;
use terminal::Terminal;
pub use text::TextTable;

/// How intervals are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Live on a terminal where there is a live view, text otherwise.
    #[default]
    Auto,
    /// A view that is redrawn every interval; needs a terminal.
    Live,
    /// Aligned columns.
    #[value(alias = "plain")]
    Text,
    /// One JSON object a line.
    Jsonl,
}

/// What a [`Format`] comes to on this standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// On the terminal.
    Live,
    /// Text.
    Text,
    /// JSON lines.
    Jsonl,
}

impl Format {
    /// Looks at what standard output is.
    ///
    /// # Errors
    /// The live view is wanted and standard output is no terminal.
    pub fn resolve(self) -> anyhow::Result<Form> {
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        Ok(match self {
            Self::Auto | Self::Live if terminal => Form::Live,
            Self::Auto | Self::Text => Form::Text,
            Self::Live => {
                anyhow::bail!("the live view needs a terminal; use --format text or --format jsonl")
            }
            Self::Jsonl => Form::Jsonl,
        })
    }

    /// For a command without a live view.
    ///
    /// # Errors
    /// The live view is wanted.
    pub fn without_live(self) -> anyhow::Result<Form> {
        match self {
            Self::Auto | Self::Text => Ok(Form::Text),
            Self::Jsonl => Ok(Form::Jsonl),
            Self::Live => {
                anyhow::bail!("there is no live view here; use --format text or --format jsonl")
            }
        }
    }
}

/// A column: its name, and what a row has there.
pub struct Column<R> {
    name: &'static str,
    /// At least.
    width: usize,
    right: bool,
    /// The live view has it elsewhere.
    text_only: bool,
    cell: fn(&R) -> Span<'static>,
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

    fn aligned(&self, text: &str, width: usize) -> String {
        if self.right {
            format!("{text:>width$}")
        } else {
            format!("{text:<width$}")
        }
    }
}

/// An interval of a subcommand, as it is shown.
pub trait View: Clone + 'static {
    /// What a row is about.
    type Row: 'static;

    /// The columns, the most important first: the live view leaves out what finds no room.
    const COLUMNS: &'static [Column<Self::Row>];
    /// The subcommand's name.
    const NAME: &'static str;
    /// Below what is waited for: when a row appears.
    const WAITING: &'static str = "";
    /// Lines below the live table.
    const DETAILS: u16 = 0;

    /// The rows.
    fn rows(&self) -> Vec<&Self::Row>;

    /// Those that text has, where that are not all.
    fn text_rows(&self) -> Vec<&Self::Row> {
        self.rows()
    }

    /// As JSON lines.
    ///
    /// # Errors
    /// A line cannot be written as JSON.
    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()>;

    /// Text before the rows, whole lines.
    fn notes(&self) -> String {
        String::new()
    }

    /// Whether silence is to be spoken of.
    fn is_waiting(&self) -> bool {
        self.rows().is_empty()
    }

    /// The live view's title: what is beside the name, and at the right.
    fn title(&self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        (Vec::new(), Vec::new())
    }

    /// Worth a warning in the live view.
    fn warning(&self) -> Option<String> {
        None
    }

    /// What the live view draws in the course of time for a row: the row's identity, and a value.
    fn recent(_row: &Self::Row) -> Option<(String, Option<u64>)> {
        None
    }

    /// Below the live table: about the row that is chosen, or about the interval.
    fn details(&self, _chosen: Option<&Self::Row>, _width: u16) -> Vec<Line<'static>> {
        Vec::new()
    }
}

/// JSON objects, one a line.
#[derive(Debug, Default)]
pub struct JsonLines(Vec<u8>);

impl JsonLines {
    /// Appends a line.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn push(&mut self, line: &impl Serialize) -> serde_json::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        self.0.push(b'\n');
        Ok(())
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

/// Shows intervals on standard output. The caller alternates [`Output::show`] with
/// [`Output::wait`]; dropping it also puts the terminal back.
pub struct Output<V: View> {
    screen: Screen<V>,
}

enum Screen<V: View> {
    Live(Box<Terminal<V>>),
    Text(Box<TextTable<V::Row>>, Option<String>, Stdout),
    Jsonl(Stdout),
}

impl<V: View> Output<V> {
    /// Opens standard output. `waiting` is said once while there are no rows; it may be empty.
    ///
    /// # Errors
    /// The terminal cannot be taken over.
    pub fn open(form: Form, bond: Bond, waiting: String) -> anyhow::Result<Self> {
        let screen = match form {
            Form::Live => Screen::Live(Box::new(Terminal::open(LiveTable::new(waiting))?)),
            Form::Text => {
                let waiting = (!waiting.is_empty()).then_some(waiting + "\n");
                let table = TextTable::new(V::COLUMNS);
                Screen::Text(Box::new(table), waiting, Stdout::open(bond))
            }
            Form::Jsonl => Screen::Jsonl(Stdout::open(bond)),
        };
        Ok(Self { screen })
    }

    /// Shows the interval that just ended.
    ///
    /// # Errors
    /// [`super::stdout::Closed`] when nobody reads the output any more, which `main` takes for a
    /// quiet end.
    pub fn show(&mut self, view: &V) -> anyhow::Result<()> {
        match &mut self.screen {
            Screen::Live(terminal) => terminal.show(view),
            Screen::Text(table, waiting, out) => {
                let mut text = view.notes();
                if !view.is_waiting() {
                    *waiting = None;
                }
                text += &waiting.take().unwrap_or_default();
                text += &table.rows(&view.text_rows());
                out.write(text.into_bytes())
            }
            Screen::Jsonl(out) => {
                let mut lines = JsonLines::default();
                view.json(&mut lines)?;
                out.write(lines.0)
            }
        }
    }

    /// Writes text between intervals; only where people read.
    ///
    /// # Errors
    /// As for [`Self::show`].
    pub fn say(&mut self, text: &str) -> anyhow::Result<()> {
        match &mut self.screen {
            Screen::Text(_, _, out) => out.write(text.as_bytes().to_vec()),
            Screen::Live(_) | Screen::Jsonl(_) => Ok(()),
        }
    }

    /// Waits for at most `time`. True means: stop, the user or the reader of the output has left. It
    /// may return false early (a signal, a key).
    ///
    /// # Errors
    /// The terminal or the output cannot be waited for.
    pub fn wait(&mut self, time: Duration) -> anyhow::Result<bool> {
        match &mut self.screen {
            Screen::Live(terminal) => terminal.wait(time),
            Screen::Text(_, _, out) | Screen::Jsonl(out) => out.wait(time),
        }
    }

    /// Puts the terminal back, and waits until all is written.
    ///
    /// # Errors
    /// The terminal does not take its old state.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        match &mut self.screen {
            Screen::Live(terminal) => terminal.restore(),
            Screen::Text(_, _, out) | Screen::Jsonl(out) => {
                out.flush();
                Ok(())
            }
        }
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
        None => Span::from(super::human::UNKNOWN),
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
pub fn waiting(ports: &[u16]) -> String {
    let names: Vec<String> = ports.iter().map(u16::to_string).collect();
    match ports {
        [] => "waiting for traffic…".to_owned(),
        [port] => format!("waiting for traffic on port {port}…"),
        _ => format!("waiting for traffic on ports {}…", names.join(", ")),
    }
}
