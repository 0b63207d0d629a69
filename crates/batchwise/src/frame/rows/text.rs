//! Rows as aligned text, for people without a terminal to draw on.

use super::view::Column;

/// The header is repeated after this many rows, so that it stays in sight.
const HEADER_EVERY: usize = 40;
/// Between two columns.
const GAP: &str = "  ";

/// Columns that grow with what they hold.
pub struct TextTable<R: 'static> {
    columns: &'static [Column<R>],
    widths: Vec<usize>,
    rows: usize,
}

impl<R> TextTable<R> {
    /// Columns as wide as they are described.
    pub fn new(columns: &'static [Column<R>]) -> Self {
        let widths = columns.iter().map(|c| c.width.max(length(c.name())));
        Self {
            columns,
            widths: widths.collect(),
            rows: 0,
        }
    }

    /// The text of these rows. The header comes first, after a screenful, and when columns have grown.
    pub fn rows(&mut self, rows: &[&R]) -> String {
        let cells = |row: &&R| -> Vec<String> {
            let columns = self.columns.iter();
            columns.map(|c| c.text(row)).collect()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        let mut grown = false;
        for (cell, column) in rows.iter().flat_map(|row| row.iter().zip(0..)) {
            let (length, width): (usize, &mut usize) = (length(cell), &mut self.widths[column]);
            grown |= length > *width;
            *width = length.max(*width);
        }
        let names: Vec<String> = self.columns.iter().map(|c| c.name().to_owned()).collect();
        let mut text = String::new();
        for (index, row) in rows.iter().enumerate() {
            if self.rows.is_multiple_of(HEADER_EVERY) || (index == 0 && grown) {
                text += &self.line(&names);
            }
            text += &self.line(row);
            self.rows += 1;
        }
        text
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
    fn the_header_comes_back_after_a_screenful() {
        let mut table = TextTable::new(COLUMNS);
        let text: String = (0..=HEADER_EVERY)
            .map(|_| table.rows(&[&("a", 1)]))
            .collect();
        assert_eq!(text.matches("who").count(), 2);
    }

    #[test]
    fn a_long_cell_moves_the_columns_once() {
        let mut table = TextTable::new(COLUMNS);
        table.rows(&[&("a", 1)]);
        let text = table.rows(&[&("a", 1), &("much longer", 2)]);
        assert!(
            text.starts_with("who            n\na              1\n"),
            "{text}"
        );
        assert!(!table.rows(&[&("a", 1)]).contains("who"));
    }
}
