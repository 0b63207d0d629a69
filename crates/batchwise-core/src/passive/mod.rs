//! Response latency from one direction: the gaps between the packets that a client sends, as a
//! vantage point on its path to the server sees them (docs/passive.md).
//!
//! [`Stream`] reads packets' headers, [`Gaps`] keeps one flow's open epoch; in the kernel its C twin `lib/gaps.h` does. A closed
//! [`Epoch`] carries an [`Estimate`], [`server::Server`] sums epochs up, [`report`] has the lines
//! that are printed. [`paper`] is Algorithm 2 as published, for comparison.

mod code;
mod estimate;
pub mod flight;
mod gaps;
pub mod paper;
pub mod report;
pub mod server;
pub mod stream;

use core::net::{IpAddr, SocketAddr};

pub use code::{code_of, floor_of};
pub use gaps::{Gaps, Kind, Mode};
pub use stream::Stream;

/// Most modes that a flow's epoch keeps.
pub const MODES: usize = 8;

/// How gaps become latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// [`flight::Flight`] where TCP's acknowledgments are seen, else modes: ours.
    Auto,
    /// Modes of relative width, pauses told from bursts by valleys and marks.
    Modes,
    /// The paper's Algorithm 1: a longer gap than this, ns, begins a batch.
    Fixed(u64),
}

/// What an estimate depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// How.
    pub algorithm: Algorithm,
    /// An epoch lasts at least this, ns.
    pub epoch_ns: u64,
    /// And at most this, ns, while it has fewer than [`Params::min_gaps`]; at most 30 s.
    pub max_ns: u64,
    /// Gaps as long as this, ns, may be timeouts or idle time; at most 3 s.
    pub idle_ns: u64,
    /// Marked gaps that an epoch needs to close in time.
    pub min_gaps: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Auto,
            epoch_ns: 1_000_000_000,
            max_ns: 10_000_000_000,
            idle_ns: 200_000_000,
            min_gaps: 5,
        }
    }
}

/// What a closed epoch says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Mean response latency, ns; `None`: not known.
    pub latency: Option<u64>,
    /// Mean pause between batches, ns: the paper's IBG.
    pub ibg: Option<u64>,
    /// Batches that the latency is the mean of.
    pub batches: u32,
    /// All gaps that were seen.
    pub gaps: u32,
    /// Of these, taken for timeouts, think or idle time.
    pub idle: u32,
    /// 0 to 1000: how far to trust the latency.
    pub confidence: u32,
    /// Nothing but retransmissions and waiting was seen: a server that does not answer, or one
    /// that nobody asked.
    pub stalled: bool,
}

/// The transport of a flow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP, and with it QUIC.
    Udp,
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Where packets come from.
    pub client: SocketAddr,
    /// Where they go.
    pub server: SocketAddr,
    /// By what.
    pub transport: Transport,
    /// Index of the backend that a load balancer sends the packets to; 0: nobody does.
    pub backend: u16,
}

/// A closed epoch of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Whose; `None` when the event that named it was lost.
    pub tuple: Option<Tuple>,
    /// ns of the capture's clock, the packet that opened it.
    pub start: u64,
    /// ns, when it was closed.
    pub end: u64,
    /// What it says.
    pub estimate: Estimate,
    /// What it is made of.
    pub gaps: Gaps,
}

/// An address that packets carry as 16 bytes: IPv4 is kept as IPv4-mapped IPv6.
pub fn address(bytes: [u8; 16]) -> IpAddr {
    IpAddr::from(bytes).to_canonical()
}
