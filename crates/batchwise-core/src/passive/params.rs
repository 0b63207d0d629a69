//! What estimates from gaps depend on.

/// Most modes that a flow's epoch keeps.
pub const MODES: usize = 8;

/// How gaps become latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// [`super::flight::Flight`] where TCP's acknowledgments are seen, else modes: ours.
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
