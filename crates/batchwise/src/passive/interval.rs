//! What an interval of `batchwise passive` brings: core's lines, and what they have in common.

use std::net::SocketAddr;

use batchwise_core::passive::Transport;
use batchwise_core::passive::report::{EpochLine, ServerLine, TotalsLine};

/// So many servers are told apart where it is for a long time.
pub const MOST_SERVERS: usize = 1024;

/// A server: its address, and what carries the requests.
pub type Key = (SocketAddr, Transport);

/// What an interval shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Where packets are seen.
    pub place: String,
    /// Epochs that closed, if they are wanted one by one.
    pub epochs: Vec<EpochLine>,
    /// Servers with their lines, in order of their addresses.
    pub servers: Vec<(Key, ServerLine)>,
    /// Counts until its end.
    pub totals: TotalsLine,
    /// It is the last: the counts are shown.
    pub over: bool,
}

/// Packets by what became of them, as the metrics name it.
pub const fn classes(totals: &TotalsLine) -> [(&'static str, u64); 6] {
    [
        ("measured", totals.measured),
        ("ack", totals.acks),
        ("fragment", totals.fragments),
        ("other", totals.other),
        ("malformed", totals.malformed),
        ("contended", totals.contended),
    ]
}

/// How full the table of flows is, 0 to 1.
pub fn pressure(totals: &TotalsLine) -> f64 {
    totals.flows_live as f64 / totals.flows_capacity.max(1) as f64
}
