//! Closed-loop workloads in which responses cause requests, with the truth at the client: when
//! each request was sent, when its response was complete, and when the first request that this
//! response caused was sent. Passive estimates from a vantage point on the path are held against
//! that (Sharma et al., "Passive Response Latency", §5.1: req-to-res and req-to-req).

pub(crate) mod conclude;
pub(crate) mod dial;
pub mod distribution;
pub(crate) mod driver;
pub(crate) mod engine;
mod judgement;
pub(crate) mod link;
pub(crate) mod options;
pub(crate) mod pace;
pub(crate) mod page;
mod report;
pub(crate) mod tally;
pub(crate) mod truth_log;

pub use options::Options;
pub use report::TruthReport;
pub use tally::Break;
