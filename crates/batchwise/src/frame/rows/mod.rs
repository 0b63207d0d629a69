//! Rows: a subcommand describes its columns once, and shows an interval as text, as a live table or
//! as JSON lines.

mod format;
mod keys;
mod live;
mod output;
#[cfg(test)]
pub mod picture;
mod terminal;
mod text;
mod view;

pub use format::{Form, Format};
#[cfg(test)]
pub use live::LiveTable;
pub use output::Output;
pub use text::TextTable;
pub use view::{Column, JsonLines, Order, View, confidence, lost, name, plain, waiting};
