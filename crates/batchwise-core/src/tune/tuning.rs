//! What a controller may be told to do differently.

use super::Policy;
use crate::sense::report::Side;

const MS: u64 = 1_000_000;

/// What a controller may be told to do differently. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// What is to be gained.
    pub policy: Policy,
    /// Which end the sockets are: of two agents that try at the same time the server's gives way.
    pub side: Side,
    /// What exploration may add to the mean latency, as a share.
    pub budget: f64,
    /// An arm that is better by less than this changes nothing.
    pub margin: f64,
    /// Estimates that are trusted less are not acted upon.
    pub min_confidence: f64,
    /// The shortest window that is measured.
    pub window: u64,
    /// Messages that a window should hold.
    pub enough: u64,
    /// Decide and log, but leave every socket alone.
    pub dry_run: bool,
}

impl Tuning {
    /// A policy's usual tuning.
    pub fn new(policy: Policy, side: Side) -> Self {
        Self {
            policy,
            side,
            budget: 0.02,
            margin: 0.05,
            min_confidence: 0.5,
            window: 40 * MS,
            enough: 50,
            dry_run: false,
        }
    }
}
