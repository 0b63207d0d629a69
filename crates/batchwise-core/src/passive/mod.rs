//! Response latency from one direction: the gaps between the packets that a client sends, as a
//! vantage point on its path to the server sees them (docs/research/passive.md).
//!
//! [`Stream`] reads packets' headers, [`Gaps`] keeps one flow's open epoch; in the kernel its C twin
//! `lib/gaps.h` does. A closed [`Epoch`] carries an [`Estimate`], [`server::Server`] sums epochs up,
//! [`report`] has the lines that are printed. [`paper`] is Algorithm 2 as published, for comparison.

mod code;
mod epoch;
mod estimate;
pub mod flight;
mod gaps;
pub mod paper;
mod params;
pub mod report;
pub mod server;
pub mod stream;

pub use code::{code_of, floor_of};
pub use epoch::{Epoch, Transport, Tuple, address};
pub use estimate::Estimate;
pub use gaps::{Gaps, Kind, Mode};
pub use params::{Algorithm, MODES, Params};
pub use stream::Stream;
