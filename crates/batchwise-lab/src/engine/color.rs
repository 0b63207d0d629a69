//! Colours with a meaning, the same in all figures.

pub use plotters::style::{BLACK, RGBColor as Color};

/// What is measured or estimated with Nagle on.
pub const NAGLE: Color = Color(196, 78, 32);
/// What is measured or estimated with TCP_NODELAY.
pub const NODELAY: Color = Color(32, 96, 168);
/// What is measured with batchwise at work.
pub const BATCHWISE: Color = Color(34, 128, 72);
/// What is only compared with.
pub const GREY: Color = Color(110, 110, 110);
/// Parts of a whole, in order.
pub const PARTS: [Color; 4] = [
    Color(86, 132, 178),
    Color(150, 184, 110),
    Color(226, 168, 76),
    Color(164, 118, 168),
];
