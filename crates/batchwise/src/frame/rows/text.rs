//! Rows as aligned text, for people without a terminal to draw on.

use super::view::Column;

/// Between two columns.
const GAP: &str = "  ";

/// Columns that grow with what they hold.
pub struct TextTable<R: 'static> {
    columns: &'static [Column<R>],
    widths: Vec<usize>,
    has_header: bool,
}

impl<R> TextTable<R> {
    /// Columns as wide as they are described.
    pub fn new(columns: &'static [Column<R>]) -> Self {
        let widths = columns.iter().map(|c| c.width.max(length(c.name())));
        Self {
            columns,
            widths: widths.collect(),
            has_header: false,
        }
    }

    /// The text of these rows. The header comes first, once.
    pub fn rows(&mut self, rows: &[&R]) -> String {
        let cells = |row: &&R| -> Vec<String> {
            let columns = self.columns.iter();
            columns.map(|c| c.text(row)).collect()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        for row in &rows {
            for (cell, width) in row.iter().zip(&mut self.widths) {
                *width = length(cell).max(*width);
            }
        }
        let names: Vec<String> = self.columns.iter().map(|c| c.name().to_owned()).collect();
        let header = (!std::mem::replace(&mut self.has_header, true)).then_some(&names);
        let lines = header.into_iter().chain(&rows);
        lines.map(|cells| self.line(cells)).collect()
    }

    fn line(&self, cells: &[String]) -> String {
        let columns = self.columns.iter().zip(&self.widths).zip(cells);
        let cells = columns.map(|((column, width), text)| column.aligned(text, *width));
        let line: Vec<String> = cells.collect();
        line.join(GAP).trim_end().to_owned() + "\n"
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::super::view::plain;
    use super::*;

    const COLUMNS: &[Column<(&str, u32)>] = &[
        Column::left("who", 5, |row| plain(row.0)),
        Column::right("n", 3, |row| plain(row.1.to_string())),
    ];

    #[test]
    fn cells_are_aligned_under_their_header() {
        let text = TextTable::new(COLUMNS).rows(&[&("a", 1), &("bc", 234)]);
        assert_eq!(text, "who      n\na        1\nbc     234\n");
    }

    #[test]
    fn a_long_cell_moves_the_columns_and_brings_no_other_header() {
        let mut table = TextTable::new(COLUMNS);
        table.rows(&[&("a", 1)]);
        let text = table.rows(&[&("a", 1), &("much longer", 2)]);
        assert_eq!(text, "a              1\nmuch longer    2\n");
    }
}
