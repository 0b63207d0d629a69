//! What a terminal would show, for the tests of live views.

use ratatui::backend::TestBackend;
use ratatui::{Frame, Terminal};

/// What is drawn, as lines of text without their trailing blanks.
pub fn picture(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
    terminal.draw(draw).expect("a buffer takes everything");
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(width.into()).map(|cells| {
        let row: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        row.trim_end().to_owned() + "\n"
    });
    rows.collect()
}
