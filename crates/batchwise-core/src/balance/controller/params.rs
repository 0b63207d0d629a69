//! What the controller is tuned by. Factors are of a backend's configured weight.

/// Of the best latency: above it a server gives weight away (the paper's).
pub const ALPHA_HIGH: f64 = 1.5;
/// Of the best latency: below it a server may take weight (the paper's).
pub const ALPHA_LOW: f64 = 1.2;
/// How strongly: a server that is x times as slow as the low watermark deserves x to the power of minus
/// this, of its configured weight.
pub const GIVE: f64 = 0.8;
/// What a fast server takes in an interval, of its weight, at most.
pub const CAP: f64 = 0.25;
/// The least factor of a server that gets connections.
pub const FLOOR: f64 = 0.02;
/// The largest factor.
pub const MOST: f64 = 3.0;
/// Of the way back to what it deserves, in an interval; the way down is gone at once.
pub const REGRESS: f64 = 0.6;
/// Changes of a factor below this are not made.
pub const DEADBAND: f64 = 0.01;
/// Responses below which a server is not judged.
pub const MIN_SAMPLES: u64 = 20;
/// What an interval's responses count for in the next, 0 to 1.
pub const MEMORY: f64 = 0.6;
/// Standard errors that a difference must be beyond.
pub const CERTAINTY: f64 = 2.0;
/// Intervals without a new estimate after which the last one is not used.
pub const STALE_INTERVALS: u32 = 4;
/// Factor with which a server that has come back begins.
pub const START: f64 = 0.1;
/// Of its own past and of the others' median: below both, a latency is not believed.
pub const SUSPICIOUS: f64 = 0.3;
