//! What a test counts of a service while one setting is in force.

/// What a service did in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// How long it was, ns.
    pub time: f64,
    /// Bytes that its connections moved, in both directions: the same for a request however it is
    /// cut into calls and segments.
    pub bytes: f64,
    /// Time that messages spent here or on their way, summed over messages, ns.
    pub waited: f64,
    /// Messages that were done with that.
    pub done: f64,
    /// Of [`Self::bytes`], those that were sent, …
    pub sent: f64,
    /// … in so many segments, …
    pub segments: f64,
    /// … of which a full one has so many.
    pub mss: f64,
    /// Acknowledgments that were sent without data.
    pub acks: f64,
    /// CPU time that the applications' processes took meanwhile, ns.
    pub cpu: f64,
}

impl Slice {
    /// Whether anything was done or waited for.
    pub(super) fn is_of_something(&self) -> bool {
        self.done > 0.0 || self.waited > 0.0
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes * 1e9 / self.time.max(1.0)
    }

    /// Mean latency of a message by Little's law, ns. Where none was done, what was waited is a lower
    /// bound.
    pub(super) fn latency(&self) -> f64 {
        (self.waited / self.done.max(1.0)).max(1.0)
    }
}
