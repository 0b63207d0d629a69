//! A report as data: headings, text, tables, figures.

use std::collections::BTreeMap;

use super::figure::Figure;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub title: String,
    /// One sentence below it.
    pub lead: String,
    pub parts: Vec<Part>,
    /// Text files to write beside it: name and content.
    pub files: Vec<(String, String)>,
}

/// A part of a report. In texts, `code` is between backticks and **strong** between two stars.
#[derive(Clone, Debug)]
pub enum Part {
    Heading(String),
    Subheading(String),
    Text(String),
    /// A paragraph that stands out.
    Warning(String),
    List(Vec<String>),
    Table(Table),
    /// A figure, which is also a file.
    Figure(Box<Figure>),
    /// Parts that are shown on demand.
    Details(String, Vec<Part>),
}

impl Part {
    /// What is not measured, each with the reason.
    pub fn missing(missing: &BTreeMap<String, String>) -> Self {
        let each = missing.iter();
        Self::List(each.map(|(name, why)| format!("`{name}`: {why}")).collect())
    }
}

impl Report {
    pub fn new(title: impl Into<String>, lead: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            lead: lead.into(),
            ..Self::default()
        }
    }

    /// What is not measured, if anything is.
    #[must_use]
    pub fn left_out(self, missing: &BTreeMap<String, String>) -> Self {
        match missing.is_empty() {
            true => self,
            false => self.heading("Left out").part(Part::missing(missing)),
        }
    }

    #[must_use]
    pub fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    #[must_use]
    pub fn parts(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.parts.extend(parts);
        self
    }

    #[must_use]
    pub fn heading(self, text: impl Into<String>) -> Self {
        self.part(Part::Heading(text.into()))
    }

    #[must_use]
    pub fn subheading(self, text: impl Into<String>) -> Self {
        self.part(Part::Subheading(text.into()))
    }

    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(Part::Text(text.into()))
    }

    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.part(Part::Table(table))
    }

    #[must_use]
    pub fn figure(self, figure: Figure) -> Self {
        self.part(Part::Figure(Box::new(figure)))
    }

    #[must_use]
    pub fn file(mut self, name: impl Into<String>, content: impl Into<String>) -> Self {
        self.files.push((name.into(), content.into()));
        self
    }
}

/// A table: a header and rows, the first column being what a row is about.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// A column's name, and its cell in the row of something.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
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

    #[must_use]
    pub fn with(mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        self.rows.extend(rows);
        self
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(self.header.len()));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.header) + &rule + &rows
    }
}
