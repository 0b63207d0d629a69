//! What passive and balance share: the table of measured flows, as its loader sees it. The C side is
//! `flows.h` (the table) and `measure.h` (what a packet does to it).

pub(crate) mod events;
mod record;

pub use record::Counters;
