//! A report as data: headings, text, tables, figures.

use super::figure::Figure;

/// What an experiment has to show.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its title.
    pub title: String,
    /// One sentence below it.
    pub lead: String,
    /// From top to bottom.
    pub parts: Vec<Part>,
    /// Text files to write beside it: name and content.
    pub files: Vec<(String, String)>,
}

/// A part of a report. In texts, `code` is between backticks and **strong** between two stars.
#[derive(Clone, Debug)]
pub enum Part {
    /// A heading.
    Heading(String),
    /// One below it.
    Subheading(String),
    /// A paragraph.
    Text(String),
    /// A paragraph that stands out.
    Warning(String),
    /// A list.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// A figure, which is also a file.
    Figure(Box<Figure>),
    /// Parts that are shown on demand.
    Details(String, Vec<Part>),
}

impl Report {
    /// With nothing in it.
    pub fn new(title: impl Into<String>, lead: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            lead: lead.into(),
            ..Self::default()
        }
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Adds parts.
    #[must_use]
    pub fn parts(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts.extend(parts);
        self
    }

    /// Adds a heading.
    #[must_use]
    pub fn heading(self, text: impl Into<String>) -> Self {
        self.part(Part::Heading(text.into()))
    }

    /// Adds a heading of the second order.
    #[must_use]
    pub fn subheading(self, text: impl Into<String>) -> Self {
        self.part(Part::Subheading(text.into()))
    }

    /// Adds a paragraph.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(Part::Text(text.into()))
    }

    /// Adds a table.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.part(Part::Table(table))
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(self, figure: Figure) -> Self {
        self.part(Part::Figure(Box::new(figure)))
    }

    /// Adds a text file.
    #[must_use]
    pub fn file(mut self, name: impl Into<String>, content: impl Into<String>) -> Self {
        self.files.push((name.into(), content.into()));
        self
    }
}

/// A table: a header and rows, the first column being what a row is about.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Column names.
    pub header: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

/// A column's name, and its cell in the row of something.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
    /// With these columns and no rows.
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// With a row for each of these, and columns of a name and of what stands there.
    pub fn of<T>(rows: impl IntoIterator<Item = T>, columns: &[Column<'_, T>]) -> Self {
        let cells = |row: T| columns.iter().map(|(_, cell)| cell(&row)).collect();
        Self {
            header: columns.iter().map(|(name, _)| (*name).into()).collect(),
            rows: rows.into_iter().map(cells).collect(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// With these rows.
    #[must_use]
    pub fn with(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(self.header.len()));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.header) + &rule + &rows
    }
}
